"""`polyseme convert`."""

from __future__ import annotations

from typing import Any

import click

import polyseme
from polyseme.cli import options
from polyseme.cli.progress import Bar


@click.command()
@options.model
@options.output("The folder to write.")
@click.option("--shard-size", type=int, metavar="BYTES", help="Cut the weights into files of at most this size.")
@options.force
def command(output: str, **settings: Any) -> None:
    """Load a model and save it: config.json, model.safetensors, tokenizer.json, as transformers loads them too.

    \b
    Examples:
      polyseme convert -m old/bert -o new/bert
      polyseme convert -m old/bert -o new/bert --shard-size 1000000000
    """
    with Bar("converting the model"):
        polyseme.convert_model(output=output, **settings)
    click.echo(f"{output}: saved", err=True)

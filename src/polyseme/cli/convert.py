"""`polyseme convert`."""

from __future__ import annotations

import click

import polyseme
from polyseme.cli import options


@click.command()
@options.model
@options.output("The folder to write.")
@click.option(
    "--shard-size", type=click.IntRange(min=1), metavar="BYTES", help="Cut the weights into files of this size."
)
@options.force
def command(model: str | None, output: str, shard_size: int | None, force: bool) -> None:
    """Load a model and save it: config.json, model.safetensors, tokenizer.json, as transformers loads them too.

    \b
    Examples:
      polyseme convert -m old/bert -o new/bert
    """
    polyseme.convert_model(model=model, output=output, shard_size=shard_size, force=force)
    click.echo(f"{output}: saved", err=True)

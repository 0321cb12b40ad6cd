"""`polyseme convert`."""

from __future__ import annotations

from typing import Any

import click

import polyseme
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar
from polyseme.verb_options import ConvertOptions


@command_of(ConvertOptions)
def command(output: str, **settings: Any) -> None:
    """Convert a model to today's layout: config.json, model.safetensors, tokenizer.json, as transformers loads them.

    \b
    Examples:
      polyseme convert -m old/bert -o new/bert
      polyseme convert -m old/bert -o new/bert --store bf16 --shard-size 1000000000
    """
    with Bar("converting the model"):
        polyseme.convert_model(output=output, **settings)
    click.echo(f"{output}: saved", err=True)

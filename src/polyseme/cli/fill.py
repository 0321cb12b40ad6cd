"""`polyseme fill`."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click

import polyseme
from polyseme.cli import options
from polyseme.cli.plain_text import print_table
from polyseme.cli.progress import Bar


@click.command()
@click.argument("text")
@options.model
@click.option("--top", type=int, default=5, show_default=True, metavar="N", help="How many pieces a mask.")
@options.device
@options.as_json
def command(text: str, as_json: bool, **settings: Any) -> None:
    """Guess what stands at each [MASK] of TEXT, with probabilities; each mask by itself.

    The model needs a masked output; `polyseme show` says whether it has one.

    \b
    Examples:
      polyseme fill "A [MASK] of [MASK]." -m path/to/bert
      polyseme fill "Dawn [MASK]." --top 20 --json -m path/to/bert
    """
    with Bar("loading the model"):
        filled = polyseme.fill(text, **settings)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(each) for each in filled]))
        return
    print_table(
        [
            (str(number), piece, f"{probability:.4f}")
            for number, each in enumerate(filled, start=1)
            for piece, probability in zip(each.pieces, each.probabilities, strict=True)
        ],
        header=("mask", "piece", "probability"),
    )

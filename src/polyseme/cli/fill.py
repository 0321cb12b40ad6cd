"""`polyseme fill`."""

from __future__ import annotations

import dataclasses
import json

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

import polyseme
from polyseme.cli import options


@click.command()
@click.argument("text")
@options.model
@click.option("--top", default=5, show_default=True, type=click.IntRange(min=1), help="How many pieces a mask.")
@options.device
@options.as_json
def command(text: str, model: str | None, top: int, device: str, as_json: bool) -> None:
    """Guess what stands at each [MASK] of TEXT, with probabilities; each mask by itself.

    \b
    Examples:
      polyseme fill "A [MASK] of [MASK]." -m path/to/bert
    """
    filled = polyseme.fill(text, model=model, top=top, device=device)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(each) for each in filled]))
        return
    table = Table("mask", "piece", "probability", box=None, pad_edge=False)
    for number, each in enumerate(filled, start=1):
        for piece, probability in zip(each.pieces, each.probabilities, strict=True):
            table.add_row(str(number), Text(piece), f"{probability:.4f}")
    Console().print(table)

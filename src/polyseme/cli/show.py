"""`polyseme show`."""

from __future__ import annotations

import dataclasses
import json

import click
from rich.console import Console
from rich.table import Table

import polyseme
from polyseme.cli import options


@click.command()
@options.model
@options.as_json
def command(model: str | None, as_json: bool) -> None:
    """Show what a model is: family, sizes, parameters, tokenizer, outputs, and which verbs work with it.

    \b
    Examples:
      polyseme show
      polyseme show -m path/to/bert --json
    """
    card = polyseme.show(model=model)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(card), indent=2))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("model", card.path)
    table.add_row("family", card.family)
    table.add_row(
        "sees",
        {"both": "both sides of a piece", "causal": "what stands before a piece"}.get(card.direction, card.direction),
    )
    table.add_row("layers", f"{card.layers} above layer 0, {card.width} wide")
    table.add_row("window", "no bound" if card.window is None else f"{card.window:,} pieces, specials included")
    table.add_row("parameters", f"{card.parameters:,}")
    table.add_row("tokenizer", card.tokenizer)
    table.add_row("outputs", ", ".join(card.outputs) or "none")
    table.add_row("can", ", ".join(card.can))
    Console().print(table)

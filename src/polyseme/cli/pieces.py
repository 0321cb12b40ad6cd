"""`polyseme pieces`."""

from __future__ import annotations

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
@click.option("--attentions", is_flag=True, help="Also compute attentions, for --output.")
@options.output("Write ids, spans and the states of every layer to this .npz.", required=False)
@options.device
@options.force
@options.as_json
def command(
    text: str, model: str | None, attentions: bool, output: str | None, device: str, force: bool, as_json: bool
) -> None:
    """Show TEXT in a model's pieces, specials included; -o keeps the states of every layer.

    \b
    Examples:
      polyseme pieces "Snuffleupagus broke even."
      polyseme pieces "Dawn broke." --attentions -o dawn.npz
    """
    found = polyseme.pieces(text, model=model, attentions=attentions, output=output, device=device, force=force)
    if as_json:
        click.echo(json.dumps({"pieces": found.pieces, "ids": found.ids.tolist(), "spans": found.spans.tolist()}))
        return
    table = Table("piece", "id", "text", box=None, pad_edge=False)
    for piece, id, (start, end) in zip(found.pieces, found.ids.tolist(), found.spans.tolist(), strict=True):
        table.add_row(Text(piece), str(id), f"{start}–{end}" if end > start else "")
    Console().print(table)

"""`polyseme pieces`."""

from __future__ import annotations

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
@options.stack
@click.option("--attentions", is_flag=True, help="Write the attentions of every layer to OUTPUT as well.")
@options.output("Write ids, spans and the states of every layer to this .npz.", required=False)
@options.device
@options.force
@options.as_json
def command(text: str, as_json: bool, **settings: Any) -> None:
    """Show TEXT in a model's pieces, specials included, and where in TEXT each stands; -o keeps the states.

    \b
    Examples:
      polyseme pieces "Snuffleupagus broke even."
      polyseme pieces "Dawn broke." --attentions -o dawn.npz
      polyseme pieces "Dawn broke." --json -m path/to/bert
    """
    if settings["attentions"] and settings["output"] is None:
        raise click.UsageError("The attentions are written to OUTPUT, and there is none: give -o too.")
    with Bar("loading the model"):
        found = polyseme.pieces(text, **settings)
    if as_json:
        click.echo(json.dumps({"pieces": found.pieces, "ids": found.ids.tolist(), "spans": found.spans.tolist()}))
        return
    print_table(
        [
            (piece, str(id), f"{start}–{end}" if end > start else "")
            for piece, id, (start, end) in zip(found.pieces, found.ids.tolist(), found.spans.tolist(), strict=True)
        ],
        header=("piece", "id", "text"),
    )

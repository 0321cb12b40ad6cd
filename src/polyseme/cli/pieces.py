"""`polyseme pieces`."""

from __future__ import annotations

import json
from typing import Any

import click

import polyseme
from polyseme.cli.record_options import as_json, options_of
from polyseme.cli.terminal import Bar, print_table
from polyseme.verb_options import PiecesOptions


@click.command()
@click.argument("text")
@options_of(PiecesOptions)
@as_json
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

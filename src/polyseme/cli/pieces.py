"""`polyseme pieces`."""

from __future__ import annotations

from typing import Any

import click

import polyseme
from polyseme.cli.printing import print_json
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_table
from polyseme.verb_options.word_options import PiecesOptions


@command_of(PiecesOptions, json=True)
def command(text: str, as_json: bool, **settings: Any) -> None:
    """Show how a model tokenizes TEXT: its pieces, special pieces included, with their offsets; -o writes the states.

    \b
    Examples:
      polyseme pieces "Snuffleupagus broke even."
      polyseme pieces "Dawn broke." --attentions -o dawn.npz
      polyseme pieces "Dawn broke." --json -m path/to/bert
    """
    if settings["attentions"] and settings["output"] is None:
        raise click.UsageError("The attentions are written to OUTPUT, and there is none. Add -o.")
    with Bar("loading the model"):
        result = polyseme.pieces(text, **settings)
    if as_json:
        print_json({"pieces": result.pieces, "ids": result.ids.tolist(), "spans": result.spans.tolist()})
        return
    print_table(
        [
            (piece, str(id), f"{start}–{end}" if end > start else "")
            for piece, id, (start, end) in zip(result.pieces, result.ids.tolist(), result.spans.tolist(), strict=True)
        ],
        header=("piece", "id", "text"),
    )

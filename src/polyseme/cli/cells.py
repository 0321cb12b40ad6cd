"""`polyseme cells`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.findings import print_findings
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar
from polyseme.verb_options.cells_options import CellsOptions


@command_of(CellsOptions, json=True)
def command(as_json: bool, **settings: Any) -> None:
    """Show what single cells of a recurrent model track in TEXT: quotes, brackets, conditions, line length.

    --property lists the cells of all layers whose values correlate most with it; -o writes a page with the text
    colored by the best cell, or by the cells of --cell.

    \b
    Examples:
      polyseme cells 'He said "dawn broke", and left.' --property "inside quotes" -m models/chars -o cells.html
      polyseme cells --in program.py --property "inside if" -m models/code -o cells.html
      polyseme cells --in book.txt --cell 17,21 --layer 1 -m models/chars -o cells.html
    """
    with Bar("loading the model", then="reading", unit="pieces") as bar:
        findings = polyseme.cells(**settings, progress=bar)
    print_findings(findings, settings["output"], as_json=as_json)

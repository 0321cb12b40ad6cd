"""How the verbs that look into models print what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyseme.cli.printing import BoldText, print_json, print_text
from polyseme.cli.terminal import print_cost, print_table

if TYPE_CHECKING:
    from polyseme.analysis.findings import Findings


def print_findings(findings: Findings, output: str | None, *, as_json: bool) -> None:
    """A table, or JSON, on standard output; notes and cost on standard error."""
    if as_json:
        print_json(findings.to_json(), indent=2)
    else:
        print_text(BoldText(findings.title()))
        print_table(findings.rows(), header=findings.header())
    for note in findings.notes:
        print_text(f"note: {note}", err=True)
    if findings.cost is not None:
        print_cost(findings.cost.line(), output)

"""`polyseme uses`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.findings import print_findings
from polyseme.cli.printing import BoldText, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_uses
from polyseme.verb_options.uses_options import WordUsesOptions


@command_of(WordUsesOptions, json=True)
def command(word: str, as_json: bool, **settings: Any) -> None:
    """Compare the uses of WORD by layer and as a matrix, and show its neighbors with and without context.

    \b
    Examples:
      polyseme uses play --in texts/ -o play.html
      polyseme uses play --in texts/ --static glove.6B.50d.txt --layer -2 -o play.html
      polyseme uses broke --sentence "Dawn broke." --sentence "The vase broke." -o broke.html
    """
    with Bar("loading the model", then="embedding") as bar:
        findings = polyseme.uses(word, **settings, progress=bar)
    print_findings(findings, settings["output"], as_json=as_json)
    if as_json or not findings.near:
        return
    print_text(BoldText(f"\nNeighbors without context ({findings.static})"))
    print_text(", ".join(each.word for each in findings.static_neighbors) or "none")
    print_text(BoldText(f"\nUses and their nearest uses in context (layer {findings.layer})"))
    for number, each in enumerate(findings.near):
        print_text("\n" * (number > 0), nl=False)
        print_uses([("", each.use), *((f"{use.cosine:.2f}", use) for use in each.near)])

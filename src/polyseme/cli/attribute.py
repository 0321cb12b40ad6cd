"""`polyseme attribute`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.findings import print_findings
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar
from polyseme.verb_options.attribute_options import AttributeOptions


@command_of(AttributeOptions, json=True)
def command(as_json: bool, **settings: Any) -> None:
    """Show how much each word of TEXT... (a text, several, or a pair) contributes to the score of a label in a task
    model.

    Integrated gradients sum to the difference between the scores of the text and of a baseline, in which the pieces
    of all words are replaced by padding; the remaining error is printed. -o writes a page with the words in red and
    blue.

    \b
    Examples:
      polyseme attribute "a dull film" -m models/stars -o why.html
      polyseme attribute "A man sleeps." "Someone is awake." -m models/nli --label contradiction
      polyseme attribute "Jane visited Paris" --word Paris -m models/tagger
      polyseme attribute --in reviews.txt -m models/stars --method gradient-x-input -o why.json
    """
    with Bar("loading the model", then="attributing", unit="texts") as bar:
        findings = polyseme.attribute(**settings, progress=bar)
    print_findings(findings, settings["output"], as_json=as_json)

"""`polyseme heads`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.findings import print_findings
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar
from polyseme.verb_options.heads_options import HeadsOptions


@command_of(HeadsOptions, json=True)
def command(treebank: str, as_json: bool, **settings: Any) -> None:
    """Show which attention head follows which dependency relation of TREEBANK, a named one or a CoNLL-U file.

    For each relation the best head is selected on some sentences, evaluated on others, and compared with the best
    fixed offset. The page also shows positional heads, heads that attend to special pieces, and the entropy of each
    head.

    \b
    Examples:
      polyseme heads ud-ewt --data data/tasks --relations obj,det,amod -o heads.html
      polyseme heads mine.conllu --train more.conllu -m path/to/bert -o heads.tsv
      polyseme heads ud-ewt --data data/tasks --importance held-out.txt -o heads.html
    """
    with Bar("loading the model", then="reading attention", unit="sentences") as bar:
        findings = polyseme.attention_heads(treebank, **settings, progress=bar)
    print_findings(findings, settings["output"], as_json=as_json)

"""`polyseme attention`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.findings import print_findings
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar
from polyseme.verb_options.attention_options import AttentionOptions


@command_of(AttentionOptions, json=True)
def command(text: str, as_json: bool, **settings: Any) -> None:
    """Show where the words of TEXT look, in every layer and head of a model.

    A page (-o attention.html) shows all heads, and where each word looks. A table (-o attention.tsv) has every
    weight. The printed lines summarize each layer: where its attention goes, and its strongest link between words
    that are not adjacent. Layers are counted from 1, heads from 0.

    \b
    Examples:
      polyseme attention "The animal didn't cross the street because it was too tired." -o attention.html
      polyseme attention "Dawn broke." -m path/to/bert --rollout -o attention.html
      polyseme attention "A man sleeps." --target "Ein Mann schläft." -m models/translation -o attention.html
      polyseme attention "Snuffleupagus broke even." --pieces -o attention.tsv
    """
    with Bar("loading the model", then="reading", unit="windows") as bar:
        findings = polyseme.attention(text, **settings, progress=bar)
    print_findings(findings, settings["output"], as_json=as_json)

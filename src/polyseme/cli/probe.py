"""`polyseme probe`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.findings import print_findings
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar
from polyseme.verb_options.probe_options import ProbeOptions


@command_of(ProbeOptions, json=True)
def command(as_json: bool, **settings: Any) -> None:
    """Find out what each layer of a model knows about words, spans, or pairs of spans.

    NAME is a benchmark, or the kind of your own data: tag, edges, edge, edge-pair.

    A classifier (a probe) is trained on the frozen vectors of every layer, and compared with baselines: from the
    words alone, with random labels per word, and with random weights.

    \b
    Examples:
      polyseme probe ud-ewt --data tasks --control -m models/mine -o probe.html
      polyseme probe ud-ewt --label Number --data tasks --layers 0,3,6 -m minilm
      polyseme probe ud-ewt --unit arcs --data tasks --layers all,mix -m minilm -o relations.html
      polyseme probe tag --train train.conll --test test.conll --code-length -m minilm
      polyseme probe ud-ewt --structural distance --data tasks --random --seeds 3 -m minilm -o trees.html
      polyseme probe edges --train pairs.jsonl --test others.jsonl --layers mix -m minilm -o edges.html
    """
    with Bar("reading", then="probing", unit="done") as bar:
        findings = polyseme.probe(**settings, progress=bar)
    print_findings(findings, settings["output"], as_json=as_json)

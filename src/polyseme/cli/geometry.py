"""`polyseme geometry`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.findings import print_findings
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar
from polyseme.verb_options.geometry_options import GeometryOptions


@command_of(GeometryOptions, json=True)
def command(as_json: bool, **settings: Any) -> None:
    """Measure how similar word vectors are, layer by layer: of all words, of the uses of one word, of one text.

    Reports anisotropy, self-similarity, intra-sentence similarity and explained variance (Ethayarajh 2019), with and
    without the mean and the first principal components, and CKA between layers and with another model.

    \b
    Examples:
      polyseme geometry --in texts/ -o geometry.html
      polyseme geometry -m models/mine --in corpus.txt --split sentence --max-words 1000000 -o geometry.json
      polyseme geometry -m models/elmo --in texts/ --against english-encoder -o both.html
      polyseme geometry -m models/stars --in reviews.txt --against minilm -o moved.html
    """
    with Bar("loading the model", then="reading", unit="words") as bar:
        findings = polyseme.geometry(**settings, progress=bar)
    print_findings(findings, settings["output"], as_json=as_json)

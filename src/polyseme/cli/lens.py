"""`polyseme lens`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.findings import print_findings
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar
from polyseme.verb_options.lens_options import LensOptions


@command_of(LensOptions, json=True)
def command(text: str, as_json: bool, **settings: Any) -> None:
    """Show what each layer of a language model would predict for TEXT, through the model's own output (logit lens).

    A masked model predicts at each [MASK], a causal model after every piece, a two-way model (ELMo, Flair) in either
    direction, a sequence-to-sequence model (BART, T5) the text for one [MASK], and a translation model what follows
    each piece of its translation TEXT. The prediction of the top layer,
    which equals that of fill and score, is the answer.
    -o writes a page with a picture of layers and positions.

    \b
    Examples:
      polyseme lens "Dawn [MASK]."
      polyseme lens "The vase [MASK] into pieces." --top 8 -o lens.html
      polyseme lens "The capital of France is" -m english-decoder -o lens.html
      polyseme lens "Dawn [MASK]." --json -m path/to/bert
      polyseme lens "Dawn broke." --half backwards -m models/elmo
      polyseme lens "Die Schlüssel sind" --source "The keys are here." -m models/en-de
    """
    with Bar("loading the model"):
        findings = polyseme.lens(text, **settings)
    print_findings(findings, settings["output"], as_json=as_json)

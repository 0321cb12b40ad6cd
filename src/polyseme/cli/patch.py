"""`polyseme patch`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.findings import print_findings
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar
from polyseme.verb_options.patch_options import PatchOptions


@command_of(PatchOptions, json=True)
def command(clean: str, corrupted: str, as_json: bool, **settings: Any) -> None:
    """Show which states of CLEAN restore its answer in a run of CORRUPTED, by layer and word (activation patching).

    The two sentences have the same number of words. The answers are in brackets, or named by --answer and --against,
    or predicted by the model. For a translation model the sentences are sources, and the answers come next in the
    translation. The scale runs from 0, the difference of their log-probabilities in the corrupted
    sentence, to 1, the difference in the clean one.

    \b
    Examples:
      polyseme patch "The keys to the cabinet [are] here." "The key to the cabinet [is] here." -o patch.html
      polyseme patch "The keys on the table [MASK] old." "The key on the table [MASK] old." --answer are --against is
      polyseme patch "The keys to the cabinet [are]" "The key to the cabinet [is]" -m english-decoder
      polyseme patch "The keys are here ." "The key is here ." --prefix "Die" -m models/en-de --stack decoder
    """
    with Bar("loading the model", then="patching", unit="layers") as bar:
        findings = polyseme.patch(clean, corrupted, **settings, progress=bar)
    print_findings(findings, settings["output"], as_json=as_json)

"""`patch`: states of one sentence put into a run of another."""

from __future__ import annotations

from polyseme.analysis.activation_patching import PatchFindings, patch_sentences
from polyseme.analysis.findings import check_findings_output
from polyseme.api import load
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options.patch_options import PatchOptions


@flat(PatchOptions)
def patch(options: PatchOptions) -> PatchFindings:
    """Put the clean sentence's state of each word and layer into the corrupted one: how much of the answer comes back?

    >>> polyseme.patch("The keys [are] here.", "The key [is] here.").recovered()      # doctest: +SKIP
    """
    check_findings_output(options.output, force=options.force)
    loaded = load(model_or_default("patch", options.model), device=options.device)
    findings = patch_sentences(
        loaded.bundle,
        options.clean,
        options.corrupted,
        answer=options.answer,
        against=options.against,
        half=options.half,
        stack=options.stack,
        prefix=options.prefix,
        model=loaded.path,
        progress=options.progress,
    )
    if options.output is not None:
        findings.save(options.output, force=options.force)
    return findings

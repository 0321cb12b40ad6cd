"""`lens`: what each layer of a language model would predict."""

from __future__ import annotations

from polyseme.analysis.findings import check_findings_output
from polyseme.analysis.layer_predictions import LensFindings, layer_predictions
from polyseme.api import load
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options.lens_options import LensOptions


@flat(LensOptions)
def lens(options: LensOptions) -> LensFindings:
    """Read every layer through the model's output: what it would predict, and where the answer first appears.

    A masked model predicts at the masks of the text, a causal one after each piece, a two-way one in either direction,
    and a translation model after each piece of the text that it writes from the `source`.

        >>> polyseme.lens("Dawn [MASK].").places[0].stays_from                   # doctest: +SKIP
    """
    check_findings_output(options.output, force=options.force)
    loaded = load(model_or_default("lens", options.model), device=options.device)
    findings = layer_predictions(
        loaded.bundle, options.text, top=options.top, model=loaded.path, half=options.half, source=options.source
    )
    if options.output is not None:
        findings.save(options.output, force=options.force)
    return findings

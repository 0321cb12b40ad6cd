"""`next`: how likely one sentence follows another."""

from __future__ import annotations

from polyseme.api import load
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options.text_options import NextOptions


@flat(NextOptions)
def next(options: NextOptions) -> float:
    """The probability that `second` follows `first`, by the model's next-sentence output."""
    return load(model_or_default("next", options.model), device=options.device).next(options.first, options.second)

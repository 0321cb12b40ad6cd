"""`fill`: the likeliest pieces at each mask of a text."""

from __future__ import annotations

from polyseme.api import Filled, load
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options import FillOptions


@flat(FillOptions)
def fill(options: FillOptions) -> list[Filled]:
    """Predict the piece at each `[MASK]` of a text, each mask by itself."""
    return load(model_or_default("fill", options.model), device=options.device).fill(options.text, top=options.top)

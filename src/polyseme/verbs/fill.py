"""`fill`: what may be at each mask of a text: pieces, whole words, given answers, spans."""

from __future__ import annotations

from polyseme.api import load
from polyseme.filling.filled_masks import FilledMask
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options.text_options import FillOptions, FillTextOptions


@flat(FillOptions)
def fill(options: FillOptions) -> list[FilledMask]:
    """Predict what is at each `[MASK]` of a text: the piece, each mask by itself; or whole words, all masks together.

    Returns one record per mask, with pieces, probabilities and words.
    """
    values = options.values(FillTextOptions)
    return load(model_or_default("fill", options.model), device=options.device).fill(**values)

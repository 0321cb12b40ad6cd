"""`next`: how likely one sentence follows another."""

from __future__ import annotations

import logging

from polyseme.api import load
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options.text_options import NextOptions

_logger = logging.getLogger(__name__)


@flat(NextOptions)
def next(options: NextOptions) -> float:
    """The probability that `second` follows `first`, by the model's next-sentence output.

    A model that was trained on the order of sentences (`next=sop`, ALBERT) assumes that the two are adjacent; its
    result is the probability that they are in this order rather than the other. A log message says so.
    """
    model = load(model_or_default("next", options.model), device=options.device)
    probability = model.next(options.first, options.second)
    if model.bundle.next_objective == "sop":
        _logger.info(
            "the model has learned the order of sentences (next=sop): this is the probability that the two, taken "
            "to be neighbors, are in this order"
        )
    return probability

"""`polyseme next`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.printing import print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar
from polyseme.verb_options.text_options import NextOptions


@command_of(NextOptions)
def command(first: str, second: str, **settings: Any) -> None:
    """Predict the probability that SECOND follows FIRST, with the model's next-sentence output.

    The model needs this output: `polyseme show` lists the outputs of a model, and `polyseme pretrain --recipe
    bert-tiny --objective next=nsp` trains a model with it. A model trained on sentence order (next=sop, ALBERT)
    assumes that the two are adjacent, and predicts the probability of this order.

    \b
    Examples:
      polyseme next "The vase fell." "It broke." -m path/to/bert
      polyseme next "The vase fell." "It broke." -m models/next
    """
    with Bar("loading the model"):
        probability = polyseme.next(first, second, **settings)
    print_text(f"{probability:.4f}")

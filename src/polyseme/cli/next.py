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
    """Predict how likely SECOND follows FIRST: a probability, by the model's next-sentence output.

    The model needs such an output; `polyseme show` lists the outputs of a model, and `polyseme pretrain --recipe
    bert-tiny --objective next=nsp` trains one that has it. A model that was trained on the order of sentences
    (next=sop, ALBERT) takes the two to be neighbors, and tells how likely they are in this order.

    \b
    Examples:
      polyseme next "The vase fell." "It broke." -m path/to/bert
      polyseme next "The vase fell." "It broke." -m models/next
    """
    with Bar("loading the model"):
        probability = polyseme.next(first, second, **settings)
    print_text(f"{probability:.4f}")

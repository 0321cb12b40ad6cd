"""`polyseme fill`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_json, print_table
from polyseme.verb_options import FillOptions


@command_of(FillOptions, json=True)
def command(text: str, as_json: bool, **settings: Any) -> None:
    """Predict the piece at each [MASK] of TEXT, with probabilities; each mask by itself.

    The model needs a masked output; `polyseme show` lists the outputs of a model.

    \b
    Examples:
      polyseme fill "The vase [MASK] into pieces."
      polyseme fill "Dawn [MASK]." --top 20 --json -m path/to/bert
    """
    with Bar("loading the model"):
        filled = polyseme.fill(text, **settings)
    if as_json:
        print_json(filled)
        return
    print_table(
        [
            (str(number), piece, f"{probability:.4f}")
            for number, each in enumerate(filled, start=1)
            for piece, probability in zip(each.pieces, each.probabilities, strict=True)
        ],
        header=("mask", "piece", "probability"),
    )

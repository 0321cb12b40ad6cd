"""`polyseme show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polyseme
from polyseme.cli.printing import print_json
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_table
from polyseme.verb_options.model_options import ShowOptions

if TYPE_CHECKING:
    from polyseme.shown_model import Card

SEES = {
    "both": "both sides of a piece, in every layer",
    "causal": "what is before a piece",
    "two-way": "both sides of a piece, each in a half of its own",
    "any-order": "both sides of a piece; trained on one order after another",
    "none": "the piece alone: no context",
}


@command_of(ShowOptions, json=True)
def command(as_json: bool, **settings: Any) -> None:
    """Show what a model is: family, sizes, parameters, tokenizer, outputs, and which verbs work with it.

    With -o also draw which pieces the states of each layer depend on, and the positions that the model adds.
    `polyseme models` lists the packaged ones.

    \b
    Examples:
      polyseme show
      polyseme show -m english-encoder
      polyseme show -m path/to/bert --json
      polyseme show -m path/to/bert -o bert.html
    """
    with Bar("loading the model"):
        card = polyseme.show(**settings)
    if as_json:
        print_json(card, indent=2)
        return
    print_table(
        [
            ("model", card.path),
            ("family", card.family),
            ("sees", SEES.get(card.direction, card.direction)),
            _size(card),
            ("window", "no bound" if card.window is None else f"{card.window:,} pieces, specials included"),
            ("parameters", f"{card.parameters:,}"),
            *([("heads left", card.heads)] if card.heads is not None else []),
            ("tokenizer", card.tokenizer),
            ("outputs", ", ".join(card.outputs) or "none"),
            *([("task", card.task)] if card.task is not None else []),
            ("can", ", ".join(card.can)),
        ]
    )


def _size(card: Card) -> tuple[str, str]:
    """Layers, or what a model without an encoder has instead."""
    if card.width:
        return "layers", f"{card.layers} above layer 0, {card.width} wide"
    if "n_ngrams" in card.settings:
        return "n-grams", ", ".join(f"{n:,} of {order}" for order, n in enumerate(card.settings["n_ngrams"], start=1))
    return "weights", ", ".join(f"{weight:.4f}" for weight in card.settings["weights"])

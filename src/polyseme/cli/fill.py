"""`polyseme fill`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polyseme
from polyseme.cli.printing import print_json
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_table
from polyseme.verb_options.text_options import FillOptions

if TYPE_CHECKING:
    from polyseme.filling.filled_masks import FilledMask


@command_of(FillOptions, json=True)
def command(text: str, as_json: bool, **settings: Any) -> None:
    """Predict the piece at each [MASK] in TEXT, with probabilities.

    With --whole-words, candidates are words of one or more pieces, and several masks are filled jointly. With
    --targets, only the given answers are compared, however many pieces they have.

    Masked models fill single pieces, whole words or targets. Generative models (GPT-2, BART, T5) fill in spans or
    whole words. `polyseme show` lists what a model can do.

    \b
    Examples:
      polyseme fill "The vase [MASK] into pieces."
      polyseme fill "The [MASK] sat on the mat." --whole-words --top 10
      polyseme fill "Paris is in [MASK]." --targets France,Germany,Italy
      polyseme fill "The [MASK] barked at the [MASK]." --whole-words
      polyseme fill "Dawn [MASK]." --top 20 --json -m path/to/bert
    """
    with Bar("loading the model"):
        filled = polyseme.fill(text, **settings)
    if as_json:
        print_json(filled)
    elif not any(each.words for each in filled):
        print_table(
            [
                (str(number), piece, f"{probability:.4f}")
                for number, each in enumerate(filled, start=1)
                for piece, probability in zip(each.pieces, each.probabilities, strict=True)
            ],
            header=("mask", "piece", "probability"),
        )
    else:
        _print_words(filled)


def _print_words(filled: list[FilledMask]) -> None:
    """One line per candidate, with its word for each mask, its probability, and its share of all that are listed."""
    probabilities = filled[0].probabilities
    total = sum(probabilities)
    numbers = range(1, len(filled) + 1)
    columns = (
        ["word", "pieces"] if len(filled) == 1 else [f"{name} {n}" for n in numbers for name in ("word", "pieces")]
    )
    rows = [
        (
            *(text for each in filled for text in (each.words[place], each.pieces[place])),
            f"{probability:.3g}" if probability < 0.0001 else f"{probability:.4f}",
            f"{100 * probability / total:.1f}%" if total else "",
        )
        for place, probability in enumerate(probabilities)
    ]
    print_table(rows, header=(*columns, "probability", "share"))

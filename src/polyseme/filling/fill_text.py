"""`fill` over one text: options checked, candidates as records."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyseme.errors import InputError, OptionError
from polyseme.filling.filled_masks import FilledMask, Filler, FillRequest, MaskedText, masks_with_candidates
from polyseme.filling.masked_words import check_word_hide
from polyseme.verb_options.text_options import FillTextOptions

MAX_PIECES = 3
"""Pieces of a word or span, unless the user says otherwise."""
MOST_PIECES = 100
"""Pieces of a word or span at most: each number of pieces is searched by itself."""


def check_max_pieces(max_pieces: int | None) -> None:
    """Refuse a maximum that no word has."""
    if max_pieces is not None and not 1 <= max_pieces <= MOST_PIECES:
        raise OptionError(
            f"A word has at least 1 piece, and up to {MOST_PIECES} are tried. Got max_pieces={max_pieces} instead."
        )


def by_words(options: FillTextOptions, *, fills_pieces: bool) -> bool:
    """Whether words are requested; if not, options that mean nothing for single pieces, or for spans, are refused."""
    check_word_hide(options.hide)
    check_max_pieces(options.max_pieces)
    if options.whole_words or options.targets or isinstance(options.targets, str):
        return True
    if options.hide is not None:
        raise OptionError(
            f"What is hidden ({options.hide!r}) is a choice for whole words (--whole-words, --targets). Leave it out."
        )
    if options.max_pieces is not None and fills_pieces:
        raise OptionError(
            f"max_pieces={options.max_pieces} is about whole words (--whole-words, --targets), and this model fills a "
            "mask with a single piece without them. Leave it out, or ask for whole words."
        )
    return False


def fill_text(filler: Filler, text: str, options: FillTextOptions) -> list[FilledMask]:
    """The candidates for the masks of a text, one record per mask."""
    request = FillRequest(
        text=MaskedText.read(text, filler.own_mask),
        top=options.top,
        whole_words=options.whole_words,
        targets=read_targets(options.targets),
        max_pieces=MAX_PIECES if options.max_pieces is None else options.max_pieces,
    )
    candidates = filler(request)
    return masks_with_candidates(
        request.text, candidates, filler.spelled, [math.exp(each.log_prob) for each in candidates]
    )


def read_targets(targets: str | Sequence[str]) -> tuple[str, ...]:
    """Given answers, each once; refused where one is empty or no text."""
    names = (targets,) if isinstance(targets, str) else tuple(targets)
    for number, target in enumerate(names, start=1):
        if not isinstance(target, str) or not target.strip():
            raise InputError(f"Target {number} must be a word or several. Got {target!r} instead.")
    return tuple(dict.fromkeys(target.strip() for target in names))

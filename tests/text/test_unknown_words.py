"""Counting the words that are read as the unknown piece."""

from __future__ import annotations

import numpy as np
import pytest

from polyseme.text.alignment import count_unknown
from polyseme.text.documents import make_document
from polyseme.types import Pieces
from tiny_models import tiny_model, tiny_tokenizer

UNKNOWN = tiny_tokenizer("bert").specials["unknown"]


def pieces(ids: list[int], words: list[tuple[int, int]], n_unknown: int = 0) -> Pieces:
    return Pieces(np.array(ids), np.zeros((len(ids), 2), np.int64), np.array(words).reshape(-1, 2), n_unknown)


def test_words_are_counted_however_many_of_their_pieces_are_unknown() -> None:
    encoded = [
        pieces([7, UNKNOWN, UNKNOWN, 8, 9], [(0, 0), (1, 2), (3, 4)]),
        pieces([], []),
        pieces([UNKNOWN, 8, UNKNOWN, 9], [(0, 1), (3, 3)]),  # the third piece is of no word
    ]
    assert count_unknown(encoded, tiny_tokenizer("bert")) == 2
    assert count_unknown(encoded, tiny_tokenizer("bert"), [(0, 1), (0, 0), (0, 4)]) == 1
    assert count_unknown(encoded, tiny_tokenizer("bert"), [(2, 3), (0, 0), (1, 4)]) == 1
    assert count_unknown([], tiny_tokenizer("bert")) == 0


@pytest.mark.parametrize(
    ("family", "n_unknown"), [("bert", 2), ("lstm", 3), ("t5", 2), ("roberta", 0), ("gpt2", 0), ("elmo", 0)]
)
def test_bytes_and_spelled_words_are_never_unknown(family: str, n_unknown: int) -> None:
    """Whole words are often; what came out as nothing was counted already."""
    tokenizer = tiny_model(family).bundle.tokenizer
    assert tokenizer is not None
    encoded = tokenizer.encode_many([make_document(["the", "東", "broke"]), make_document(["\u200b", "x東", "breaks"])])
    vanished = sum(each.n_unknown for each in encoded)
    assert count_unknown(encoded, tokenizer) == n_unknown + (family == "lstm" and not vanished)

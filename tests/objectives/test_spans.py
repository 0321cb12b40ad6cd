"""Span corruption: T5's lengths and draws, and that nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from objectives.rows import some_of, some_rows, told
from polyseme.corpus.random_keys import row_keys
from polyseme.corpus.tokenizer_training import train_tokenizer
from polyseme.errors import OptionError
from polyseme.objectives.spans import Noise, Spans, noise_mask

SPANS = told(Spans())
END = SPANS.vocabulary.specials["end"]


def runs_of(pieces: list[int]) -> dict[int, list[int]]:
    """The stretches between sentinels, by the sentinel before each; what stands before the first under -1."""
    found: dict[int, list[int]] = {-1: []}
    last = -1
    for piece in pieces:
        if piece in SPANS.sentinels:
            last = SPANS.sentinels.index(piece)
            assert last not in found
            found[last] = []
        else:
            found[last].append(piece)
    return found


@pytest.mark.parametrize("length", [12, 24, 57])
def test_source_and_target_make_up_the_row(length: int) -> None:
    rows = some_rows("t5", n_rows=20, length=length)
    example = SPANS.corrupt(rows)
    for row, pieces, targets in zip(rows.pieces, example.arrays["pieces"], example.arrays["targets"], strict=True):
        left, gone = (runs_of(side[:-1].tolist()) for side in (pieces, targets))
        assert pieces[-1] == targets[-1] == END
        assert list(gone) == [-1, *range(len(gone) - 1)]
        assert gone[-1] == []
        assert left.keys() == gone.keys()
        whole = left[-1]
        for number in range(len(gone) - 1):
            assert gone[number]
            whole = whole + gone[number] + left[number]
        assert whole == row[:-1].tolist()
        assert left[len(gone) - 2] == []  # a row ends with a span


def test_lengths_are_t5_s() -> None:
    """512 pieces of input come of 568 of text, and have 114 targets: the paper's figures."""
    assert (SPANS.text_length(512), SPANS.target_length(568)) == (568, 114)
    for length in (16, 64, 128, 512):
        n = SPANS.text_length(length)
        assert SPANS.read_length(n) <= length < SPANS.read_length(n + 1)
    assert SPANS.noise(568) == Noise(85, 28)
    example = SPANS.corrupt(some_rows("t5", length=SPANS.row_length(64, 1)))
    assert example.arrays["pieces"].shape == (6, SPANS.read_length(SPANS.text_length(64)))
    assert example.arrays["targets"].shape == (6, SPANS.target_length(SPANS.text_length(64)))
    assert example.counts == {"spans": example.arrays["targets"].size}


def test_the_mask_has_so_many_pieces_and_spans_anywhere() -> None:
    n, noise = 100, Noise(15, 5)
    mask = noise_mask(row_keys(0, 0, np.arange(4000)), n, noise)
    assert (mask.sum(axis=1) == 15).all()
    assert ((np.diff(mask.astype(int), axis=1, prepend=0) == 1).sum(axis=1) == 5).all()
    assert not mask[:, 0].any()
    assert mask[:, -1].all()
    middle = mask[:, 20:80].mean(axis=0)
    assert middle.min() > 0.1
    assert middle.max() < 0.2
    # cutting 15 pieces into 5 spans at random: the first is one piece long in C(13, 3) of C(14, 4) ways
    begins = mask.argmax(axis=1)
    single = ~mask[np.arange(4000), begins + 1]
    assert single.mean() == pytest.approx(286 / 1001, abs=0.03)


def test_other_rates_and_lengths() -> None:
    for rate, mean in ((0.5, 3.0), (0.15, 10.0), (0.3, 1.0)):
        objective = told(Spans(corruption_rate=rate, mean_length=mean))
        example = objective.corrupt(some_rows("t5", length=31))
        noise = objective.noise(30)
        assert noise.pieces == round(rate * 30)
        assert example.arrays["targets"].shape[1] == noise.pieces + noise.spans + 1
    with pytest.raises(OptionError, match="a corruption_rate between 0 and 1"):
        Spans(corruption_rate=1.0)


def test_a_row_is_corrupted_alike_in_any_batch() -> None:
    rows = some_rows("t5", n_rows=8, length=64)
    together = SPANS.corrupt(rows).arrays
    for which in ([3], [7, 0]):
        for name, array in SPANS.corrupt(some_of(rows, which)).arrays.items():
            assert np.array_equal(array, together[name][which])
    other = SPANS.corrupt(some_rows("t5", n_rows=8, length=64, epoch=1)).arrays
    assert not np.array_equal(other["pieces"], together["pieces"])


def test_more_spans_than_sentinels_are_refused() -> None:
    assert SPANS.row_length(200, 1) > 200
    with pytest.raises(OptionError, match=r"lose 28 spans, and the tokenizer has only 12 sentinels"):
        SPANS.row_length(512, 1)


@pytest.mark.parametrize("kind", ["unigram", "byte-bpe", "wordpiece"])
def test_tokenizers_trained_with_t5_s_frame_have_sentinels(kind: str) -> None:
    """A hundred, at the end, the first one last, as in T5's own; and its specials in its order."""
    words = "the dawn broke a vase and news of it came to every house where people sat at bread"
    tokenizer: Any = train_tokenizer(kind, [words] * 30, vocab_size=420, frame="t5")
    objective = Spans().for_tokenizer(tokenizer)
    assert tokenizer.n_pieces <= 420
    assert objective.sentinels == tuple(tokenizer.n_pieces - 1 - number for number in range(100))
    assert (tokenizer.specials["pad"], tokenizer.specials["end"]) == (0, 1)
    with pytest.raises(OptionError, match=r"with the frame 't5' has at least \d+ pieces"):
        train_tokenizer(kind, [words], vocab_size=90, frame="t5")

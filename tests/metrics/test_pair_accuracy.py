"""Figures of pairs and last words, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polyseme.datasets.lambada import LastWord
from polyseme.datasets.minimal_pairs import MinimalPair, PairSet
from polyseme.metrics.pair_accuracy import babylm_figures, last_word_figures, pair_figures
from polyseme.metrics.sampling_error import wilson_interval
from polyseme.types import Document, Word


def pair(*groups: str) -> MinimalPair:
    return MinimalPair("good", ("bad",), groups)


def test_a_tie_is_wrong_and_the_best_bad_one_counts() -> None:
    pairs = [pair("a"), pair("a"), pair("a"), pair("b")]
    found = pair_figures(
        [PairSet("own", ("group",), pairs)], [[(-1.0, -2.0), (-1.0, -1.0), (-3.0, -4.0, -2.0), (-1.0, -5.0)]]
    )
    assert [(line.level, line.name, line.n, line.depth) for line in found.lines] == [
        ("all", "all", 4, 0),
        ("group", "a", 3, 1),
        ("group", "b", 1, 1),
    ]
    assert found["all"]["accuracy"] == 0.5
    assert found["a"]["accuracy"] == pytest.approx(1 / 3)
    assert found["a"]["ties"] == 1
    assert found["a"]["margin"] == pytest.approx(0)
    assert found["a"]["margin_spread"] == pytest.approx(1)
    assert found["all"]["spread"] == pytest.approx(np.std([1 / 3, 1], ddof=1))
    assert found["b"]["spread"] is None
    assert found["b"]["margin_spread"] is None
    assert [item["right"] for item in found.items] == [True, False, False, True]
    assert found.items[2]["bad"] == [-4.0, -2.0]


def test_several_sets_and_levels() -> None:
    sets = [
        PairSet("one", ("kind", "case"), [pair("x", "x1"), pair("x", "x2"), pair("y", "y1")]),
        PairSet("two", (), [pair()]),
    ]
    found = pair_figures(sets, [[(0.0, -1.0), (0.0, 1.0), (0.0, -1.0)], [(0.0, 1.0)]])
    assert [(line.level, line.name, line.parent, line.depth) for line in found.lines] == [
        ("all", "all", "", 0),
        ("set", "one", "", 1),
        ("kind", "x", "one", 2),
        ("case", "x1", "x", 3),
        ("case", "x2", "x", 3),
        ("kind", "y", "one", 2),
        ("case", "y1", "y", 3),
        ("set", "two", "", 1),
    ]
    assert found["all"]["spread"] == pytest.approx(np.std([2 / 3, 0], ddof=1))
    assert found["one"]["spread"] == pytest.approx(np.std([0.5, 1], ddof=1))


def test_last_words() -> None:
    items = [LastWord(Document(text="a b", words=[Word("a", 0, 1), Word("b", 2, 3)], id=str(id))) for id in range(4)]
    found = last_word_figures(items, (np.log([0.5, 0.25, 0.5, 0.25]), np.array([True, False, True, True])))
    assert found["all"]["accuracy"] == 0.75
    assert found["all"]["perplexity"] == pytest.approx(math.sqrt(8))
    assert found.items[1] == {"id": "1", "word": "b", "log_prob": math.log(0.25), "right": False}


@pytest.mark.parametrize(("right", "n"), [(0, 10), (3, 10), (10, 10), (500, 1000)])
def test_wilsons_interval_is_where_the_share_is_one_deviation_off(right: int, n: int) -> None:
    z = 1.959963984540054
    for end in wilson_interval(right, n):
        assert end is not None
        if 1e-9 < end < 1 - 1e-9:
            assert abs(right / n - end) == pytest.approx(z * math.sqrt(end * (1 - end) / n))
    assert wilson_interval(0, 0) == (None, None)


def test_by_babylms_convention_every_paradigm_counts_alike() -> None:
    """A set is the mean over its paradigms, however many pairs these have; there is no figure over both sets."""
    sets = [
        PairSet("blimp", ("phenomenon", "paradigm"), [pair("x", "x1"), *[pair("x", "x2")] * 4, pair("y", "y1")]),
        PairSet("supplement", ("paradigm",), [pair("hypernym"), pair("hypernym"), pair("turn_taking")]),
    ]
    right, wrong, tie = (0.0, -1.0), (0.0, 1.0), (0.0, 0.0)
    figures = babylm_figures(sets, [[right, wrong, wrong, wrong, right, tie], [right, wrong, right]])
    assert [(line.level, line.name, line.parent, line.n, line.depth) for line in figures.lines] == [
        ("set", "blimp", "", 6, 0),
        ("phenomenon", "x", "blimp", 5, 1),
        ("paradigm", "x1", "x", 1, 2),
        ("paradigm", "x2", "x", 4, 2),
        ("phenomenon", "y", "blimp", 1, 1),
        ("paradigm", "y1", "y", 1, 2),
        ("set", "supplement", "", 3, 0),
        ("paradigm", "hypernym", "supplement", 2, 1),
        ("paradigm", "turn_taking", "supplement", 1, 1),
    ]
    assert figures["blimp"]["accuracy"] == pytest.approx((1 + 0.25 + 0) / 3)
    assert figures["x"]["accuracy"] == pytest.approx(2 / 5), "a phenomenon is the share of its pairs"
    assert figures["blimp"]["ties"] == 1
    assert figures["supplement"]["accuracy"] == pytest.approx(0.75)
    reach = 1.959963984540054 * math.sqrt(0.25 * 0.75 / 4) / 3
    assert figures["blimp"]["low"] == pytest.approx((1 + 0.25 + 0) / 3 - reach)
    assert figures["blimp"]["high"] == pytest.approx((1 + 0.25 + 0) / 3 + reach)


def test_the_interval_of_a_mean_over_paradigms_covers_it() -> None:
    """Of many draws from known shares, about 95% of the intervals hold the true mean."""
    rng = np.random.default_rng(0)
    shares, n = [0.3, 0.6, 0.9], 50
    pairs = [pair("p", f"p{number}") for number in range(len(shares)) for _ in range(n)]
    covered = 0
    for _ in range(400):
        right = np.concatenate([rng.random(n) < share for share in shares])
        scores = [(0.0, -1.0) if each else (0.0, 1.0) for each in right]
        figures = babylm_figures([PairSet("blimp", ("phenomenon", "paradigm"), pairs)], [scores])["blimp"]
        assert figures["low"] is not None
        assert figures["high"] is not None
        covered += figures["low"] <= 0.6 <= figures["high"]
    assert 0.92 < covered / 400 < 0.98

"""Which places become targets: as many as asked for, words whole, spans in one piece, each row by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from polyseme.corpus.random_keys import row_keys
from polyseme.objectives.target_selection import (
    choose_pieces,
    choose_spans,
    choose_words,
    count_targets,
    most,
    span_lengths,
    words_of,
)

Bools = NDArray[np.bool_]
SPANS = {"shape": 0.2, "longest": 10}


@st.composite
def cases(draw: st.DrawFn) -> tuple[Bools, Bools, float, Any]:
    """Allowed places, starts of words, a rate, and keys."""
    n_rows, length = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    shape = (n_rows, length)
    allowed = random.random(shape) < draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))
    starts = random.random(shape) < draw(st.sampled_from([0.0, 0.2, 0.7, 1.0]))
    rate = draw(st.sampled_from([0.01, 0.15, 0.4, 0.5, 0.99, 1.0]))
    return allowed, starts, rate, row_keys(draw(st.integers(0, 99)), 0, np.arange(n_rows))


def word_sets(allowed: Bools, starts: Bools) -> list[set[int]]:
    """The words of one row, written out: runs of allowed places that begin at a start or after what is not allowed."""
    words: list[set[int]] = []
    for place, may in enumerate(allowed.tolist()):
        if may and (starts[place] or not place or not allowed[place - 1]):
            words.append(set())
        if may:
            words[-1].add(place)
    return words


@given(cases())
def test_exactly_as_many_pieces_as_asked_for(case: tuple[Bools, Bools, float, Any]) -> None:
    allowed, _, rate, keys = case
    wanted = count_targets(allowed, rate)
    for n_wanted, n_allowed in zip(wanted.tolist(), allowed.sum(axis=1).tolist(), strict=True):
        assert n_wanted == (min(max(round(rate * n_allowed), 1), n_allowed) if n_allowed else 0)
        assert n_wanted <= most(allowed.shape[1], rate)
    chosen = choose_pieces(allowed, wanted, keys)
    assert not (chosen & ~allowed).any()
    assert chosen.sum(axis=1).tolist() == wanted.tolist()


@given(cases())
def test_words_are_chosen_whole_until_none_fits(case: tuple[Bools, Bools, float, Any]) -> None:
    allowed, starts, rate, keys = case
    wanted = count_targets(allowed, rate)
    chosen = choose_words(allowed, starts, wanted, keys)
    for row, n_wanted in enumerate(wanted.tolist()):
        places = set(np.flatnonzero(chosen[row]).tolist())
        words = word_sets(allowed[row], starts[row])
        taken = [word for word in words if word <= places]
        assert set().union(*taken) == places
        assert len(places) <= n_wanted
        left = [len(word) for word in words if not word & places]
        assert len(places) == n_wanted or all(n > n_wanted - len(places) for n in left)


@given(cases())
def test_spans_are_whole_words_side_by_side(case: tuple[Bools, Bools, float, Any]) -> None:
    allowed, starts, rate, keys = case
    wanted = count_targets(allowed, rate)
    chosen, group = choose_spans(allowed, starts, wanted, keys, **SPANS)
    for row, n_wanted in enumerate(wanted.tolist()):
        places = set(np.flatnonzero(chosen[row]).tolist())
        words = word_sets(allowed[row], starts[row])
        assert set().union(*(word for word in words if word <= places)) == places
        left = [len(word) for word in words if not word & places]
        assert len(places) <= n_wanted
        assert len(places) == n_wanted or all(n > n_wanted - len(places) for n in left)
        for first in {int(group[row, place]) for place in places}:
            span = sorted(place for place in places if group[row, place] == first)
            assert span == list(range(span[0], span[-1] + 1))
            assert span[0] == min(words[first])
            assert sum(word <= set(span) for word in words) <= SPANS["longest"]


@given(cases())
def test_no_row_depends_on_those_beside_it(case: tuple[Bools, Bools, float, Any]) -> None:
    allowed, starts, rate, keys = case
    wanted = count_targets(allowed, rate)
    order = np.arange(len(keys))[::-1]
    for choose in (
        lambda a, _, w, k: choose_pieces(a, w, k),
        choose_words,
        lambda a, s, w, k: choose_spans(a, s, w, k, **SPANS)[0],
    ):
        together = choose(allowed, starts, wanted, keys)
        assert (choose(allowed[order], starts[order], wanted[order], keys[order]) == together[order]).all()
        for row in range(len(keys)):
            one = slice(row, row + 1)
            assert (choose(allowed[one], starts[one], wanted[one], keys[one]) == together[one]).all()


def test_every_place_is_as_likely_as_any_other() -> None:
    n_rows, length = 20_000, 16
    allowed = np.ones((n_rows, length), dtype=np.bool_)
    allowed[:, [0, 7]] = False
    chosen = choose_pieces(allowed, count_targets(allowed, 0.2), row_keys(3, 0, np.arange(n_rows)))
    share, n_allowed = 3 / 14, allowed[0]
    bound = 5 * np.sqrt(share * (1 - share) / n_rows)
    assert np.abs(chosen.mean(axis=0)[n_allowed] - share).max() < bound
    pairs = (chosen[:, 1] & chosen[:, 2]).mean()
    expected = share * 2 / 13
    assert abs(pairs - expected) < 5 * np.sqrt(expected / n_rows)


def test_every_word_is_as_likely_as_any_other_of_its_length() -> None:
    n_rows = 20_000
    allowed = np.ones((n_rows, 12), dtype=np.bool_)
    starts = np.zeros_like(allowed)
    starts[:, ::2] = True
    chosen = choose_words(allowed, starts, np.full(n_rows, 4), row_keys(4, 0, np.arange(n_rows)))
    assert (chosen.sum(axis=1) == 4).all()
    bound = 5 * np.sqrt(1 / 3 * 2 / 3 / n_rows)
    assert np.abs(chosen.mean(axis=0) - 1 / 3).max() < bound


def test_lengths_of_spans_are_geometric_up_to_the_longest() -> None:
    n = 100_000
    lengths = span_lengths((np.arange(n) + 0.5) / n, **SPANS)
    shares = np.bincount(lengths, minlength=11)[1:] / n
    geometric = 0.2 * 0.8 ** np.arange(10)
    np.testing.assert_allclose(shares, geometric / geometric.sum(), atol=2e-5)
    assert lengths.mean() == pytest.approx(3.8, abs=0.01)  # as the paper says
    assert (span_lengths(np.linspace(0, 1, 9, endpoint=False), shape=1.0, longest=10) == 1).all()


def test_spans_get_as_long_as_their_lengths_say() -> None:
    """Where there is room for one span only, and words are of one piece."""
    n_rows = 5_000
    allowed = np.ones((n_rows, 400), dtype=np.bool_)
    chosen, group = choose_spans(allowed, allowed, np.full(n_rows, 40), row_keys(5, 0, np.arange(n_rows)), **SPANS)
    firsts = np.where(chosen, group, -1)
    lengths = np.unique(firsts + np.arange(n_rows)[:, None] * 1000, return_counts=True)[1]
    assert 3.3 < lengths[lengths <= 10].mean() < 3.8  # some spans are cut short
    assert lengths[lengths <= 10].max() == 10


def test_words_are_found_between_specials() -> None:
    allowed = np.array([[0, 1, 1, 1, 0, 1, 1, 0]], dtype=np.bool_)
    starts = np.array([[0, 0, 1, 0, 0, 0, 0, 0]], dtype=np.bool_)
    words = words_of(allowed, starts)
    assert words.lengths.tolist() == [[1, 2, 2]]
    assert words.stretch[0, 0] == words.stretch[0, 1] != words.stretch[0, 2]
    assert words.number[allowed].tolist() == [0, 1, 1, 2, 2]

"""Counts are those of a plain count, and probabilities those of the published equations and of nltk."""

from __future__ import annotations

import itertools
import json
import lzma
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from ngrams.counted import END, counted, drawn
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.ngrams import counting
from polyseme.ngrams.kneser_ney import check_settings, discounts_of, estimate
from polyseme.ngrams.tables import NGramTables

V = 40
GOLDEN = Path(__file__).parents[1] / "golden" / "ngrams" / "nltk.json"
NGram = tuple[int, ...]


def plain_counts(documents: list[list[int]], order: int) -> list[dict[NGram, int]]:
    """By order, as the paper has them: occurrences, or below the highest order the pieces before, but at beginnings."""
    occurrences: list[Counter[NGram]] = [Counter() for _ in range(order)]
    for document in documents:
        text = (END, *document, END)
        for end in range(1, len(text)):
            for n in range(1, min(order, end + 1) + 1):
                occurrences[n - 1][text[end - n + 1 : end + 1]] += 1
    counts: list[dict[NGram, int]] = [dict(occurrences[-1])]
    for n in range(order - 1, 0, -1):
        before: dict[NGram, set[int]] = defaultdict(set)
        for longer in occurrences[n]:
            before[longer[1:]].add(longer[0])
        counts.insert(
            0,
            {
                ngram: occurrences[n - 1][ngram] if n > 1 and ngram[0] == END else len(before[ngram])
                for ngram in occurrences[n - 1]
            },
        )
    return counts


def ngrams_of(tables_or_counts: NGramTables | counting.NGramCounts, order: int) -> list[NGram]:
    keys = tables_or_counts.keys
    tables = NGramTables(tables_or_counts.n_pieces, keys, [], [])
    n = tables_or_counts.n_pieces if order == 1 else len(keys[order - 2])
    return [tuple(row) for row in tables.pieces_of(order, np.arange(n)).tolist()]


def equations(counts: list[dict[NGram, int]]) -> dict[NGram, float]:
    """Modified Kneser–Ney (Chen and Goodman 1998), written out: p(w | h) of every h of every length and every w."""

    probabilities: dict[NGram, float] = {}
    for order, own in enumerate(counts, start=1):
        n1, n2, n3, n4 = (list(own.values()).count(k) for k in (1, 2, 3, 4))
        y = n1 / (n1 + 2 * n2)
        discounts = [0.0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
        contexts = {ngram[:-1] for ngram in own} if order > 1 else {()}
        for context in contexts:
            after = {word: own.get((*context, word), 0) for word in range(V)}
            total = sum(after.values())
            gamma = sum(discounts[min(count, 3)] for count in after.values()) / total
            for word, count in after.items():
                lower = 1 / V if order == 1 else probabilities[(*context, word)[1:]]
                probabilities[(*context, word)] = (count - discounts[min(count, 3)]) / total + gamma * lower
        probabilities |= {  # contexts that nothing follows leave it to shorter ones
            (*context, word): probabilities[(*context, word)[1:]]
            for context in itertools.product(range(V), repeat=order - 1)
            if context not in contexts
            for word in range(V)
        }
    return probabilities


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("block", [13, 1 << 22])
def test_counts_are_exact_whatever_is_in_memory_at_once(
    order: int, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "BLOCK", block)
    documents = drawn(60, V, seed=order)
    ours, plain = counted(documents, V, order, tmp_path), plain_counts(documents, order)
    for n in range(1, order + 1):
        own = dict(zip(ngrams_of(ours, n), ours.counts[n - 1].tolist(), strict=True))
        assert {ngram: count for ngram, count in own.items() if count or n > 1} == plain[n - 1]


def test_modified_kneser_ney_equals_its_equations(tmp_path: Path) -> None:
    documents = drawn(150, V, seed=1)
    counts = counted(documents, V, 3, tmp_path)
    tables = estimate(counts, np.ones(V, np.bool_), discounts_of(counts))
    expected = equations(plain_counts(documents, 3))
    for context in itertools.islice(itertools.product(range(V), repeat=2), 0, None, 3):
        states = tables.new_states(1)
        for piece in context:
            states = tables.advance(states, np.array([piece]))
        if context[1] == END:  # what ends a text has nothing before it when it begins one
            continue
        log_probs = tables.all_log_probs(states)[0]
        np.testing.assert_allclose(np.exp(log_probs), [expected[(*context, w)] for w in range(V)], rtol=1e-12)
        one_by_one = tables.log_probs_of(states.repeat(V, axis=0), np.arange(V))
        np.testing.assert_allclose(one_by_one, log_probs, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:The text is too small")  # of order 1 no word occurs once
@pytest.mark.parametrize("smoothing", ["modified", "interpolated"])
@pytest.mark.parametrize("order", [1, 2, 5])
def test_all_pieces_that_may_follow_sum_to_one(smoothing: str, order: int, tmp_path: Path) -> None:
    counts = counted(drawn(150, V, seed=7), V, order, tmp_path)
    events = np.ones(V, np.bool_)
    events[0] = False
    tables = estimate(counts, events, discounts_of(counts, smoothing))  # type: ignore[arg-type]
    text = np.random.default_rng(0).integers(1, V, 500)
    log_probs = tables.all_log_probs(tables.states_of(text, np.zeros(500, np.bool_)))
    assert np.isneginf(log_probs[:, 0]).all()
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1, atol=1e-9)


def test_what_comes_before_a_beginning_changes_nothing(tmp_path: Path) -> None:
    counts = counted(drawn(150, V, seed=3), V, 4, tmp_path)
    tables = estimate(counts, np.ones(V, np.bool_), discounts_of(counts))
    text = np.array([4, 5, END, 3, 2, 4])
    after = np.array([3, 2, 4, 6])
    in_one = tables.states_of(text, np.zeros(6, np.bool_))[2:]
    alone = tables.states_of(text[2:], np.array([True, False, False, False]))
    np.testing.assert_allclose(tables.log_probs_of(in_one, after), tables.log_probs_of(alone, after), rtol=1e-12)


@pytest.mark.parametrize("order", [2, 3])
def test_interpolated_equals_nltk(order: int, data: Path, tmp_path: Path) -> None:
    """nltk neither discounts unigrams nor leaves anything for unknown words; elsewhere it has one discount for all."""
    with lzma.open(data / "tasks" / "wikitext-2" / "wiki.valid.tokens.xz", "rt", encoding="utf-8") as file:
        words = file.read().split()[:20_000]
    ids = {word: id for id, word in enumerate(["<unk>", "</s>", *sorted(set(words) - {"<unk>"})])}
    golden = json.loads(GOLDEN.read_text())[str(order)]
    counts = counted([[ids[word] for word in words]], len(ids), order, tmp_path)
    discounts = [(0.0,), *[(golden["discount"],)] * (order - 1)]
    tables = estimate(counts, np.ones(len(ids), np.bool_), discounts)
    text = np.array([ids[word] for word in words])
    states = tables.states_of(text, np.zeros(len(text), np.bool_))
    for at, of, expected in golden["scores"]:
        ours = float(np.exp(tables.log_probs_of(states[at - 1 : at], text[of : of + 1]))[0])
        assert ours == pytest.approx(expected, rel=1e-12), (at, of)


def test_a_tiny_text_has_the_usual_discounts_and_a_warning(tmp_path: Path) -> None:
    counts = counted([[2, 3, 4]], V, 2, tmp_path)
    with pytest.warns(PolysemeWarning, match="too small") as caught:
        assert discounts_of(counts) == [(0.5, 1.0, 1.5)] * 2
    assert len(caught) == 2


def test_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text to count"):
        counted([], V, 2, tmp_path)


@pytest.mark.parametrize(
    ("order", "smoothing", "discount", "reason"),
    [
        (0, "modified", None, "from 1 on. Got 0"),
        (2.5, "modified", None, "from 1 on. Got 2.5"),
        (3, "katz", None, "no smoothing 'katz'"),
        (3, "modified", 0.5, "interpolated smoothing"),
        (3, "interpolated", 1.5, "above 0 and at most 1. Got 1.5"),
    ],
)
def test_settings_that_mean_nothing_are_refused(order: int, smoothing: str, discount: float, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        check_settings(order, smoothing, discount)

"""Tagging schemes, and span F1 against conlleval's rules, written out here as its manual and its source state them."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.errors import InputError, OptionError
from polyseme.metrics.task_metrics import count_spans
from polyseme.text.tag_schemes import (
    SCHEMES,
    Span,
    converted,
    detect_scheme,
    fault_in,
    may_end,
    may_follow,
    may_start,
    named_scheme,
    sorted_tags,
    spans_of,
    tags_of,
    whole_tags,
)

# --- conlleval, as a state machine over one stream of words -----------------------------------------------------------

ENDS = {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")}
STARTS = {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")}


def conlleval(gold: list[list[str]], predicted: list[list[str]]) -> dict[str, tuple[int, int, int]]:
    """Of all (under "") and of each type: spans in the gold, spans predicted, spans right."""
    there: Counter[str] = Counter()
    found: Counter[str] = Counter()
    right: Counter[str] = Counter()
    stream = [
        pair for sentence in zip(gold, predicted, strict=True) for pair in [*zip(*sentence, strict=True), ("O", "O")]
    ]
    state = {"gold": ("O", ""), "predicted": ("O", "")}
    both_began = False
    for ours, theirs in stream:
        now = {
            name: (tag.split("-", 1)[0], tag.split("-", 1)[1] if "-" in tag else "")
            for name, tag in (("gold", ours), ("predicted", theirs))
        }
        ended, began = {}, {}
        for name, (letter, type_) in now.items():
            before, type_before = state[name]
            ended[name] = (before, letter) in ENDS or (before != "O" and type_before != type_)
            began[name] = (before, letter) in STARTS or (letter != "O" and type_before != type_)
        if both_began:
            same_type = state["gold"][1] == state["predicted"][1]
            if ended["gold"] and ended["predicted"] and same_type:
                both_began = False
                right[state["gold"][1]] += 1
            elif ended["gold"] != ended["predicted"] or now["gold"][1] != now["predicted"][1]:
                both_began = False
        if began["gold"] and began["predicted"] and now["gold"][1] == now["predicted"][1]:
            both_began = True
        there[now["gold"][1]] += began["gold"]
        found[now["predicted"][1]] += began["predicted"]
        state = now
    types = {type_ for type_ in (*there, *found) if there[type_] or found[type_]}
    every = (sum(there.values()), sum(found.values()), sum(right.values()))
    return {"all": every, **{type_: (there[type_], found[type_], right[type_]) for type_ in types}}


def test_span_counts_equal_conllevals_on_thousands_of_sequences_most_of_them_invalid() -> None:
    draw = random.Random(5)
    tags = ["O", "B-X", "I-X", "B-Y", "I-Y", "B-long-type", "I-long-type"]
    n_right = n_invalid = 0
    for _ in range(3000):
        lengths = [draw.randint(1, 9) for _ in range(draw.randint(1, 3))]
        gold = [draw.choices(tags, k=length) for length in lengths]
        noise = draw.random()
        predicted = [[draw.choice(tags) if draw.random() < noise else tag for tag in each] for each in gold]
        counts = count_spans(gold, predicted)
        ours = {"all": counts.all, **counts.types}
        assert {name: (each.gold, each.predicted, each.right) for name, each in ours.items()} == conlleval(
            gold, predicted
        )
        n_right += counts.all.right
        n_invalid += any(fault_in(each, "BIO") is not None for each in gold)
    assert n_right > 5000
    assert 2000 < n_invalid < 3000


def test_the_figures_and_the_table_of_types() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "B-LOC"]]
    counts = count_spans(gold, predicted)
    assert (counts.all.precision, counts.all.recall) == (2 / 4, 2 / 3)
    assert counts.all.f1 == pytest.approx(4 / 7)
    assert list(counts.types) == ["LOC", "PER"]
    assert (counts.types["PER"].precision, counts.types["PER"].recall) == (1 / 2, 1)
    nothing = count_spans([["O"]], [["O"]]).all
    assert (nothing.precision, nothing.recall, nothing.f1) == (0, 0, 0)
    with pytest.raises(InputError, match=r"Sentence 2 has 2 gold tags and 1 predicted"):
        count_spans([["O"], ["O", "O"]], [["O"], ["O"]])


# --- the schemes ------------------------------------------------------------------------------------------------------


@st.composite
def spans_and_length(draw: st.DrawFn) -> tuple[list[Span], int]:
    spans, at = [], 0
    for _ in range(draw(st.integers(0, 4))):
        start = at + draw(st.integers(0, 2))
        at = start + draw(st.integers(1, 3))
        spans.append(Span(start, at, draw(st.sampled_from(["X", "Y", "a-b", "a-c"]))))
    return spans, at + draw(st.integers(0, 2))


@given(spans_and_length())
def test_tags_of_every_scheme_are_valid_and_mean_their_spans(drawn: tuple[list[Span], int]) -> None:
    spans, n_words = drawn
    written = {scheme: tags_of(spans, n_words, scheme) for scheme in SCHEMES}
    for scheme, tags in written.items():
        assert spans_of(tags) == spans
        assert fault_in(tags, scheme) is None
        for other in SCHEMES:
            assert converted(tags, other) == written[other]


@given(st.lists(st.sampled_from(["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y", "S-Y"]), max_size=8))
def test_any_sequence_is_repaired_into_a_valid_one_with_the_same_spans(tags: list[str]) -> None:
    repaired = converted(tags, "BIOES")
    assert fault_in(repaired, "BIOES") is None
    assert spans_of(repaired) == spans_of(tags)
    if fault_in(tags, "BIOES") is None:
        assert repaired == tuple(tags)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_may_follow_what_is_what_some_spans_are_written_as(scheme: str) -> None:
    """All sentences of four words, with spans of two types, tell which tags come after which."""
    seen, starts, ends = set(), set(), set()
    cuts = itertools.product(["O", "X", "Y"], [True, False], repeat=4)
    for cut in cuts:
        spans: list[Span] = []
        for place in range(4):
            type_, goes_on = cut[2 * place], cut[2 * place + 1]
            if type_ == "O":
                continue
            if goes_on and spans and spans[-1].end == place and spans[-1].type == type_:
                spans[-1] = spans[-1]._replace(end=place + 1)
            else:
                spans.append(Span(place, place + 1, type_))
        tags = tags_of(spans, 4, scheme)
        seen |= set(itertools.pairwise(tags))
        starts.add(tags[0])
        ends.add(tags[-1])
    tags = whole_tags(["B-X", "B-Y"], scheme)
    assert {(one, other) for one in tags for other in tags if may_follow(one, other, scheme)} == seen
    assert {tag for tag in tags if may_start(tag, scheme)} == starts
    assert {tag for tag in tags if may_end(tag, scheme)} == ends


@pytest.mark.parametrize(
    ("sequences", "scheme"),
    [
        ([["I-PER", "I-PER", "O"], ["O", "I-LOC", "B-LOC"]], "IOB1"),
        ([["I-PER", "O"]], "IOB1"),
        ([["B-PER", "I-PER", "O"], ["O", "B-LOC", "B-LOC"]], "BIO"),
        ([["B-PER", "I-PER"], ["B-PER"], ["O", "I-PER"]], "BIO"),
        ([["B-PER", "E-PER", "O", "S-LOC"]], "BIOES"),
        ([["S-PER", "O"]], "BIOES"),
        ([["B-PER", "L-PER", "O", "U-LOC"]], "BILOU"),
        ([["B", "I", "O"]], "BIO"),
        ([["NOUN", "VERB"], ["O"]], None),
        ([["-LRB-", "NN", "O"]], None),
        ([["S", "NP"]], None),
        ([["O", "O"]], None),
        ([], None),
    ],
)
def test_which_scheme_it_is(sequences: list[list[str]], scheme: str | None) -> None:
    assert detect_scheme(sequences) == scheme


@pytest.mark.parametrize(
    ("tags", "scheme", "word", "what"),
    [
        (["O", "I-X"], "BIO", 1, "'I-X' may not stand after 'O' in BIO"),
        (["I-X"], "BIO", 0, "'I-X' may not stand at the beginning of a sentence in BIO"),
        (["B-X", "I-Y"], "BIO", 1, "'I-Y' may not stand after 'B-X'"),
        (["I-X", "B-Y"], "IOB1", 1, "'B-Y' may not stand after 'I-X'"),
        (["O", "B-X"], "BIOES", 1, "'B-X' may not end a sentence in BIOES"),
        (["B-X", "O"], "BIOES", 1, "'O' may not stand after 'B-X'"),
        (["S-X", "E-X"], "BIOES", 1, "'E-X' may not stand after 'S-X'"),
        (["B-X", "Q-X"], "BIO", 1, "'Q-X' is no tag of BIO"),
    ],
)
def test_the_first_fault_is_named(tags: list[str], scheme: str, word: int, what: str) -> None:
    fault = fault_in(tags, scheme)
    assert fault is not None
    assert fault.word == word
    assert fault.problem.startswith(what)


@pytest.mark.parametrize(
    ("tags", "ends"),
    [
        (["B-X", "E-X", "E-X"], [2, 3]),
        (["B-X", "E-X", "I-X"], [2, 3]),
        (["S-X", "I-X", "E-X"], [1, 3]),
        (["U-X", "L-X"], [1, 2]),
        (["I-X", "S-X", "O"], [1, 2]),
        (["B-X", "I-Y"], [1, 2]),
    ],
)
def test_where_spans_end_in_sequences_that_break_their_scheme(tags: list[str], ends: list[int]) -> None:
    assert [span.end for span in spans_of(tags)] == ends


def test_names_and_order() -> None:
    assert [named_scheme(name) for name in ("iob2", "IOB", "bioes", "IOBES")] == ["BIO", "IOB1", "BIOES", "BIOES"]
    with pytest.raises(OptionError, match=r"no tagging scheme 'bioe'. Did you mean 'BIO"):
        named_scheme("bioe")
    tags = ["I-b", "B-b", "O", "I-a", "B-a"]
    assert sorted_tags(tags, "BIO") == ("O", "B-a", "I-a", "B-b", "I-b")
    assert sorted_tags(["VERB", "O", "ADJ"], None) == ("ADJ", "O", "VERB")
    with pytest.raises(InputError, match=r"overlap"):
        tags_of([Span(0, 2, "X"), Span(1, 3, "Y")], 3)

"""Answers against SQuAD's two scripts: their published definition, written out here anew, and cases by hand."""

from __future__ import annotations

import random
import string

import pytest

from polyseme.errors import InputError
from polyseme.metrics.answer_match import answer_scores, best_threshold, normalize_answer, score_answer
from polyseme.metrics.task_metrics import measure
from polyseme.tasks.items import Answer

# --- the definition ---------------------------------------------------------------------------------------------------


def words(answer: str) -> list[str]:
    """Small letters; no punctuation; articles, as whole words, are blanks; what is between blanks is a word."""
    kept = "".join(character for character in answer.lower() if character not in string.punctuation)
    return [word for word in kept.split() if word not in ("a", "an", "the")]


def overlap(gold: list[str], predicted: list[str]) -> float:
    left = list(gold)
    shared = 0
    for word in predicted:
        if word in left:
            left.remove(word)
            shared += 1
    return 2 * shared / (len(gold) + len(predicted)) if shared else 0.0


def v1(golds: list[str], predicted: str) -> tuple[float, float]:
    return (
        max(float(words(gold) == words(predicted)) for gold in golds),
        max(overlap(words(gold), words(predicted)) for gold in golds),
    )


def v2(golds: list[str], predicted: str) -> tuple[float, float]:
    real = [gold for gold in golds if words(gold)] or [""]
    exact = max(float(words(gold) == words(predicted)) for gold in real)
    f1 = [
        overlap(words(gold), words(predicted))
        if words(gold) and words(predicted)
        else float(words(gold) == words(predicted))
        for gold in real
    ]
    return exact, max(f1)


def test_scores_equal_the_definition_on_generated_answers() -> None:
    draw = random.Random(3)
    parts = [
        "the",
        "a",
        "an",
        "The",
        "cat",
        "Cat,",
        "sat.",
        "U.S.",
        "--",
        "1,000",
        "don't",
        "café",
        "",
        "on the",
        "mat",
    ]
    for _ in range(4000):
        golds = [" ".join(draw.choices(parts, k=draw.randint(0, 4))) for _ in range(draw.randint(1, 3))]
        predicted = draw.choice([*golds, " ".join(draw.choices(parts, k=draw.randint(0, 4)))])
        assert tuple(score_answer(golds, predicted)) == pytest.approx(v1(golds, predicted))
        assert tuple(score_answer(golds, predicted, version="v2.0")) == pytest.approx(v2(golds, predicted))


# --- by hand ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "compared"),
    [
        ("The Cat.", "cat"),
        ("An  apple\ta day", "apple day"),
        ("theatre, another", "theatre another"),
        ("U.S.A.", "usa"),
        ("“quoted”", "“quoted”"),
        ("a-b", "ab"),
        ("the", ""),
    ],
)
def test_normalization(answer: str, compared: str) -> None:
    assert normalize_answer(answer) == compared


def test_the_best_gold_answer_counts_and_words_count_as_often_as_they_stand() -> None:
    assert score_answer([Answer(0, "Denver Broncos"), Answer(3, "Broncos")], "the Broncos!") == (1.0, 1.0)
    assert score_answer(["new york new york"], "new york") == (0.0, pytest.approx(2 / 3))
    assert score_answer(["cat"], "dog") == (0.0, 0.0)


def test_where_the_two_versions_differ() -> None:
    # a gold answer that is an article: v1.1 finds it equal and without a word in common
    assert score_answer(["a"], "the") == (1.0, 0.0)
    assert score_answer(["a"], "the", version="v2.0") == (1.0, 1.0)
    assert score_answer(["a", "cat"], "", version="v2.0") == (0.0, 0.0)
    assert score_answer([], "", version="v2.0") == (1.0, 1.0)
    assert score_answer([], "cat", version="v2.0") == (0.0, 0.0)
    with pytest.raises(InputError, match="no gold answer"):
        score_answer([], "cat")


def test_the_version_is_known_by_a_question_without_an_answer() -> None:
    gold = [(Answer(0, "a"),), (Answer(0, "cat"),)]
    assert answer_scores(gold, ["the", "cat"])[0] == (1.0, 0.0)
    assert answer_scores([*gold, ()], ["the", "cat", ""]) == [(1.0, 1.0)] * 3
    assert measure(["exact_match", "answer_f1"], [*gold, ()], ["", "a cat", ""]) == {
        "exact_match": 1.0,
        "answer_f1": 1.0,
    }


def test_the_threshold_is_the_best_of_all() -> None:
    draw = random.Random(1)
    for _ in range(200):
        n = draw.randint(1, 8)
        scores = [draw.choice([0.0, 0.5, 1.0]) for _ in range(n)]
        has = [draw.random() < 0.6 for _ in range(n)]
        scores = [score if there else 0.0 for score, there in zip(scores, has, strict=True)]
        doubts = [draw.random() for _ in range(n)]
        found = best_threshold(scores, has, doubts)
        means = [
            sum(
                (score if doubt <= bound else 0.0) if there else float(doubt > bound)
                for score, there, doubt in zip(scores, has, doubts, strict=True)
            )
            / n
            for bound in [0.0, *doubts]
        ]
        assert found.score == pytest.approx(max(means))
        assert means[[0.0, *doubts].index(found.value)] == pytest.approx(found.score)
    with pytest.raises(InputError, match="no questions"):
        best_threshold([], [], [])


@pytest.mark.parametrize("margins", [[-1.5, 2.0], [0.0, 0.5], [-3.0, -2.0], [0.1, 0.2]])
def test_where_every_answer_is_wrong_the_threshold_lets_none_through(margins: list[float]) -> None:
    """Also where doubts are differences of scores, which may be below 0."""
    best = best_threshold([0.0, 0.0], [False, False], margins)
    assert best.score == 1.0
    assert all(margin > best.value for margin in margins)

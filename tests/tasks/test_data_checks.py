"""What checked_data refuses beyond what the readers do, what was taken for what, and the baselines."""

from __future__ import annotations

from typing import Any

import pytest

from polyseme.errors import InputError
from polyseme.metrics.task_metrics import confusion
from polyseme.tasks.items import Answer, Item, TaskData
from polyseme.tasks.kinds import KINDS, baseline_scores
from polyseme.tasks.own_data import checked_data


def task(kind: str, *train: Item, metrics: tuple[str, ...] = ("accuracy",), **others: Any) -> TaskData:
    return TaskData(name="mine", kind=kind, splits={"train": train, "dev": train}, metrics=metrics, **others)


GOOD = (Item(text="a", gold="x", place="f, line 1"), Item(text="b", gold="y", place="f, line 2"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (task("classify", *GOOD, Item(text="c", place="f, line 3")), "f, line 3: there is no label"),
        (task("pair", Item(text="a", second=" ", gold="x", place="f, line 1")), "f, line 1: the second text is empty"),
        (task("span", Item(text="a", gold=(), place="f, line 1")), "f, line 1: the question is empty"),
        (
            task("span", Item(text="ab", second="q", gold=(Answer(1, "a"),), place="f, line 1")),
            "f, line 1: the answer .* does not occur in its passage",
        ),
        (
            task("choose", Item(text="q", choices=("a", "b"), gold=2, place="f, line 1")),
            "the answer is 2, and there are 2",
        ),
        (task("choose", Item(text="q", choices=("a",), gold=0, place="f, line 1")), "two choices or more. Got 1"),
        (task("tag", Item.of_words(["a", "b"], gold=("N",), place="f, line 1")), "there are 2 words and 1 tags"),
        (
            task("tag", Item.of_words(["a", "b"], gold=("O", "I-X"), place="f, line 1"), scheme="BIO"),
            "f, line 1: 'I-X' may not stand after 'O' in BIO, at word 2, 'b'",
        ),
        (task("tag", Item.of_words(["a", "b"], gold=("N", "N"), place="f, line 1")), "have the one label 'N'"),
        (
            task("pair", *(Item(text="a", second="b", gold=2.5, place="p") for _ in range(3)), regression=True),
            "All training items of mine have the score 2.5",
        ),
        (
            TaskData(name="mine", kind="choose", splits={"dev": GOOD}, metrics=()),
            "mine has no train split.* There are: dev",
        ),
    ],
)
def test_what_is_refused(given: TaskData, said: str) -> None:
    with pytest.raises(InputError, match=said):
        checked_data(given)


def test_what_is_not_refused() -> None:
    assert checked_data(task("classify", *GOOD)).notes == ()
    assert checked_data(task("classify", *GOOD, *GOOD, Item(text="c", gold="z"))).notes == ()
    unlabeled = TaskData(
        name="t", kind="classify", splits={"train": GOOD, "dev": GOOD, "test_unlabeled": [Item(text="x")]}, metrics=()
    )
    assert checked_data(unlabeled).notes == ()


def test_confusions_of_labels_and_tags() -> None:
    found = confusion(["a", "a", "b", "c"], ["a", "b", "b", "d"], labels=["b", "a", "c"])
    assert found.labels == ("b", "a", "c", "d")
    assert found.counts == ((1, 0, 0, 0), (1, 1, 0, 0), (0, 0, 0, 1), (0, 0, 0, 0))
    tags = confusion([("N", "V"), ("N",)], [("N", "N"), ("V",)])
    assert tags.counts == ((1, 1), (1, 0))


def test_the_baseline_of_each_kind() -> None:
    labels = [Item(text="t", gold=gold) for gold in ("b", "b", "a")]
    assert baseline_scores(task("classify", *labels))["accuracy"] == pytest.approx(2 / 3)
    scores = [Item(text="t", second="u", gold=gold) for gold in (1.0, 2.0)]
    assert baseline_scores(task("pair", *scores, regression=True, metrics=("pearson",))) == {"pearson": 0.0}
    words = [Item.of_words(["a", "b"], gold=("X", "Y")), Item.of_words(["a", "b"], gold=("X", "X"))]
    given = task("tag", *words, metrics=("word_accuracy",))
    assert baseline_scores(given)["word_accuracy"] == 0.75
    new = TaskData(
        name="t",
        kind="tag",
        splits={"train": words, "dev": [Item.of_words(["new", "b"], gold=("X", "Y"))]},
        metrics=("word_accuracy",),
    )
    assert baseline_scores(new)["word_accuracy"] == 0.5
    chosen = [Item(text="q", choices=("a", "b"), gold=gold) for gold in (1, 1, 0)]
    assert baseline_scores(task("choose", *chosen))["accuracy"] == pytest.approx(2 / 3)
    asked = [Item(text="p", second="q", gold=gold) for gold in ((), (Answer(0, "p"),))]
    assert baseline_scores(task("span", *asked, metrics=("exact_match",))) == {"exact_match": 0.5}
    several = [Item(text="t", gold=gold) for gold in (("a", "b"), ("a", "b"), ())]
    assert baseline_scores(task("classify", *several, multi=True, metrics=("micro_f1",)))["micro_f1"] == pytest.approx(
        8 / 10
    )


@pytest.mark.parametrize(
    ("kind", "settings", "name"),
    [
        ("classify", {}, "majority label"),
        ("classify", {"multi": True}, "most frequent set of labels"),
        ("pair", {"regression": True}, "mean"),
        ("tag", {}, "most frequent tag of each word"),
        ("choose", {}, "most frequent position"),
        ("span", {}, "no answer"),
    ],
)
def test_reports_call_the_baseline_by_what_it_answers(kind: str, settings: dict[str, bool], name: str) -> None:
    assert KINDS[kind].baseline_name(task(kind, **settings)) == name

"""Metrics against scikit-learn and scipy, and where they are not defined."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as theirs

from polyseme.errors import InputError, OptionError
from polyseme.metrics.task_metrics import measure, undefined


def draws(n_labels: int) -> list[tuple[list[str], list[str]]]:
    draw = random.Random(n_labels)
    labels = [str(label) for label in range(n_labels)]
    found = []
    for _ in range(60):
        n = draw.randint(1, 40)
        gold = draw.choices(labels, weights=range(1, n_labels + 1), k=n)
        found.append((gold, [draw.choice(labels) if draw.random() < 0.5 else label for label in gold]))
    return found


@pytest.mark.parametrize("n_labels", [2, 5])
def test_figures_of_labels_equal_scikit_learns(n_labels: int) -> None:
    for gold, predicted in draws(n_labels):
        found = measure(["accuracy", "macro_f1", "matthews"], gold, predicted)
        assert found["accuracy"] == pytest.approx(theirs.accuracy_score(gold, predicted))
        assert found["macro_f1"] == pytest.approx(theirs.f1_score(gold, predicted, average="macro", zero_division=0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert found["matthews"] == pytest.approx(theirs.matthews_corrcoef(gold, predicted))
        if n_labels == 2:
            positive = theirs.f1_score(gold, predicted, pos_label="1", labels=["0", "1"], zero_division=0)
            assert measure(["f1"], gold, predicted, labels=["0", "1"])["f1"] == pytest.approx(positive)


def test_the_positive_label_is_the_last_or_the_greater_one() -> None:
    gold, predicted = ["neg", "pos", "pos"], ["pos", "pos", "neg"]
    assert measure(["f1"], gold, predicted)["f1"] == 0.5
    assert measure(["f1"], gold, predicted, labels=["pos", "neg"])["f1"] == 0.0
    assert measure(["f1"], [0, 1, 1], [1, 1, 0])["f1"] == 0.5
    with pytest.raises(OptionError, match=r"there are 3. Take macro_f1"):
        measure(["f1"], ["a", "b", "c"], ["a", "b", "c"])


def test_figures_of_several_labels_equal_scikit_learns() -> None:
    draw = random.Random(2)
    labels = ["a", "b", "c", "d"]
    for _ in range(40):
        gold = [tuple(label for label in labels if draw.random() < 0.4) for _ in range(12)]
        predicted = [tuple(label for label in labels if draw.random() < 0.4) for _ in range(12)]
        matrices = [np.array([[label in each for label in labels] for each in side]) for side in (gold, predicted)]
        found = measure(["micro_f1", "multi_macro_f1", "accuracy"], gold, predicted, labels=labels)
        assert found["micro_f1"] == pytest.approx(theirs.f1_score(*matrices, average="micro", zero_division=0))
        assert found["multi_macro_f1"] == pytest.approx(theirs.f1_score(*matrices, average="macro", zero_division=0))
        assert found["accuracy"] == pytest.approx(theirs.accuracy_score(*matrices))
    assert measure(["accuracy"], [("a", "b")], [("b", "a")])["accuracy"] == 1


def test_labels_beyond_those_that_are_named_count_as_wrong() -> None:
    gold, predicted = [("a",), ("b", "odd"), ("odd",)], [("a",), ("b",), ()]
    found = measure(["micro_f1", "multi_macro_f1"], gold, predicted, labels=["a", "b"])
    assert found == {"micro_f1": pytest.approx(4 / 6), "multi_macro_f1": pytest.approx(2 / 3)}
    gold, predicted = ["a", "b", "odd"], ["a", "b", "b"]
    found = measure(["accuracy", "f1", "macro_f1"], gold, predicted, labels=["a", "b"])
    assert found == {name: pytest.approx(2 / 3) for name in found} | {"macro_f1": pytest.approx((1 + 2 / 3) / 3)}


def test_correlations_equal_scipys_with_ties_and_without() -> None:
    draw = np.random.default_rng(0)
    for n in (2, 3, 10, 200):
        for round_to in (0, 6):
            for _ in range(10):
                gold, predicted = draw.normal(size=n).round(round_to), draw.normal(size=n).round(round_to)
                if len(set(gold)) == 1 or len(set(predicted)) == 1:
                    continue
                found = measure(["pearson", "spearman"], gold.tolist(), predicted.tolist())
                assert found["pearson"] == pytest.approx(stats.pearsonr(gold, predicted).statistic, abs=1e-12)
                assert found["spearman"] == pytest.approx(stats.spearmanr(gold, predicted).statistic, abs=1e-12)


@pytest.mark.parametrize("size", [1e200, 1e-200, 1e160])
def test_numbers_whose_squares_are_none(size: float) -> None:
    found = measure(["pearson"], [size, 2 * size, 5 * size], [1.0, 2.0, 3.0])
    assert found["pearson"] == pytest.approx(stats.pearsonr([1.0, 2.0, 5.0], [1.0, 2.0, 3.0]).statistic, abs=1e-12)


def test_what_is_not_defined_is_0_and_said() -> None:
    names = ["pearson", "spearman"]
    assert measure(names, [1.0, 2.0, 3.0], [0.1, 0.1, 0.1]) == {"pearson": 0.0, "spearman": 0.0}
    assert measure(names, [1.0], [2.0]) == {"pearson": 0.0, "spearman": 0.0}
    assert undefined(names, [1.0, 2.0], [0.1, 0.1]) == (
        "All predictions are the same, so that pearson is not defined and is given as 0.",
        "All predictions are the same, so that spearman is not defined and is given as 0.",
    )
    assert measure(["matthews"], ["0", "1"], ["1", "1"]) == {"matthews": 0.0}
    assert len(undefined(["matthews", "accuracy"], ["0", "1"], ["1", "1"])) == 1
    assert undefined(names, [1.0, 2.0], [2.0, 1.0]) == ()
    # the same number with the noise of its mean taken off must not become a correlation of rounding errors
    assert measure(names, [0.3, 0.7, 0.9], [0.1 + 0.2] * 3) == {"pearson": 0.0, "spearman": 0.0}


def test_tags() -> None:
    gold, predicted = [("N", "V"), ("N",)], [("N", "N"), ("N",)]
    assert measure(["word_accuracy"], gold, predicted)["word_accuracy"] == pytest.approx(2 / 3)
    spans = measure(["span_f1", "span_precision", "span_recall"], [["B-X", "O"]], [["B-X", "B-X"]])
    assert spans == {"span_f1": pytest.approx(2 / 3), "span_precision": 0.5, "span_recall": 1.0}


@pytest.mark.parametrize(
    ("names", "gold", "predicted", "error", "said"),
    [
        (["acuracy"], ["a"], ["a"], OptionError, "no metric 'acuracy'. Did you mean 'accuracy'"),
        (["accuracy"], ["a"], [], InputError, "1 gold answers and 0 predictions"),
        (["accuracy"], [], [], InputError, "nothing to measure"),
        (["pearson"], [1.0, 2.0], [1.0, float("nan")], InputError, "Item 2 of those measured is nan"),
        (["word_accuracy"], [("a", "b")], [("a",)], InputError, "2 gold tags and 1 predicted"),
    ],
)
def test_what_cannot_be_measured(names: list[str], gold: list, predicted: list, error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        measure(names, gold, predicted)


def test_a_label_alone_is_one_label_where_items_may_have_several() -> None:
    names = ["micro_f1", "multi_macro_f1"]
    gold, predicted = ["pos", "neg", "mixed"], ["pos", "pos", "mixed"]
    assert measure(names, gold, predicted) == measure(names, [(one,) for one in gold], [(one,) for one in predicted])
    assert measure(["micro_f1"], gold, predicted)["micro_f1"] == pytest.approx(2 / 3)
    assert measure(["micro_f1"], ["ab"], ["ba"]) == {"micro_f1": 0.0}

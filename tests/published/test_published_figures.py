"""The published figures: each names its paper and split, by tasks and metrics that there are."""

from __future__ import annotations

import pytest

from polyseme.datasets.named_benchmarks import BENCHMARKS
from polyseme.metrics.task_metrics import METRICS
from polyseme.published import beside, mean_over, published

FIVE = (("cola", "matthews"), ("sst2", "accuracy"), ("mrpc", "f1"), ("stsb", "spearman"), ("rte", "accuracy"))


def test_every_row_is_of_a_known_task_metric_and_split() -> None:
    rows = published()
    assert {row.task for row in rows} <= {*BENCHMARKS, "glue", "coref"}
    assert {row.metric for row in rows} <= {*METRICS, "average"}
    assert {row.split for row in rows} == {"dev", "test", "test_mismatched"}
    assert all(row.paper and row.where and 0 < row.value < 100 for row in rows)
    assert all(row.table is not None or row.unconfirmed == "table" for row in rows)
    keys = [(row.model, row.task, row.metric, row.split, row.source) for row in rows]
    assert len(set(keys)) == len(keys)


def test_what_is_unconfirmed_says_so() -> None:
    doubtful = [row for row in published() if row.unconfirmed]
    assert {row.unconfirmed for row in doubtful} <= {"table", "split", "value"}
    assert all(row.source.endswith(f"({row.unconfirmed} unconfirmed)") for row in doubtful)
    assert not [row for row in doubtful if row.paper.startswith("Devlin")]


@pytest.mark.parametrize(("model", "mean"), [("ELMo", 68.3), ("GPT", 71.0), ("BERT-base", 77.3)])
def test_the_means_over_five_tasks(model: str, mean: float) -> None:
    found = mean_over(model, FIVE)
    assert found is not None
    assert round(found, 1) == mean
    assert mean_over(model, FIVE, split="dev") is None


def test_rows_beside_a_figure_are_of_one_split_or_say_theirs() -> None:
    assert [(row.model, row.value) for row in beside("sst2", "accuracy", split="test")] == [
        ("ELMo", 90.4),
        ("GPT", 91.3),
        ("BERT-base", 93.5),
        ("BERT-large", 94.9),
    ]
    both = beside("sst2", "accuracy")
    assert {row.split for row in both} == {"dev", "test"}
    assert both[0].source == "Devlin et al. 2019, Table 1"

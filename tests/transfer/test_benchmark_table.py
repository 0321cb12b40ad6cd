"""The table of a suite: the mean over some tasks, how far it varies from seed to seed, and what a strategy gains."""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

import pytest

from polyseme.datasets.named_benchmarks import BENCHMARKS
from polyseme.datasets.suites import SUITES
from polyseme.training.energy_ledger import Ledger
from polyseme.transfer.benchmark_table import BenchmarkReport, TaskResult
from polyseme.transfer.finetune_report import FinetuneReport
from polyseme.transfer.seed_results import SeedFigures

LEDGER = Ledger(
    pieces=1, flops=1.0, seconds=1.0, steps=1, device="cpu", device_seconds=1.0, kwh=0.0, kg_co2e=0.0, price=0.0
)


GLUE = SUITES["glue"].mean_over


def counted(task: str) -> str:
    return BENCHMARKS[task].metrics[0]


def report(task: str, figures: dict[int, float], mixes: dict[int, list[float]] | None = None) -> FinetuneReport:
    def mix_of(seed: int) -> dict[str, Any] | None:
        return mixes and {"gamma": 1.0, "shares": dict(zip("012", mixes[seed], strict=True))}

    seeds = tuple(
        SeedFigures(
            seed=seed, dev={counted(task): value}, best_step=1, n_steps=1, curve=(), learned=True, mix=mix_of(seed)
        )
        for seed, value in figures.items()
    )
    return FinetuneReport(
        task=task,
        kind="classify",
        model="m",
        mode="tuned",
        metrics=(counted(task),),
        seeds=seeds,
        best_seed=0,
        baseline={},
        sizes={},
        ledger=LEDGER,
    )


def table_of(figures: dict[str, dict[int, float]]) -> BenchmarkReport:
    results = {task: {"": TaskResult.of_fit(report(task, each))} for task, each in figures.items()}
    return BenchmarkReport(suite="glue", model="m", results=results)


def test_the_mean_and_its_spread_over_seeds() -> None:
    figures = {task: {seed: (10 * number + seed**2) / 100 for seed in range(3)} for number, task in enumerate(GLUE)}
    table = table_of(figures)
    by_seed = [fmean(figures[task][seed] for task in GLUE) for seed in range(3)]
    assert table.mean() == pytest.approx(fmean(figures[task][1] for task in GLUE)), "of the medians"
    means = table.seed_means()
    assert means is not None
    assert (means.lowest, means.highest) == pytest.approx((min(by_seed), max(by_seed)))
    assert means.spread == pytest.approx(stdev(by_seed))
    row = dict(zip(table.columns, table.rows()[-1], strict=True))
    assert row["task"] == "mean of cola, sst2, mrpc, stsb, rte"
    assert [row[name] for name in ("tuned (dev, median)", "lowest", "highest", "spread")] == [
        "21.0",
        "20.0",
        "24.0",
        "2.1",
    ]
    assert table.to_json()["seed_means"]["spread"] == pytest.approx(stdev(by_seed))


def test_the_mean_is_over_what_was_run() -> None:
    table = table_of({"rte": {0: 0.5}, "cola": {0: 0.3}, "wnli": {0: 0.9}})
    assert table.mean() == pytest.approx(0.4)
    assert table.rows()[-1][0] == "mean of cola, rte"
    assert table.rows()[-1][-1] == f"{(52.1 + 66.4) / 2:.1f}", "BERT's, over the same tasks"
    assert any("without sst2, mrpc, stsb" in line for line in table.lines())


def test_one_task_has_no_mean() -> None:
    table = table_of({"rte": {0: 0.5, 1: 0.7}})
    assert table.mean() is None
    assert table.seed_means() is None
    [row] = table.rows()
    assert row[2:6] == ("60.0", "50.0", "70.0", "14.1")


def test_seeds_that_a_task_lacks_are_left_out_of_the_range() -> None:
    figures = {task: {0: 0.1, 1: 0.6, 3: 0.5} for task in GLUE} | {"rte": {1: 0.7, 2: 0.9, 3: 0.5}}
    means = table_of(figures).seed_means()
    assert means is not None
    assert (means.lowest, means.highest) == pytest.approx((0.5, fmean([0.6, 0.6, 0.6, 0.6, 0.7])))


def test_one_seed_has_no_spread() -> None:
    table = table_of({"rte": {0: 0.5}, "cola": {0: 0.3}})
    places = [table.columns.index(name) for name in ("lowest", "highest", "spread")]
    assert [[row[place] for place in places] for row in table.rows()] == [
        ["30.0", "30.0", ""],
        ["50.0", "50.0", ""],
        ["", "", ""],
    ]
    assert table.seed_means() is None
    compared = compared_table(1)
    assert compared.to_json()["gains"]["snli"]["+ vectors"]["spread"] is None
    spreads = [number for number, name in enumerate(compared.columns) if name.endswith("spread")]
    assert {row[number] for row in compared.rows() for number in spreads} == {""}


def compared_table(n_seeds: int) -> BenchmarkReport:
    """ELMo's six tasks, with an increase of 10 points and, of several seeds, a spread."""
    suite = SUITES["elmo-six"]
    results = {
        task.name: {
            strategy.name: TaskResult.of_fit(report(task.name, {s: 0.5 + 0.1 * n + s / 100 for s in range(n_seeds)}))
            for n, strategy in enumerate(suite.strategies)
        }
        for task in suite.tasks
    }
    return BenchmarkReport(suite="elmo-six", model="m", results=results)


def test_a_page_has_spreads_beside_their_figures() -> None:
    page = compared_table(3).page()
    assert "<th>+ vectors (median)\u00a0± spread</th>" in page
    assert "<td>61.0\u00a0±\u00a01.0</td>" in page
    assert "<td>+10.0\u00a0±\u00a00.0</td>" in page
    assert "failed</th>" not in page, "none did"
    assert "mean of 6 tasks" in page
    of_one = compared_table(1).page()
    assert "±" not in of_one
    assert "spread</th>" not in of_one, "one seed has none"


def test_layers_of_learned_mixes_are_compared_task_by_task() -> None:
    assert compared_table(1).layer_shares() == {}
    assert "share of each layer" not in compared_table(1).page()
    mixes = {0: [0.2, 0.7, 0.1], 1: [0.4, 0.5, 0.1]}
    table = compared_table(2)
    fitted = TaskResult.of_fit(report("snli", {0: 0.5, 1: 0.6}, mixes))
    results = {**table.results, "snli": {**table.results["snli"], "+ vectors": fitted}}
    table = BenchmarkReport(suite="elmo-six", model="m", results=results)
    assert table.layer_shares()["snli"] == pytest.approx({"0": 0.3, "1": 0.6, "2": 0.1})
    assert table.to_json()["layer_shares"]["snli"]["1"] == pytest.approx(0.6)
    page = table.page()
    assert "<th>layer 2</th>" in page
    assert ">60%</td>" in page

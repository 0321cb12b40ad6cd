"""A run that is killed ends as if it had never stopped: losses and weights bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forked import run_forked
from polyseme.objectives.objective_table import OBJECTIVES
from polyseme.recipes.recipe_table import get_recipe
from training.kills import N_STEPS, RUNS

OTHERS = (
    *("causal", "bands", "next", "order", "doc-sentences", "replaced", "permuted", "segments", "denoising"),
    *("spans", "translation", "two-way", "skip-gram", "cbow", "glove", "copied", "boundary", "joined"),
    *("distilled", "distilled-causal"),
)
"""Objectives but the masked one, which is killed most, and that of two halves, which carries a memory; `next`, `order`
and `doc-sentences` are the masked one over other rows, `copied` ELECTRA's with a model that predicts every piece,
`boundary` SpanBERT's, `joined` XLM's."""


def killed(folder: Path, **counts: int) -> dict[str, Any]:
    """Kill so many runs of each kind and resume them."""
    done = run_forked("from training.kills import main; main()", str(folder), json.dumps(counts))
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_objective_is_killed() -> None:
    objectives = {get_recipe(run["recipe"]).objective for run in RUNS.values() if "layers" not in run}
    assert objectives | {"distilled", "distilled-causal"} == OBJECTIVES.keys()
    assert set(OTHERS) == RUNS.keys() - {"usual", "compiled", "carried"}


def test_a_kill_of_each_kind(tmp_path: Path) -> None:
    """In a step, in the writing of a checkpoint, in the building of shards, and of a run that carries a memory."""
    found = killed(tmp_path, step=1, checkpoint=1, shards=1, carried=1)
    assert found["wrong"] == []
    assert found["killed"] == 4
    assert found["steps"] == N_STEPS


@pytest.mark.slow
def test_a_few_kills(tmp_path: Path) -> None:
    found = killed(tmp_path, step=2, checkpoint=2, shards=2)
    assert found["wrong"] == []
    assert found["killed"] >= 5
    assert found["steps"] == N_STEPS


@pytest.mark.slow
def test_a_few_kills_of_a_run_that_carries_a_memory(tmp_path: Path) -> None:
    found = killed(tmp_path, **{"carried": 2, "carried checkpoint": 1})
    assert found["wrong"] == []
    assert found["killed"] >= 2
    assert found["steps"] == N_STEPS


@pytest.mark.slow
def test_a_kill_of_every_other_objective(tmp_path: Path) -> None:
    found = killed(tmp_path, **dict.fromkeys(OTHERS, 1))
    assert found["wrong"] == []
    assert found["killed"] == len(OTHERS)
    assert found["steps"] == N_STEPS


@pytest.mark.slow
@pytest.mark.parametrize("sort", OTHERS)
def test_thirty_kills_of_every_other_objective(sort: str, tmp_path: Path) -> None:
    found = killed(tmp_path, **{sort: 20, f"{sort} checkpoint": 10})
    assert found["wrong"] == []
    assert found["killed"] >= 29


@pytest.mark.slow
def test_thirty_kills_of_a_run_that_carries_a_memory(tmp_path: Path) -> None:
    found = killed(tmp_path, **{"carried": 20, "carried checkpoint": 10})
    assert found["wrong"] == []
    assert found["killed"] >= 29


@pytest.mark.slow
def test_fifty_kills_and_three_compiled(tmp_path: Path) -> None:
    found = killed(tmp_path, step=20, checkpoint=15, shards=15, compiled=3)
    assert found["wrong"] == []
    assert found["killed"] >= 50

"""The script of the objectives' ablations: its rows can be trained, and its table says what its rules decide."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from polyseme.recipes.pretraining_request import PretrainingRequest
from polyseme.recipes.recipe_table import RECIPES
from polyseme.sweeps.sweep_report import Figure, RunResult, Sweep
from polyseme.training.budget import parse_budget
from polyseme.verb_options.pretraining_options import PretrainOptions

SCRIPT = "objective_ablations"


def test_every_row_is_a_job_of_one_size(script: Any) -> None:
    named = {name for claim in script.CLAIMS for name in claim[:2]}
    assert named == script.ROWS.keys()
    for row in script.ROWS.values():
        settings = dict(row)
        recipe = RECIPES[settings.pop("recipe")]
        settings.pop("micro_batch_size", None)
        shape = {**script.SIZE, **({"embedding_width": None} if "set.embedding_width" in settings else {})}
        settings.pop("set.embedding_width", None)
        request = PretrainingRequest(
            recipe=recipe,
            budget=parse_budget("10steps"),
            device="cpu",
            start=None,
            shape=recipe.shaped(shape),
            objective=settings,
            options=PretrainOptions().values(),
            reporting={},
        )
        job = request.plan(1000, None)
        sizes = [job.encoder[name] for name in ("n_layers", "width", "embedding_width")]
        assert sizes == [12, 256, None]
        assert settings.items() <= job.objective.items()


def test_the_table_says_what_is_decided(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"ELECTRA": (0.80, 0.82), "BERT": (0.70, 0.71), "ELECTRA 15%": (0.79, 0.83), "All-Tokens MLM": (0.9, 0.9)}
    runs = [
        RunResult(
            name=f"{row},seed={seed}",
            settings={"row": row},
            seed=seed,
            folder="",
            state="finished",
            figures={script.MEAN: Figure(value=value, unit="share", error=0.01)},
        )
        for row, values in scores.items()
        for seed, value in enumerate(values)
    ]
    parts = {each.name: {"loss": 3.0, "masked": 2.0 + each.seed} for each in runs}
    sweep = Sweep(verb="pretrain", title="pretrain over row", runs=tuple(runs)).to_json()
    record = {"budget": "1e16flops", "machine": "one", "parts": parts, "sweep": sweep}
    (tmp_path / "results.json").write_text(json.dumps(record))
    page = tmp_path / "page.md"
    page.write_text(script.PAGE.read_text())
    arguments = ["script", "table", "--results", str(tmp_path / "results.json"), "--docs", str(page)]
    for _ in range(2):  # a second time it replaces what it wrote
        monkeypatch.setattr(sys, "argv", arguments)
        script.main()
    lines = page.read_text().splitlines()
    assert sum(line.startswith("| ELECTRA | 2 | masked 2.500 | 81.0 ± 1.4 |") for line in lines) == 1
    decided = {
        line.split(" | ")[0].strip("| "): line.split(" | ")[-1].strip("| ")
        for line in lines
        if line.startswith("| ") and " above " in line
    }
    assert decided == {
        "ELECTRA above BERT": "holds",
        "ELECTRA above ELECTRA 15%": "not decided",
        "All-Tokens MLM above BERT": "holds",
        "ELECTRA above All-Tokens MLM": "the opposite holds",
    }

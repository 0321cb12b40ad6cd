"""The script of the input formats: its rows can be trained, its claims follow the rules, its table fills the page."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from polyseme.objectives.objective_table import objective_from
from polyseme.sweeps.sweep_report import Figure, RunResult, Sweep

ROOT = Path(__file__).parents[2]
SCRIPT = "input_formats"


def sweep_of(script: Any, scores: dict[str, float], error: float = 0.01) -> Sweep:
    """Two seeds of each row, half a point apart, with one task."""
    runs = [
        RunResult(
            name=f"{row}-{seed}",
            settings={"row": row},
            seed=seed,
            folder="",
            state="finished",
            figures={
                "held-out loss": Figure(value=3.0, unit="nats"),
                "rte accuracy on dev": Figure(value=score + 0.005 * seed, unit="share", error=error),
            },
        )
        for row, score in scores.items()
        for seed in (0, 1)
    ]
    return Sweep(verb="pretrain", title="formats", runs=tuple(runs))


def test_every_row_is_a_setting_of_the_objective(script: Any) -> None:
    assert len({objective_from("masked", settings) for settings in script.ROWS.values()}) == len(script.ROWS)
    assert {row for claim in script.CLAIMS for row in (claim.first, claim.second)} <= script.ROWS.keys()


def test_claims_follow_the_rules(script: Any) -> None:
    scores = dict.fromkeys(script.ROWS, 0.6) | {"segment-pair, next sentence": 0.7, "doc-sentences": 0.5}
    holds = [line[2] for line in script.verdicts(script.with_mean(sweep_of(script, scores)))]
    assert holds == ["yes", "yes", "no: it is worse", "no: it is worse", "the opposite"]
    near = dict.fromkeys(script.ROWS, 0.6) | {"segment-pair, next sentence": 0.61}
    holds = [line[2] for line in script.verdicts(script.with_mean(sweep_of(script, near)))]
    assert holds == ["no difference shown", "no difference shown", "yes", "yes", "no difference shown"]
    of_one = sweep_of(script, {"segment-pair": 0.6})
    assert {line[2] for line in script.verdicts(script.with_mean(of_one))} == {"not measured"}


def test_the_table_fills_the_page(script: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs" / "input_formats.md").read_text(encoding="utf-8"), encoding="utf-8")
    sweep = sweep_of(script, dict.fromkeys(script.ROWS, 0.6))
    text = script.markdown(sweep)
    for _ in range(2):
        script.fill_page(page, script.MARKS, text)
    filled = page.read_text(encoding="utf-8")
    assert filled.count("| doc-sentences | 3.000 ± 0.000 |") == 1
    assert "Not measured yet" not in filled
    missing = dataclasses.replace(sweep.runs[0], figures={})
    assert "packed rows" in script.markdown(dataclasses.replace(sweep, runs=(missing, *sweep.runs[1:])))

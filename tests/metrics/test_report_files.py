"""Reports as files, whatever they measure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from polyseme.files.result_formats import write_result
from polyseme.metrics.evaluation_report import Line, Report
from polyseme.metrics.report_files import FORMATS
from polyseme.metrics.task_metrics import METRICS


def report_of(figures: Mapping[str, float | None], **settings: object) -> Report:
    columns = {name: METRICS[name].description if name in METRICS else name for name in figures}
    line = Line("all", "all", 20, figures)
    return Report(columns=columns, lines=[line], evaluation="names", model="tagger", method="by a head", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("figures", [{"span_f1": 0.613, "word_accuracy": 0.9}, {"spearman": -0.2, "pearson": 0.1}])
def test_every_metric_is_written_in_every_format(figures: Mapping[str, float], ending: str, tmp_path: Path) -> None:
    write_result(report_of(figures, items=[{"text": "a"}]), tmp_path / f"report{ending}", FORMATS)
    assert (tmp_path / f"report{ending}").stat().st_size > 10


def test_a_picture_names_the_figure_that_its_bars_show(tmp_path: Path) -> None:
    write_result(report_of({"span_f1": 0.613, "word_accuracy": 0.9}), tmp_path / "a.svg", FORMATS)
    picture = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "span f1: all 61.3; scored by a head" in picture
    write_result(report_of({"accuracy": 0.5, "low": 0.4, "high": 0.6}), tmp_path / "b.svg", FORMATS)
    picture = (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert "accuracy: all 50.0; lines are intervals of 95%; scored by a head" in picture

"""The page of a finetuning: says what it was given, leaves out what it was not, and runs nothing."""

from __future__ import annotations

import dataclasses
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plots.test_pages import HOSTILE, Page, check_policy
from polyseme.plots.charts import Curve, Dot, dots_chart, lines_chart, log_ticks
from polyseme.plots.confusion_matrix import MOST_LABELS, confusion_table
from polyseme.plots.finetune_page import Curves, MixWeights, SeedScores, TaskError, TaskPage, task_page
from polyseme.types import Confusion
from text.samples import texts


def shown(text: str = "x") -> TaskPage:
    """Every section, with a text wherever one may stand."""
    return TaskPage(
        title=text,
        lead=text,
        scores=[
            SeedScores(
                metric=text, split=text, values={f"{text} 0": 0.5, "1": 0.75, "2": 0.25}, failed=["2"], note=text
            )
        ],
        curves=[Curves(heading=text, x=text, y=text, curves=[Curve(text, [(0, 1), (1, 2)]), Curve("b", [(0, 3)])])],
        confusion=Confusion((text, "other"), ((3, 1), (0, 2))),
        mix=MixWeights(layers=(text, "top"), shares=((0.25, 0.75), (0.35, 0.65)), gammas=(1.0, 1.1)),
        errors=[
            TaskError(gold=text, predicted=text, text=text, second=text, probability=0.9, place=text),
            TaskError(gold=text, predicted=text, words=[(text, text, "O"), (text, text, text)]),
        ],
        n_errors=7,
        settings={f"{text} 0": text, "nested": {"a": [text]}},
        cost={text: 1.5},
        notes=[text],
    )


def said(html: str) -> str:
    return " ".join("".join(Page(html).text).split())


@pytest.mark.parametrize("text", [*HOSTILE, '"><img src=x onerror=alert(1)>', "</title></svg></table></dl>"])
def test_hostile_text_is_only_text(text: str) -> None:
    plain, found = check_policy(task_page(shown())), check_policy(task_page(shown(text)))
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in plain.elements]
    assert [set(each) for _, each in found.elements] == [set(each) for _, each in plain.elements]
    assert found.scripts == {}


@given(texts)
def test_any_text_makes_a_page(text: str) -> None:
    assert [tag for tag, _ in check_policy(task_page(shown(text or "x"))).elements] == [
        tag for tag, _ in Page(task_page(shown())).elements
    ]


def test_scores_have_median_spread_best_and_failures() -> None:
    values = {"0": 0.7, "1": 0.72, "2": 0.74, "3": 0.3, "4": None}
    scores = SeedScores(metric="accuracy", split="dev", values=values, failed=["3"], baseline=0.33)
    named = dataclasses.replace(scores, baseline_name="majority label")
    assert "; baseline (majority label) 33.0" in said(task_page(TaskPage(title="t", scores=[named])))
    text = said(task_page(TaskPage(title="t", scores=[scores])))
    assert "accuracy on dev 71.0 median of 4 seeds; from 30.0 to 74.0 (best)" in text.replace("dev71.0", "dev 71.0")
    assert "1 failed to learn" in text
    assert "1 not scored" in text
    assert "; baseline 33.0" in text


def test_what_was_not_given_has_no_section() -> None:
    found = Page(task_page(TaskPage(title="t")))
    assert [tag for tag, _ in found.elements if tag in ("section", "h2", "svg", "table")] == []
    headings = said(task_page(shown()))
    for heading in ("Scores", "Learning", "Shares of the layers", "Confusions", "Worst errors (2 of 7)", "Settings"):
        assert heading in headings


def test_errors_show_the_words_that_are_wrong() -> None:
    error = TaskError(gold="a", predicted="b", words=[("New", "B", "B"), ("York", "I", "O")])
    found = Page(task_page(TaskPage(title="t", errors=[error])))
    marks = [each.get("class") for tag, each in found.elements if tag == "small"]
    assert marks == [None, "wrong", "right"]


def test_shares_are_drawn_as_wide_as_they_are() -> None:
    found = Page(task_page(TaskPage(title="t", mix=MixWeights(layers=("0", "1"), shares=((0.2, 0.8),)))))
    widths = [str(each["style"]).split(";")[0] for tag, each in found.elements if tag == "i"]
    assert widths == ["width:20.0%", "width:80.0%"]


def test_confusions_are_counted_with_precision_and_recall() -> None:
    text = said(confusion_table(Confusion(("a", "b"), ((3, 1), (0, 0)))))
    assert "a3175.0" in text.replace(" ", "")
    assert "precision100.00.0" in text.replace(" ", "")
    assert confusion_table(Confusion(("a",), ((0,),))) == ""


def test_of_many_labels_the_least_confused_stand_together() -> None:
    n = MOST_LABELS + 10
    counts = [[5 if at == other else int(at < 5 and other == at + 1) for other in range(n)] for at in range(n)]
    found = Page(confusion_table(Confusion([f"l{at}" for at in range(n)], counts)))
    rows = [tag for tag, _ in found.elements if tag == "tr"]
    assert len(rows) == MOST_LABELS + 2
    text = "".join(found.text)
    assert "The 11 labels that are confused least" in text
    assert str(5 * 11) in text
    assert all(f"l{at}" in text for at in range(6))


def test_what_is_not_finite_is_not_drawn() -> None:
    assert lines_chart([Curve("a", [(0, math.nan), (1, math.inf)])], x="x", y="y") == ""
    assert "nan" not in lines_chart([Curve("a", [(0, math.nan), (1, 2.0), (2, 2.0)])], x="x", y="y")


def test_error_bars_stay_inside_the_chart() -> None:
    chart = lines_chart([Curve("a", [(0, 0.5), (1, 0.6)], errors=[0.1, 0.9])], x="x", y="y")
    bars = [(float(low), float(high)) for low, high in re.findall(r"M[0-9.]+ ([0-9.-]+)V([0-9.-]+)", chart)]
    assert len(bars) == 2
    assert all(26 <= end <= 212 for bar in bars for end in bar)
    assert dots_chart([Dot("a", math.nan)], median=None, label="x") == ""


@given(st.lists(st.tuples(*[st.floats(-1e12, 1e12)] * 2), min_size=1, max_size=20))
def test_any_numbers_are_drawn_within_the_picture(points: list[tuple[float, float]]) -> None:
    found = Page(lines_chart([Curve("a", points)], x="x", y="y"))
    _, _, width, height = map(float, str(found.elements[0][1]["viewbox"]).split())
    for tag, each in found.elements:
        if tag == "circle":
            assert 0 <= float(str(each["cx"])) <= width
            assert 0 <= float(str(each["cy"])) <= height


@pytest.mark.parametrize("draw", [lambda values: [Dot(str(at), value) for at, value in enumerate(values)]])
def test_dots_do_not_hide_one_another(draw: Callable[[list[float]], Any]) -> None:
    found = Page(dots_chart(draw([71.0, 71.0, 71.001, 80.0]), median=71.0, label="x"))
    places = [(each["cx"], each["cy"]) for tag, each in found.elements if tag == "circle"]
    assert len(set(places)) == 4


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
def test_a_browser_runs_nothing(tmp_path: Path) -> None:
    """Whatever ran would take the place of the title."""
    hostile = "</style></svg><img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
    path = tmp_path / "page.html"
    path.write_text(task_page(shown(hostile)), encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--dump-dom", f"--user-data-dir={tmp_path}", path.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "<title>run</title>" not in dom
    assert "Worst errors" in dom


def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios() -> None:
    found = Page(lines_chart([Curve("a", [(0, 1.0), (1e6, 1.0), (1e7, 2.0), (1e8, 3.0)])], x="words", y="y", log=True))
    places = [float(str(each["cx"])) for tag, each in found.elements if tag == "circle"]
    assert len(places) == 3, "0 has no logarithm"
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2)
    assert {"1M", "10M", "100M"} <= set(found.text)


@pytest.mark.parametrize(
    ("low", "high", "labels"), [(3, 40, "5 10 20"), (1e3, 1e12, "1k 10k 100k 1M 10M 100M 1B 10B 100B 1000B")]
)
def test_ticks_of_a_logarithmic_axis(low: float, high: float, labels: str) -> None:
    assert " ".join(label for _, label in log_ticks(low, high)) == labels

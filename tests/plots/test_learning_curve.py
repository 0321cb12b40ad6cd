"""The learning curve of a run: well-formed whatever it is given, and few points however long the run."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.plots.learning_curve import learning_curve

SPACE = "{http://www.w3.org/2000/svg}"
numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)
points = st.lists(st.tuples(st.integers(0, 10**12), numbers), max_size=20)


@given(points, points, st.none() | st.floats(0, 20), st.text(max_size=20))
def test_any_points_make_a_picture(
    training: list[tuple[float, float]], held_out: list[tuple[float, float]], entropy: float | None, title: str
) -> None:
    picture = ElementTree.fromstring(learning_curve(training, held_out, unigram_entropy=entropy, title=title))
    finite = [point for point in held_out if math.isfinite(point[1])]
    assert len(list(picture.iter(f"{SPACE}circle"))) == len(finite)
    assert all("nan" not in each.get("d", "") for each in picture.iter(f"{SPACE}path"))


def test_points_are_where_they_should_be() -> None:
    picture = ElementTree.fromstring(
        learning_curve([], [(1e6, 4.0), (2e6, 3.0), (4e6, 2.0)], unigram_entropy=None, title="run")
    )
    places = [(float(each.get("cx", 0)), float(each.get("cy", 0))) for each in picture.iter(f"{SPACE}circle")]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x2 - x1 == pytest.approx(2 * (x1 - x0), abs=0.2)
    assert y2 - y1 == pytest.approx(y1 - y0, abs=0.2)
    assert y0 < y1 < y2, "lower losses are lower"
    assert {"1M", "2M", "3M", "4M"} <= {each.text for each in picture.iter(f"{SPACE}text")}


def test_a_long_run_is_drawn_with_few_points_and_all_of_it() -> None:
    training = [(float(step), 5.0 if step % 2 else 3.0) for step in range(100_000)]
    picture = ElementTree.fromstring(learning_curve(training, [], unigram_entropy=None, title="run"))
    lines = [each.get("d", "") for each in picture.iter(f"{SPACE}path") if "h" not in each.get("d", "")]
    assert 200 < lines[0].count("L") < 310
    assert len({point.split()[1] for point in lines[0][1:].split("L")}) == 1, "means of many"

"""Points with names: every point can be told from the others, and no name covers anything."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import pytest

from polyseme.papers import read_table
from polyseme.plots.labeled_points import Axis, LabeledPoint, labeled_points
from polyseme.plots.name_places import Box, place_names
from polyseme.verbs.published_pictures import picture

SVG = "{http://www.w3.org/2000/svg}"
AREA = Box(0, 0, 400, 300)


def drawn(text: str) -> tuple[list[tuple[float, float, str]], list[str]]:
    """The points with their titles, and the names that are written."""
    root = ET.fromstring(text)
    circles = [each for each in root.iter(f"{SVG}circle") if each.find(f"{SVG}title") is not None]
    points = [(float(each.get("cx", "")), float(each.get("cy", "")), each[0].text or "") for each in circles]
    return points, [each.text or "" for each in root.iter(f"{SVG}text") if each.get("class") == "small"]


@pytest.mark.parametrize("name", ["glue", "cost"])
def test_every_system_of_a_published_picture_is_named(name: str) -> None:
    points, names = drawn(picture(read_table(name)))
    systems = {title.partition(": ")[0].partition(" (")[0] for _, _, title in points}
    assert len(systems) > 10
    assert sorted(systems) == sorted(names)


def test_points_of_one_month_stand_beside_each_other_with_the_exact_month_in_their_titles() -> None:
    year = Axis("year", whole=True)
    same = [LabeledPoint("one", 2018.75, 80.0), LabeledPoint("two", 2018.75, 80.0), LabeledPoint("three", 2019.0, 70.0)]
    points, names = drawn(labeled_points("", same, across=year, up=Axis("score")))
    assert sorted(names) == ["one", "three", "two"]
    assert len({(x, y) for x, y, _ in points}) == 3
    assert {title for _, _, title in points} == {"one: 2018-10, 80", "two: 2018-10, 80", "three: 2019-01, 70"}


def test_a_ring_is_larger_than_the_point_within_it_and_a_line_joins_points_of_one_name() -> None:
    points = [LabeledPoint("a", 1.0, 1.0, "test"), LabeledPoint("a", 1.0, 1.0, "dev", hollow=True)]
    text = labeled_points("", [*points, LabeledPoint("a", 2.0, 1.0, "test")], across=Axis("x"), up=Axis("y"))
    radii = [each.get("r") for each in ET.fromstring(text).iter(f"{SVG}circle") if len(each)]
    assert radii == ["6.5", "4", "4"]  # the ring first, below the point
    assert 'class="joined"' in text
    assert "a (dev): 1, 1" in text


def test_names_in_a_crowd_cover_nothing_and_have_leader_lines() -> None:
    crowd = {f"name {number}": [(200.0, 150.0)] for number in range(6)}
    placed = place_names(crowd, 4, AREA)
    assert len(placed) == 6
    assert any(each.leader is not None for each in placed)
    boxes = [each.box for each in placed]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert not any(box.holds(place) for box in boxes for [place] in crowd.values())
    assert all(box.is_in(AREA) for box in boxes)


def test_names_that_find_no_place_are_counted() -> None:
    many = [LabeledPoint(f"{'a very long name ' * 8}{number}", 1.0, float(number)) for number in range(9)]
    text = labeled_points("", many, across=Axis("x"), up=Axis("y"))
    _, names = drawn(text)
    *written, note = names
    assert note == f"{9 - len(written)} more names on hovering"

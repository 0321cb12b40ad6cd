"""Places for the names of points in a picture, so that no name covers a point, a line or another name.

A name is placed beside one of its points where there is room, and otherwise at the nearest free place, with a leader
line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

Place = tuple[float, float]
Anchor = Literal["start", "middle", "end"]
LETTER, LINE = 6.6, 13
"""Approximate width of a letter and height of a line, in pixels."""
_NEAR = 8
"""Pixels from the middle of a point to a name beside it."""
_RINGS = range(18, 240, 6)
"""Pixels from a point to a name with a leader line."""
_DIRECTIONS = 24


class Box(NamedTuple):
    """A rectangle, in pixels; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        """Whether the two share any area."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def is_in(self, other: Box) -> bool:
        """Whether all of it lies in the other."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )

    def holds(self, place: Place) -> bool:
        """Whether a place lies in it."""
        return self.left < place[0] < self.right and self.top < place[1] < self.bottom


class PlacedName(NamedTuple):
    """A name, the place of its base line with its anchor, and the ends of its leader line."""

    name: str
    x: float
    y: float
    anchor: Anchor = "start"
    leader: tuple[Place, Place] | None = None

    @property
    def line(self) -> list[Place]:
        """Places along its leader line."""
        return [] if self.leader is None else _along(*self.leader)

    @property
    def box(self) -> Box:
        """What it covers."""
        width = LETTER * len(self.name)
        left = self.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor] * width
        return Box(left, self.y - LINE + 2, left + width, self.y + 3)


def place_names(points: Mapping[str, Sequence[Place]], radius: float, area: Box) -> list[PlacedName]:
    """A place in the area for every name, as far as there is one.

    Args:
        points: of each name its points, which a line joins in their order.
        radius: of a point, in pixels.
        area: where names are allowed.
    """
    drawn = {name: _boxes(places, radius) for name, places in points.items()}
    taken: list[Box] = []
    """By names and their leader lines."""
    placed: dict[str, PlacedName] = {}
    for candidates in (_beside, _around):
        for name in sorted(points.keys() - placed.keys(), key=lambda name: points[name][0]):
            others = [*taken, *(box for other, boxes in drawn.items() if other != name for box in boxes)]
            in_area = (each for each in candidates(name, points[name]) if each.box.is_in(area))
            free = (each for each in in_area if not any(map(each.box.overlaps, (*others, *drawn[name]))))
            chosen = next((each for each in free if not _crosses(each, others)), None)
            if chosen is not None:
                placed[name] = chosen
                taken += [chosen.box, *(_dot(place, 1) for place in chosen.line)]
    return list(placed.values())


def _crosses(name: PlacedName, others: Sequence[Box]) -> bool:
    """Whether its leader line crosses anything that its point does not lie in."""
    line = name.line
    return bool(line) and any(box.holds(place) for box in others if not box.holds(line[0]) for place in line)


def _beside(name: str, points: Sequence[Place]) -> Iterator[PlacedName]:
    """To the right of a point, to its left, above and below it, at its corners."""
    for across, down, anchor in _PLACES_BESIDE:
        for x, y in points:
            yield PlacedName(name, x + across, y + down, anchor)


_PLACES_BESIDE: Sequence[tuple[float, float, Anchor]] = (
    (_NEAR, 4, "start"),
    (-_NEAR, 4, "end"),
    (0, -9, "middle"),
    (0, 18, "middle"),
    (6, -8, "start"),
    (6, 16, "start"),
    (-6, -8, "end"),
    (-6, 16, "end"),
)


def _around(name: str, points: Sequence[Place]) -> Iterator[PlacedName]:
    """In rings around the points, nearest first, with a line to the nearest edge of the name."""
    for distance in _RINGS:
        for number in range(_DIRECTIONS):
            angle = 2 * math.pi * number / _DIRECTIONS
            across, down = math.cos(angle), math.sin(angle)
            for x, y in points:
                end = x + distance * across, y + distance * down
                if abs(across) < 0.5:
                    place = PlacedName(name, end[0], end[1] + (LINE - 2 if down > 0 else -3), "middle")
                else:
                    place = PlacedName(
                        name, end[0] + math.copysign(2, across), end[1] + 4, "start" if across > 0 else "end"
                    )
                yield place._replace(leader=((x, y), end))


def _boxes(points: Sequence[Place], radius: float) -> list[Box]:
    """What points cover, and the line that joins them."""
    joined = [_dot(place, 1) for pair in pairwise(points) for place in _along(*pair)]
    return [*(_dot(place, radius) for place in points), *joined]


def _dot(place: Place, radius: float) -> Box:
    return Box(place[0] - radius, place[1] - radius, place[0] + radius, place[1] + radius)


def _along(start: Place, end: Place) -> list[Place]:
    """Places on a line, a few pixels apart."""
    n_steps = max(1, math.ceil(math.dist(start, end) / 4))
    shares = (number / n_steps for number in range(n_steps + 1))
    return [(start[0] + s * (end[0] - start[0]), start[1] + s * (end[1] - start[1])) for s in shares]

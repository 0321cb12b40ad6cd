"""The page on the architecture: its house is the one that the contracts check, and the files that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "polyseme"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROOM = re.compile(r"^(\w+)(/|\.py)$")


def plan() -> dict[str, int]:
    """The rooms of the contracts, each with its line."""
    layers = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("\nlayers = [")[2].partition("\n]")[0]
    lines = re.findall(r'"([^"]+)"', layers)
    return {room.strip(): number for number, line in enumerate(lines) for room in line.split("|")}


def test_the_house_is_that_of_the_contracts() -> None:
    house = PAGE.partition("## The house")[2].split("```")[1]
    rooms = [match[1] for line in house.splitlines() for word in line.split() if (match := ROOM.match(word))]
    lines = plan()
    assert sorted(rooms) == sorted(lines.keys() - {"__main__"})
    assert [lines[room] for room in rooms] == sorted(lines[room] for room in rooms)


def test_the_files_that_are_named_exist() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.(?:py|md|toml))`", PAGE))
    assert named
    missing = [
        name for name in sorted(named) if not any((place / name).exists() for place in (ROOT, SOURCE, SOURCE.parent))
    ]
    assert not missing

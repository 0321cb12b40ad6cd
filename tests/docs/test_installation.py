"""The table of extras on the page about installation is that of pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def shown() -> dict[str, str]:
    """The packages of each extra, as the page has them."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]
    return {name.strip("`"): packages for name, _, packages in rows}


def test_every_extra_is_in_the_table() -> None:
    assert set(shown()) == set(EXTRAS)


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"dev"}))
def test_its_packages_are_named(extra: str) -> None:
    packages = [re.split(r"[\[<>=]", package)[0] for package in EXTRAS[extra]]
    assert shown()[extra].split(", ") == packages


def test_extras_that_errors_name_exist() -> None:
    sources = (ROOT / "src" / "polyseme").rglob("*.py")
    named = {name for path in sources for name in re.findall(r'extra="(\w+)"', path.read_text(encoding="utf-8"))}
    assert named <= set(EXTRAS)
    assert len(named) > 5

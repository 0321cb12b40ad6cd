"""The figures of the README are those of the page of figures, and the scripts that print them exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures.md"


def rows(page: Path) -> list[str]:
    """The rows of tables whose last cell names scripts."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("| ") and line.endswith(".py` |")]


def test_the_readme_has_rows_of_the_page() -> None:
    shown = rows(ROOT / "README.md")
    assert len(shown) >= 5
    assert set(shown) <= set(rows(FIGURES))


def test_the_scripts_exist() -> None:
    scripts = {script for row in rows(FIGURES) for script in re.findall(r"`([a-z]+/\w+\.py)`", row)}
    assert len(scripts) > 10
    assert [script for script in sorted(scripts) if not (ROOT / script).is_file()] == []

"""The page about the packaged models shows their cards, and names the defaults that the table has."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from polyseme.packaged_models import DEFAULTS, PACKAGED, TRAINED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "english.md").read_text(encoding="utf-8")


@pytest.fixture
def hook() -> Any:
    spec = importlib.util.spec_from_file_location("mkdocs_model_cards", ROOT / "mkdocs_model_cards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cards_are_sections_of_the_page(hook: Any, tmp_path: Path) -> None:
    for name in ("encoder", "decoder"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(f"---\nlicense: x\n---\n# {name}\n\n## Data\n\n![c](curve.svg)\n")
        (tmp_path / name / "curve.svg").write_text("<svg/>")
    page = hook.with_cards(PAGE, tmp_path)
    assert re.findall(r"^##+ .*", page, flags=re.MULTILINE) == ["## encoder", "### Data", "## decoder", "### Data"]
    assert "license: x" not in page
    assert page.count("![c](data:image/svg+xml;base64,PHN2Zy8+)") == 2


def test_the_page_has_the_defaults_of_the_table() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]
    models = {verb: name.split("`")[1] for name, _, verbs in rows for verb in re.findall(r"`(\w+)`", verbs)}
    assert models == DEFAULTS
    assert set(PACKAGED) == set(models.values())
    assert all(command in PAGE for command in TRAINED.values())

"""The notebook of four ways: it is one, its cells run, and on a real cut they beat the commonest label."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from forked import run_forked
from tiny_models import tiny_model

NOTEBOOK = Path(__file__).parents[2] / "examples" / "contextualreps.ipynb"
STRATEGIES = ("frozen, BiLSTM", "fine-tuned")


def notebook() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return read


def code() -> list[str]:
    return ["".join(cell["source"]) for cell in notebook()["cells"] if cell["cell_type"] == "code"]


def run(data: Path, folder: Path, **settings: str) -> dict[str, tuple[float, float]]:
    """Run all cells in a process of their own; the rows of their own table: dev and test."""
    around = {**os.environ, "POLYSEME_DATA": str(data), "TMPDIR": str(folder), **settings}
    done = run_forked("\n\n".join(code()), env=around)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(\S.*?) {2,}(\d+\.\d) +(\d+\.\d)$", done.stdout, flags=re.MULTILINE)
    return {name: (float(dev), float(test)) for name, dev, test in rows if " seeds" not in name}


def test_it_is_a_notebook_and_its_cells_compile() -> None:
    read = notebook()
    assert (read["nbformat"], read["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in read["cells"]}) == len(read["cells"])
    for cell in read["cells"]:
        wanted = {"cell_type", "id", "metadata", "source"}
        wanted |= {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == wanted
    for number, source in enumerate(code()):
        compile(source, f"cell {number}", "exec")


def test_its_cells_run_on_a_few_sentences(data: Path, tmp_path: Path) -> None:
    folders = [tmp_path / family for family in ("bert", "elmo")]
    for folder in folders:
        tiny_model(folder.name).save(folder)
    table = run(data, tmp_path, QUICK="16", MODELS=",".join(map(str, folders)))
    ways = {f"{folder.name}, {strategy}" for folder in folders for strategy in STRATEGIES}
    [guess] = set(table) - ways
    assert set(table) > ways
    assert guess.startswith("always ")
    assert 0 < table[guess][1] < 100


@pytest.mark.slow
def test_the_cut_shows_something(data: Path, tmp_path: Path) -> None:
    """With more sentences: MiniLM's frozen vectors know good from bad, and so does MiniLM fine-tuned."""
    table = run(data, tmp_path, QUICK="1000", MODELS="minilm")
    [guess] = (name for name in table if name.startswith("always "))
    for strategy in STRATEGIES:
        assert table[f"MiniLM, {strategy}"][1] > table[guess][1] + 8

"""The course: notebooks that run, with the outputs that the pages of the documentation show."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COURSE = ROOT / "examples" / "course"
NOTEBOOKS = sorted(COURSE.glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def page(path: Path) -> tuple[str, dict[str, bytes]]:
    made: tuple[str, dict[str, bytes]] = module(ROOT / "mkdocs_course.py").page_of(read(path), path.stem)
    return made


def test_there_are_six_and_each_is_in_the_navigation() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06"]
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f"course/{path.stem}.md" in navigation for path in NOTEBOOKS)


@every_notebook
def test_it_is_a_notebook_that_was_run_from_top_to_bottom(path: Path) -> None:
    notebook = read(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    printed = json.dumps([cell["outputs"] for cell in code])
    assert "Traceback" not in printed
    assert "/tmp/" not in printed


@every_notebook
def test_its_page_has_pictures_solutions_and_links_that_lead_somewhere(path: Path) -> None:
    text, pictures = page(path)
    assert text.startswith("# ")
    assert set(re.findall(r"!\[[^\]]+\]\((\w+\.png)\)", text)) == set(pictures)
    assert len(pictures) >= 2
    assert all(picture.startswith(b"\x89PNG") for picture in pictures.values())
    assert text.count("<summary>Solution</summary>") >= 4
    links = re.findall(r"\]\(([\w./]+\.(?:md|ipynb))\)", text)
    assert links
    for link in links:
        target = ROOT / "docs" / link[3:] if link.startswith("../") else COURSE / link.replace(".md", ".ipynb")
        assert target.is_file()


@pytest.mark.filterwarnings("default")  # a notebook warns its reader
def test_cells_of_a_notebook_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the first that train nothing large: counts, smoothing and backpropagation, by hand and by polyseme."""
    monkeypatch.chdir(COURSE)
    notebook = read(COURSE / "01_before_elmo.ipynb")
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    reduced = {"cells": [{"cell_type": "code", "source": [cell]} for cell in code[:4] + code[8:10]]}
    names = module(COURSE / "execute.py").execute(reduced)
    assert names["f"].item() == 12
    outputs = ["".join(each["text"]) for cell in reduced["cells"] for each in cell["outputs"]]  # type: ignore[index]
    assert any("Kneser–Ney" in output for output in outputs)
    assert any(output.startswith("f = 12.0") for output in outputs)


def test_a_cell_that_fails_is_named() -> None:
    execute = module(COURSE / "execute.py")
    with pytest.raises(execute.CellError, match="Cell 2 failed with ZeroDivisionError"):
        execute.execute({"cells": [{"cell_type": "code", "source": [each]} for each in ("1", "1 / 0")]})


@pytest.mark.slow
@every_notebook
def test_it_runs(path: Path) -> None:
    """All cells, from nothing, in a process of its own; the assertions in them hold."""
    script = "import execute, json, sys; execute.execute(json.load(open(sys.argv[1], encoding='utf-8')))"
    around = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{COURSE}"}
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, cwd=COURSE, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

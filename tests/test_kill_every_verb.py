"""Every verb that resumes is stopped once, at a random moment, and ends as if it had not (`make kills`: 200 times)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import run

import pytest

from kill_every_verb import Tally, compare, rows_of_table


def test_what_is_wrong_is_counted(tmp_path: Path) -> None:
    def written(*ids: str, text: str = "x") -> Path:
        path = tmp_path / "out.jsonl"
        path.write_text("".join(json.dumps({"id": id, "text": text}) + "\n" for id in ids))
        return path

    expected, tally = rows_of_table(written("a", "b")), Tally()
    assert compare(rows_of_table(written("a", "b")), expected, tally) == []
    assert (tally.lost, tally.doubled, tally.different) == (0, 0, 0)
    assert compare(rows_of_table(written("a")), expected, tally) == ["lost: b", "different: all bytes"]
    assert compare(rows_of_table(written("a", "b", "b")), expected, tally) == ["doubled: b", "different: all bytes"]
    assert compare(rows_of_table(written("b", "a")), expected, tally) == ["different: all bytes"]
    assert compare(rows_of_table(written("a", "b", text="y")), expected, tally) == ["different: a, b, all bytes"]
    assert (tally.lost, tally.doubled, tally.different) == (1, 1, 4)


@pytest.mark.slow
def test_every_verb_is_stopped_once() -> None:
    ended = run(
        [sys.executable, str(Path(__file__).with_name("kill_every_verb.py")), "--tries", "11"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "| all | 11 |" in ended.stdout

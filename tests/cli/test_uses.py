"""`polyseme uses`, as a user calls it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import polyseme
from cli.commands import Refuse, Run


def test_uses_prints_and_writes(run: Run, tiny: Path, tmp_path: Path) -> None:
    source = tmp_path / "texts.txt"
    source.write_text("Dawn broke.\nThe news broke.\nSandy broke the law.\n", encoding="utf-8")
    ask = ("uses", "broke", "-m", tiny, "--in", source)
    ended = run(*ask, "--near", 1, "-o", tmp_path / "broke.json")
    assert ended.code == 0
    assert "Neighbors without context (layer 0, averaged over uses)" in ended.out
    assert ended.out.count("[broke]") >= 3
    written = json.loads((tmp_path / "broke.json").read_text(encoding="utf-8"))
    assert json.loads(run(*ask, "--near", 1, "--json").out)["near"] == written["near"]
    given = run("uses", "broke", "-m", tiny, "--sentence", "Dawn broke.", "--sentence", "It broke.")
    assert given.code == 0
    assert "Neighbors" not in given.out


def test_bad_input_is_refused(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    source = tmp_path / "texts.txt"
    source.write_text("Dawn broke.\nThe news broke.\n", encoding="utf-8")
    ask = ("uses", "-m", tiny, "--in", source, "-o", tmp_path / "uses.html")
    assert "does not occur" in refuse(*ask, "crane", folder=tmp_path)
    assert "Layer '7' is not there" in refuse(*ask, "broke", "--layer", 7, folder=tmp_path)
    assert "gives it several" in refuse(*ask, "broke", "--layer", "all", folder=tmp_path)
    assert "cannot be read twice" in refuse("uses", "dawn", "-m", tiny, "--in", "-", folder=tmp_path, stdin=b"Dawn.\n")


def test_progress_is_reported_while_a_chunk_is_embedded(tiny: Path, tmp_path: Path) -> None:
    """A file of a single chunk, whose uses are embedded at two layers."""
    source = tmp_path / "texts.txt"
    words = ("dawn", "broke", "the", "crane")
    texts = (f"{' '.join(each)} broke.\n" for each in itertools.product(words, repeat=5))
    source.write_text("".join(texts), encoding="utf-8")
    done: list[int] = []
    polyseme.uses("broke", source=source, model=tiny, progress=lambda n, total: done.append(n))
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, source.stat().st_size)
    assert len(set(done)) > 5

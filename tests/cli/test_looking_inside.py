"""`lens`, `attribute`, `cells` and `patch` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from cli.commands import Refuse, Run

HOSTILE = "<script>alert(1)</script> [MASK]"


def test_lens_prints_layers_and_writes_a_page(run: Run, tiny: Path, tmp_path: Path) -> None:
    ended = run("lens", HOSTILE, "-m", tiny, "-o", tmp_path / "lens.html", "--top", 3)
    assert (ended.code, len(ended.out.splitlines())) == (0, 6)
    page = (tmp_path / "lens.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    read = json.loads(run("lens", HOSTILE, "-m", tiny, "--json").out)
    assert len(read["records"]) == 4
    assert {"answer_rank", "entropy", "divergence", "top_1", "probability_5"} <= set(read["records"][0])
    assert read["places"][0]["answer"] == read["records"][-1]["top_1"]


def test_lens_refuses(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    assert "no mask" in refuse("lens", "Dawn broke", "-m", tiny, "-o", tmp_path / "lens.html", folder=tmp_path)
    assert "must end in .html" in refuse("lens", HOSTILE, "-m", tiny, "-o", tmp_path / "a.pdf", folder=tmp_path)
    assert "longer" in refuse("lens", "broke " * 60 + "[MASK]", "-m", tiny, folder=tmp_path)

"""`polyseme published`, as a user calls it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import polyseme
from cli.commands import Refuse, Run
from polyseme.papers import PublishedTable, table_names


def test_the_list_is_one_line_per_table(run: Run) -> None:
    ended = run("published")
    assert (ended.code, ended.err) == (0, "")
    header, *lines = ended.out.splitlines()
    assert header.split()[:3] == ["table", "figures", "checked"]
    assert [line.split()[0] for line in lines[: len(table_names())]] == list(table_names())


@pytest.mark.parametrize("arguments", [["published"], ["published", "glue"], ["published", "--help"]])
def test_listing_and_printing_load_nothing_heavy(arguments: list[str]) -> None:
    script = f"""
import sys
from polyseme.cli import main
try:
    main({arguments!r})
except SystemExit as end:
    assert not end.code
print("LOADED", *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not set(done.stdout.rpartition("LOADED")[2].split()) & {"torch", "numpy", "tokenizers", "pyarrow"}


def test_a_table_is_printed_with_sources_and_both_figures(run: Run) -> None:
    out = run("published", "wmt").out
    assert "41.8 / 41.0" in out
    assert "Vaswani et al. 2017, Table 2: found in paper" in out


def test_formats_agree(run: Run, tmp_path: Path) -> None:
    for ending in ("csv", "tsv", "json", "md", "html", "svg"):
        assert run("published", "wmt", "-o", tmp_path / f"wmt.{ending}").code == 0
    table = polyseme.published("wmt")
    assert isinstance(table, PublishedTable)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "wmt.csv").read_text(encoding="utf-8"))))
    assert [float(row["value"]) for row in rows] == [record["value"] for record in table.records()]
    written = json.loads((tmp_path / "wmt.json").read_text(encoding="utf-8"))
    assert written["figures"] == table.records()
    assert written == json.loads(run("published", "wmt", "--json").out)
    for name in ("wmt.md", "wmt.html"):
        assert "41.8 / 41.0" in (tmp_path / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["glue", "family-tree", "scaling-law", "heads", "co2"])
def test_every_picture_is_well_formed(name: str, run: Run, tmp_path: Path) -> None:
    import xml.etree.ElementTree as ET

    assert run("published", name, "-o", tmp_path / "picture.svg").code == 0
    root = ET.fromstring((tmp_path / "picture.svg").read_text(encoding="utf-8"))
    assert root.tag.endswith("svg")
    assert sum(each.tag.endswith("circle") for each in root.iter()) >= 8


def test_pictures_print_numbers_as_the_tables_do(tmp_path: Path) -> None:
    for name, numbers in {"gpt-3": (">125M<", ">6e-05<", ">96<"), "frozen-tuned": (">91.7?<",)}.items():
        polyseme.published(name, output=tmp_path / f"{name}.svg")
        picture = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        assert all(number in picture for number in numbers), name
    assert "difference" not in picture  # of one system: nothing to compare


def test_the_picture_of_ratios_has_the_counts_of_one_ratio_beside_each_other(tmp_path: Path) -> None:
    polyseme.published("ratios", output=tmp_path / "ratios.svg")
    picture = (tmp_path / "ratios.svg").read_text(encoding="utf-8")
    panels = picture.split("<svg")[2:]
    assert [panel.count("<circle") for panel in panels] == [4, 4, 4, 3]
    assert ">BERT-large / ELMo<" in panels[0]
    assert all(f">{number}<" in panels[0] for number in ("60", "57.6", "16.0", "56.0"))


def test_pages_begin_with_the_table_unless_the_picture_shows_more(tmp_path: Path) -> None:
    for name, first in {"squad": "<table", "glue": "<svg"}.items():
        polyseme.published(name, output=tmp_path / f"{name}.html")
        body = (tmp_path / f"{name}.html").read_text(encoding="utf-8").partition("</h1>")[2]
        assert min(("<table", "<svg"), key=body.index) == first


def test_costs_have_our_count_and_a_picture_of_both(run: Run, tmp_path: Path) -> None:
    out = run("published", "cost", "--system", "BERT-large", "-o", tmp_path / "cost.html").out
    line = next(line for line in out.splitlines() if line.startswith("BERT-large"))
    assert "1.9e20 / 5.33e20" in line
    assert "8.15e19" in line
    page = (tmp_path / "cost.html").read_text(encoding="utf-8")
    assert "GLUE against compute" in page
    assert "as counted here" in page


def test_what_cannot_be_is_refused(refuse: Refuse, tmp_path: Path) -> None:
    assert "glue" in refuse("published", "gleu", folder=tmp_path)
    assert "no system 'BERX'" in refuse("published", "glue", "--system", "BERX", folder=tmp_path)
    assert "must end in .html" in refuse("published", "glue", "-o", tmp_path / "glue.pdf", folder=tmp_path)
    assert "Name a table" in refuse("published", "-o", tmp_path / "all.csv", folder=tmp_path)
    (tmp_path / "there.csv").write_text("mine")
    assert "already there" in refuse("published", "glue", "-o", tmp_path / "there.csv", folder=tmp_path)


def test_a_picture_without_points_says_so(refuse: Refuse, tmp_path: Path) -> None:
    asked = ("published", "glue", "--system", "before GPT", "-o", tmp_path / "glue.svg")
    assert "has no points" in refuse(*asked, folder=tmp_path)

"""What every analysis returns: a table, JSON and a page that say where the figures come from."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas
import pytest

from polyseme.analysis.findings import Findings, check_findings_output
from polyseme.cost import Cost
from polyseme.errors import OptionError, OutputError
from polyseme.plots.figures_table import figures_table, shaded_table

HOSTILE = "<script>alert(1)</script>"
COST = Cost(pieces=12, words=10, documents=2, seconds=1.0, flops=1e9, peak_memory=2**30, device="cpu")


@dataclass(frozen=True, kw_only=True, repr=False)
class Counted(Findings):
    """Counts of words."""

    verb: ClassVar[str] = "count"
    counts: dict[str, int]

    def title(self) -> str:
        return f"Words of {self.data}"

    def records(self) -> list[dict[str, Any]]:
        return [{"word": word, "count": count, "share": count / 3} for word, count in self.counts.items()]

    def page_body(self) -> str:
        shaded = shaded_table(
            ["", "n"], [(word, [n, None]) for word, n in self.counts.items()], spelled="{:.0f}".format
        )
        return figures_table(self.header(), self.rows()) + shaded


@pytest.fixture
def findings() -> Counted:
    return Counted(
        model="models/mine", data=HOSTILE, seeds=(1, 2), notes=["Two words."], cost=COST, counts={"dawn": 2, HOSTILE: 1}
    )


def test_every_form_has_the_rows_and_the_sources(findings: Counted, tmp_path: Path) -> None:
    for ending in ("html", "json", "tsv", "csv"):
        findings.save(tmp_path / f"counted.{ending}")
    page = (tmp_path / "counted.html").read_text(encoding="utf-8")
    assert HOSTILE not in page
    assert all(text in page for text in ("dawn", "mine", "1, 2", "Two words.", COST.line(), "polyseme count"))
    read = json.loads((tmp_path / "counted.json").read_text(encoding="utf-8"))
    assert read["records"] == findings.records()
    assert (read["model"], read["seeds"], read["cost"]["pieces"]) == ("models/mine", [1, 2], 12)
    for ending, delimiter in (("tsv", "\t"), ("csv", ",")):
        with (tmp_path / f"counted.{ending}").open(encoding="utf-8", newline="") as file:
            assert [row["count"] for row in csv.DictReader(file, delimiter=delimiter)] == ["2", "1"]
    assert list(pandas.DataFrame(findings.records())["count"]) == [2, 1]
    assert "0.6667" in repr(findings)
    assert "srcdoc" in findings._repr_html_()


def test_columns_of_text_are_aligned_as_text() -> None:
    rows = [["1", "obj", "8-5", "", "−0.1 ± 0.2", "(0.3)"], ["2", "", "9-1", "", "0.1", "±0.3"]]
    table = figures_table(["layer", "relation", "head", "empty", "difference", "error"], rows)
    assert re.findall(r'<t[hd] class="left">([^<]*)', table) == ["relation", "obj", ""]


def test_a_path_with_a_comma_is_one_model(findings: Counted) -> None:
    named = dataclasses.replace(findings, model="models/small,tuned")
    assert named.sources()["model"] == "small,tuned"


def test_an_output_is_refused_before_any_work(findings: Counted, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"must end in \.html, \.json, \.tsv, \.csv"):
        check_findings_output(tmp_path / "counted.pdf", force=False)
    findings.save(tmp_path / "counted.json")
    with pytest.raises(OutputError, match="already there"):
        check_findings_output(tmp_path / "counted.json", force=False)

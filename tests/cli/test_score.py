"""`polyseme score`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import csv
import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import polyseme
from cli.commands import Refuse, Run
from polyseme.scoring.text_scores import ScoredDocument
from tiny_models import tiny_model

HOSTILE = "</script><script>alert(1)</script> <img src=x onerror=alert(1)> \"'><b>broke</b>"
LINES = ["Dawn broke.", "Zoë didn't see\tany naïve cranes!", "", HOSTILE]


@pytest.fixture
def essay(tmp_path: Path) -> Path:
    file = tmp_path / "essay.txt"
    file.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return file


def expected(model: Path) -> list[ScoredDocument]:
    return polyseme.load(model, device="cpu").score(LINES)


def by_word(scored: list[ScoredDocument]) -> list[tuple[str, str, int, int]]:
    return [
        (str(number), str(word), word.start, word.end)
        for number, each in enumerate(scored, start=1)
        for word in each.words
    ]


def test_scores_are_printed_with_their_totals(run: Run, causal: Path, essay: Path) -> None:
    ended = run("score", essay, "-m", causal)
    assert ended.code == 0
    table, _, sums = ended.out.partition("\n\n")
    header, *rows = table.splitlines()
    assert header.split() == ["id", "word", "log-probability", "surprisal"]
    scored = expected(causal)
    values = np.concatenate([each.word_log_probs for each in scored])
    assert [line.split()[1] for line in rows] == [word for _, word, _, _ in by_word(scored)]
    np.testing.assert_allclose([float(line.split()[2]) for line in rows], values, atol=1e-3)
    np.testing.assert_allclose([float(line.split()[3]) for line in rows], -values / math.log(2), atol=1e-2)
    shown = dict(line.rsplit(maxsplit=1) for line in sums.splitlines())
    assert float(shown["log prob"].replace(",", "")) == pytest.approx(values.sum(), abs=1e-3)
    assert set(shown) >= {"perplexity per word", "perplexity per piece", "perplexity per byte"}
    assert "1 of 4 texts have no word in them" in ended.err
    assert "scored left to right; 4 texts" in ended.err


@pytest.mark.filterwarnings("ignore:.*that the model's output vocabulary lacks:polyseme.errors.PolysemeWarning")
@pytest.mark.parametrize("by", ["word", "piece", "byte"])
def test_tables_hold_every_unit(run: Run, tiny: Path, essay: Path, tmp_path: Path, by: str) -> None:
    scored = expected(tiny)
    values = {
        "word": [each.word_log_probs for each in scored],
        "piece": [each.piece_log_probs for each in scored],
        "byte": [each.byte_log_probs for each in scored],
    }[by]
    for ending in ("tsv", "parquet"):
        output = tmp_path / f"scores-{by}.{ending}"
        assert run("score", essay, "-m", tiny, "--by", by, "-o", output).code == 0
        if ending == "tsv":
            table = pyarrow.csv.read_csv(output, parse_options=pyarrow.csv.ParseOptions(delimiter="\t")).to_pydict()
        else:
            table = pq.read_table(output).to_pydict()
        np.testing.assert_allclose(table["log_prob"], np.concatenate(values), atol=1e-4)
        np.testing.assert_allclose(table["surprisal"], -np.concatenate(values) / math.log(2), atol=1e-4)
        assert table["position"] == [number for each in values for number in range(len(each))]
        assert [str(id) for id in table["id"]] == [
            str(number) for number, each in enumerate(values, start=1) for _ in each
        ]
        if by == "word":
            assert list(
                zip(map(str, table["id"]), table["word"], table["start"], table["end"], strict=True)
            ) == by_word(scored)
        if by == "byte":
            assert bytes(table["byte"]) == "".join(LINES).encode()


def test_jsonl_has_a_line_a_text(run: Run, causal: Path, essay: Path, tmp_path: Path) -> None:
    output = tmp_path / "scores.jsonl"
    assert run("score", essay, "-m", causal, "-o", output, "--by", "piece").code == 0
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    for line, each, text in zip(lines, expected(causal), LINES, strict=True):
        assert line["text"] == text
        assert line["pieces"] == each.pieces
        assert line["offsets"] == each.spans.tolist()
        np.testing.assert_allclose(line["log_probs"], each.piece_log_probs, atol=1e-4)
        assert line["totals"]["pieces"] == len(each.pieces)
    assert lines[2]["totals"]["perplexity_per_word"] is None


def test_what_has_no_score_is_empty_and_said(run: Run, essay: Path, tmp_path: Path) -> None:
    model = tmp_path / "gpt"
    tiny_model("openai-gpt").save(model)
    output = tmp_path / "scores.tsv"
    ended = run("score", essay, "-m", model, "-o", output)
    assert "the first piece of each text has no score" in ended.err
    with output.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["position"] for row in rows if not row["log_prob"]] == ["0", "0", "0"]
    assert run("score", essay, "-m", model, "-o", tmp_path / "scores.html").code == 0
    assert 'class="none"' in (tmp_path / "scores.html").read_text()


def test_fields_have_names_of_their_own_and_types(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(
        '{"t": ["Dawn", "broke"], "id": 7, "upos": ["NOUN", "VERB"]}\n{"t": ["vase"], "id": 8.5, "upos": ["X"]}\n'
    )
    options = ["--field", "t", "--fields", "all", "-m", tiny, "--device", "cpu"]
    ended = run("score", tmp_path / "in.jsonl", *options, "-o", tmp_path / "out.parquet")
    assert ended.code == 0
    assert "note: The field 'id' is called 'fields.id' in the output" in " ".join(ended.err.split())
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["id"].to_pylist() == ["1", "1", "2"]
    assert table["fields.id"].to_pylist() == [7.0, 7.0, 8.5]
    assert table["upos"].to_pylist() == ["NOUN", "VERB", "X"]
    assert run("score", tmp_path / "in.jsonl", *options, "-o", tmp_path / "out.csv").code == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["fields.id"], row["upos"]) for row in rows] == [
        ("1", "7", "NOUN"),
        ("1", "7", "VERB"),
        ("2", "8.5", "X"),
    ]


def test_fields_are_kept(run: Run, tiny: Path, tmp_path: Path) -> None:
    source = tmp_path / "r.jsonl"
    source.write_text('{"t": "Dawn broke.", "stars": 3, "who": "Zoë"}\n{"t": "We broke even.", "stars": null}\n')
    output = tmp_path / "s.parquet"
    assert run("score", source, "--field", "t", "--fields", "stars,who", "-m", tiny, "-o", output).code == 0
    table = pq.read_table(output).to_pydict()
    assert table["stars"] == [3] * 3 + [None] * 4
    assert table["who"] == ["Zoë"] * 3 + [None] * 4


class _Elements(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.said: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.said.append(data)


@pytest.mark.parametrize("by", ["word", "piece", "byte"])
def test_the_page_is_whole_and_hostile_text_is_only_text(
    run: Run, causal: Path, essay: Path, tmp_path: Path, by: str
) -> None:
    output = tmp_path / "page.html"
    assert run("score", essay, "-m", causal, "--by", by, "-o", output).code == 0
    html = output.read_text(encoding="utf-8")
    page = _Elements(html)
    assert not {"script", "img", "b", "link", "iframe"} & {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "default-src 'none'" in html
    said = "".join(page.said)
    for line in LINES:
        assert line in said
    marks = [attributes for tag, attributes in page.tags if tag == "span" and "title" in attributes]
    assert len(marks) >= sum(len(each.words) for each in expected(causal)) * (by == "word")
    assert all("bits" in mark["title"] for mark in marks)


def test_shades_grow_with_surprisal() -> None:
    from polyseme.plots.shaded_text import Mark, ShadedText, shaded_page

    marks = [Mark(0, 1, 0.0, "a"), Mark(1, 2, 10.0, "b"), Mark(2, 3, 99.0, "c"), Mark(3, 4, math.nan, "d")]
    page = _Elements(shaded_page("t", [ShadedText("1", "abcd", marks)], unit="bits", most=20.0))
    shades = [attributes["class"] for tag, attributes in page.tags if tag == "span" and "title" in attributes]
    assert shades == ["s0", "s32", "s63", "none"]


def test_json_and_standard_input(run: Run, causal: Path) -> None:
    ended = run("score", "-", "-m", causal, "--json", stdin=b"Dawn broke.\n")
    found = json.loads(ended.out)
    assert found["how"] == "left to right"
    assert found["texts"][0]["words"] == ["Dawn", "broke", "."]
    assert found["totals"]["words"] == 3


def test_a_long_document_is_read_in_windows(run: Run, causal: Path, tmp_path: Path) -> None:
    long = tmp_path / "long.txt"
    long.write_text("The vase broke.\n" * 30)
    sums = {}
    for stride in ("5", "20", "40"):
        ended = run("score", long, "--split", "document", "--stride", stride, "-m", causal, "--json")
        sums[stride] = json.loads(ended.out)["totals"]
    assert sums["5"]["pieces"] == sums["40"]["pieces"] > 100
    assert len({found["log_prob"] for found in sums.values()}) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "s.txt"], "Scores are written as .csv, .tsv, .jsonl, .parquet, .html"),
        (["--word-probability", "proper"], "no word probability 'proper'"),
        (["--word-probability", "corrected", "--by", "byte"], "scores by byte have none"),
        (["--by", "text", "-o", "s.html"], "A page shades words"),
        (["--marked"], "essay.txt, line 1: No word is marked"),
        (["--by", "letter"], "There are no scores by 'letter'"),
        (["--hide", "half"], "There is no way 'half'"),
        (["--stride", "99"], "between 1 and the 40 pieces"),
        (["--hide", "piece"], "for masked models"),
        (["-o", "there.tsv"], "already there"),
    ],
)
def test_what_is_refused(
    refuse: Refuse, causal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.tsv").write_text("old")
    (tmp_path / "essay.txt").write_text("Dawn broke.\n")
    assert said in refuse("score", "essay.txt", "-m", causal, *options, folder=tmp_path)


def test_models_and_texts_that_are_refused(refuse: Refuse, causal: Path, tmp_path: Path) -> None:
    essay, blank = tmp_path / "essay.txt", tmp_path / "blank.jsonl"
    essay.write_text("Dawn broke.\n")
    blank.write_text('{"text": ""}\n{"text": " "}\n')
    assert "cannot score texts" in refuse("score", essay, "-m", "minilm", folder=tmp_path)  # it has no output for that
    assert "no word in any text" in refuse("score", blank, "-m", causal, folder=tmp_path)
    assert "no word in any text" in refuse("score", blank, "-m", causal, "-o", tmp_path / "s.tsv", folder=tmp_path)
    assert "There is no model" in refuse("score", essay, "-m", tmp_path / "none", folder=tmp_path)


def test_the_input_is_never_replaced(refuse: Refuse, causal: Path, tmp_path: Path) -> None:
    source = tmp_path / "texts.jsonl"
    source.write_text('{"text": "Dawn broke."}\n')
    assert "is the input itself" in refuse("score", source, "-m", causal, "-o", source, "--force", folder=tmp_path)


def test_a_csv_of_corrected_surprisals_reads_as_a_table_with_ids(run: Run, causal: Path, tmp_path: Path) -> None:
    """As R's read.csv and pandas read it: a header, ids, numbers, commas and quotes inside words in quotes."""
    source = tmp_path / "items.csv"
    source.write_text('item,text\ni1,"Sandy broke, the law"\ni2,"A ""crane"" broke."\n')
    output = tmp_path / "surprisals.csv"
    options = ["--field", "text", "--id-field", "item", "--word-probability", "corrected"]
    ended = run("score", source, "-m", causal, *options, "-o", output)
    assert ended.code == 0
    assert "words corrected for where they end" in ended.err
    with output.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    model = polyseme.load(causal, device="cpu")
    scored = model.score(["Sandy broke, the law", 'A "crane" broke.'], word_probability="corrected")
    assert [(row["id"], row["word"]) for row in rows] == [
        (id, str(word)) for id, each in zip(("i1", "i2"), scored, strict=True) for word in each.words
    ]
    values = np.concatenate([each.word_surprisals for each in scored])
    np.testing.assert_allclose([float(row["surprisal"]) for row in rows], values, atol=1e-3)


def test_marked_spans_by_text_are_a_row_each(run: Run, causal: Path, tmp_path: Path) -> None:
    source = tmp_path / "spans.txt"
    source.write_text("Sandy broke [the law].\nSandy broke [a vase].\n")
    output = tmp_path / "spans.csv"
    assert run("score", source, "-m", causal, "--marked", "--by", "text", "-o", output).code == 0
    rows = list(csv.DictReader(output.read_text().splitlines()))
    assert [(row["id"], row["text"], row["words"]) for row in rows] == [
        ("1", "Sandy broke the law.", "2"),
        ("2", "Sandy broke a vase.", "2"),
    ]
    [whole] = polyseme.load(causal, device="cpu").score(["Sandy broke the law."])
    assert float(rows[0]["log_prob"]) == pytest.approx(float(whole.word_log_probs[2:4].sum()), abs=1e-3)
    printed = run("score", source, "-m", causal, "--marked", "--by", "text").out
    assert printed.splitlines()[1].split()[:2] == ["1", "Sandy"]

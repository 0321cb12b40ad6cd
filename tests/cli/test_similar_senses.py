"""`polyseme similar` and `polyseme senses`, as a user calls them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli.commands import Refuse, Run

SENTENCES = "Dawn broke.\nThe news broke.\nSandy broke the law.\nA crane caught a fish.\nI saw a crane.\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.txt"
    path.write_text(SENTENCES, encoding="utf-8")
    return path


def test_similar_prints_uses_of_the_word_and_of_others(run: Run, tiny: Path, source: Path) -> None:
    code, out, err = run("similar", "We [broke] even.", "--in", source, "-m", tiny, "--top", 2, "--against", 0)
    assert code == 0
    headings = [line for line in out.splitlines() if line.startswith("Uses")]
    assert headings == [
        "Uses of 'broke', layer -1",
        "Uses of other words, layer -1",
        "Uses of 'broke', layer 0: the word and its place, no context",
        "Uses of other words, layer 0: the word and its place, no context",
    ]
    assert out.count("[broke]") == 4
    assert "23 uses were compared, 3 of them of 'broke'; pooling mean." in err
    assert "6 texts, 24 words" in err


def test_similar_says_what_is_not_there(run: Run, tiny: Path, source: Path) -> None:
    code, out, err = run("similar", "A [heron].", "--in", source, "-m", tiny)
    assert code == 0
    assert "Uses of 'heron', layer -1\nnone\n" in out
    assert "note: The word 'heron' does not occur in" in err


def test_similar_keeps_an_index_and_asks_it(run: Run, tiny: Path, source: Path, tmp_path: Path) -> None:
    ask = ("similar", "We [broke] even.", "--index", tmp_path / "uses", "-m", tiny, "--same-word")
    made = run(*ask, "--in", source)
    asked = run(*ask)
    assert (made.code, asked.code) == (0, 0)
    assert asked.out == made.out
    assert "Uses of other words" not in asked.out


def test_similar_writes_json_and_html(run: Run, tiny: Path, source: Path, tmp_path: Path) -> None:
    for name in ("near.json", "near.html"):
        ask = ("similar", "A [crane] broke.", "--in", source, "-m", tiny, "-o", tmp_path / name)
        assert run(*ask).code == 0
    found = json.loads((tmp_path / "near.json").read_text(encoding="utf-8"))
    assert found["word"] == "crane"
    assert {use["text"] for use in found["near"]["same"]} == {"A crane caught a fish.", "I saw a crane."}
    assert "<b>crane</b>" in (tmp_path / "near.html").read_text(encoding="utf-8")
    printed = run("similar", "A [crane] broke.", "--in", source, "-m", tiny, "--json").out
    assert json.loads(printed)["near"] == found["near"]


def test_senses_prints_the_number_why_and_examples(run: Run, tiny: Path, source: Path) -> None:
    code, out, err = run("senses", "Broke", "--in", source, "-m", tiny)
    assert code == 0
    assert f"Broke in {source}: 3 uses. Uses to tell senses apart by, near copies counted once: 3." in out
    assert "Sandy [broke] the law." in out
    assert "3 texts, " in err


def test_texts_are_read_as_embed_reads_them(run: Run, tiny: Path, tmp_path: Path) -> None:
    prose = tmp_path / "prose.txt"
    prose.write_text(" ".join(SENTENCES.splitlines()))
    same = run("similar", "We [broke].", "--in", prose, "--split", "sentence", "-m", tiny, "--same-word", "--json")
    uses = json.loads(same.out)["near"]["same"]
    assert sorted((use["id"], use["text"]) for use in uses) == [
        (f"1.{number}", line) for number, line in enumerate(SENTENCES.splitlines()[:3], start=1)
    ]
    assert "broke in " in run("senses", "broke", "--in", prose, "--split", "sentence", "-m", tiny).out
    table = tmp_path / "table.data"
    table.write_text("key;body\nnews;The news broke.\ndawn;Dawn broke.\nlaw;Sandy broke the law.\n")
    options = ["--format", "csv", "--delimiter", ";", "--quotes", "none", "--id-field", "key", "--field", "body"]
    grouped = json.loads(run("senses", "broke", "--in", table, *options, "-m", tiny, "--json").out)
    assert [use["id"] for use in grouped["uses"]] == ["news", "dawn", "law"]


def test_an_index_knows_how_its_text_was_read(run: Run, refuse: Refuse, tiny: Path, source: Path) -> None:
    asked = ("similar", "We [broke].", "--in", source, "--index", source.parent / "uses", "-m", tiny)
    assert run(*asked, "--split", "document").code == 0
    assert run(*asked, "--split", "document").code == 0
    assert "split document" in refuse(*asked, folder=source.parent)


def test_several_inputs_are_all_read(run: Run, tiny: Path, source: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.txt"
    more.write_text("It broke.\n\nWe broke even. She broke it.\n", encoding="utf-8")
    both = ["--in", source, "--in", more, "-m", tiny, "--split", "sentence", "--json"]
    grouped = json.loads(run("senses", "broke", *both).out)
    expected = ["more.txt:1.1", "more.txt:3.1", "more.txt:3.2"]
    assert [use["id"] for use in grouped["uses"]] == [*(f"sentences.txt:{line}.1" for line in (1, 2, 3)), *expected]
    near = json.loads(run("similar", "I [broke] it.", *both, "--same-word").out)
    assert {use["id"] for use in near["near"]["same"]} >= set(expected)


def test_ids_fields_names_and_glosses_are_printed(run: Run, tiny: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,text,by\n7,Dawn broke.,Woolf\n8,The news broke.,Wolfe\n9,It broke.,Woolf\n", encoding="utf-8")
    options = ["--in", rows, "--field", "text", "--id-field", "id", "--fields", "by", "-m", tiny]
    near = run("similar", "We [broke] even.", *options, "--same-word").out.splitlines()
    assert all(re.match(r"[ -]?[01]\.\d{3}  [789]  by=Wo(olf|lfe) +\S.*\[broke\]", line) for line in near[1:])
    wordnet = Path(__file__).parent.parent / "word_senses" / "wordnet"
    ended = run("senses", "broke", *options, "--wordnet", wordnet, "--n-senses", 2)
    assert re.search(r"^sense 1, \S.*, 2 uses \(broke:[0-9a-f]{6}\)$", ended.out, re.M)
    assert "8  by=Wolfe  The news [broke]." in ended.out
    assert re.search(r"^WordNet break#v#1, -?0\.\d\d \(break, shatter\): go to pieces\.$", ended.out, re.M)
    assert "In its place: " in ended.out


def test_senses_are_applied_to_other_texts(run: Run, refuse: Refuse, tiny: Path, source: Path, tmp_path: Path) -> None:
    assert run("senses", "broke", "--in", source, "-m", tiny, "--n-senses", 2, "-o", tmp_path / "broke.json").code == 0
    before = json.loads((tmp_path / "broke.json").read_text(encoding="utf-8"))
    again = run("senses", "broke", "--in", source, "-m", tiny, "--apply", tmp_path / "broke.json", "--json")
    after = json.loads(again.out)
    assert [use["sense"] for use in after["uses"]] == [use["sense"] for use in before["uses"]]
    assert [sense["id"] for sense in after["senses"]] == [sense["id"] for sense in before["senses"]]
    ask = ("senses", "broke", "--in", source, "-m", tiny, "--layer", 1, "--apply", tmp_path / "broke.json")
    assert "differ in layer (3 there, 1 here)" in refuse(*ask, folder=tmp_path)


def test_an_option_with_one_value_is_given_once(refuse: Refuse, tiny: Path, source: Path) -> None:
    ask = ("senses", "broke", "--in", source, "-m", tiny, "--n-senses", 2, "--n-senses", 3)
    assert "--n-senses was given 2 times, and takes one value." in refuse(*ask, folder=source.parent)


@pytest.mark.parametrize(
    ("ending", "start"), [("html", b"<!doctype html>"), ("json", b"{"), ("png", b"\x89PNG"), ("svg", b"<?xml")]
)
def test_senses_writes_what_the_ending_says(
    run: Run, tiny: Path, source: Path, tmp_path: Path, ending: str, start: bytes
) -> None:
    output = tmp_path / f"broke.{ending}"
    ended = run("senses", "broke", "--in", source, "-m", tiny, "--n-senses", 2, "-o", output)
    assert ended.code == 0
    assert "2 senses in 3 uses. The number was given." in ended.out
    assert output.read_bytes().startswith(start)
    assert f"{output}: 3 texts" in ended.err


def test_texts_may_come_from_standard_input(run: Run, tiny: Path) -> None:
    ended = run("senses", "broke", "--in", "-", "-m", tiny, stdin=SENTENCES.encode())
    assert ended.code == 0
    assert "broke in standard input: 3 uses" in ended.out


def test_texts_may_be_a_field(run: Run, tiny: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"body": line}) + "\n" for line in SENTENCES.splitlines()))
    assert run("senses", "broke", "--in", rows, "--field", "body", "-m", tiny).code == 0
    assert run("similar", "We [broke].", "--in", rows, "--field", "body", "-m", tiny).code == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["similar", "We broke even."], "No word is marked in 'We broke even.'"),
        (["similar", "We [bro]ke even."], "ends inside a word"),
        (["similar", "We [broke] even.", "-o", "near.txt"], "must end in .json, .html"),
        (["similar", "We [broke] even.", "-o", "sentences.txt/near.json"], "sentences.txt"),
        (["similar", "We [broke] even.", "--top", "0"], "at least 1"),
        (["similar", "We [broke] even.", "--layer", "9"], "Layer '9' is not there"),
        (["similar", "We [broke] even.", "--against", "all"], "one vector"),
        (["similar", "A [heron].", "--same-word"], "'heron' does not occur"),
        (["senses", "heron"], "'heron' does not occur"),
        (["senses", "fish"], "'fish' occurs only once"),
        (["senses", "broke", "-o", "broke.gif"], "must end in .html, .json, .png, .svg"),
        (["senses", "broke", "--n-senses", "9"], "from 1 to that of the uses, 3"),
        (["senses", "broke", "--map", "pac"], "Did you mean 'pca'?"),
        (["senses", "broke", "--wordnet", "."], "not WordNet's: it has no file index.noun"),
        (["senses", "broke", "--apply", "sentences.txt"], "cannot be read as JSON"),
        (["similar", "We [broke].", "--fields", "author"], "'fields' is for"),
    ],
)
def test_what_cannot_be_done_is_refused(
    refuse: Refuse, tiny: Path, source: Path, monkeypatch: pytest.MonkeyPatch, line: list[str], message: str
) -> None:
    monkeypatch.chdir(source.parent)
    assert message in refuse(*line, "--in", source, "-m", tiny, folder=source.parent)


def test_an_index_of_another_model_is_refused(run: Run, refuse: Refuse, tiny: Path, source: Path) -> None:
    uses = source.parent / "uses"
    assert run("similar", "We [broke].", "--in", source, "--index", uses, "-m", tiny).code == 0
    told = refuse("similar", "We [broke].", "--index", uses, "-m", tiny, "--layer", "1", folder=source.parent)
    assert "differs in layer (3 there, 1 here)" in told
    (source.parent / "other").mkdir()
    told = refuse("similar", "We [broke].", "--index", source.parent / "other", "-m", tiny, folder=source.parent)
    assert "Name the text in which to look for uses with --in." in told


def test_an_output_that_is_there_is_kept(run: Run, refuse: Refuse, tiny: Path, source: Path) -> None:
    output = source.parent / "broke.html"
    output.write_text("mine")
    ask = ("senses", "broke", "--in", source, "-m", tiny, "-o", output)
    assert "--force" in refuse(*ask, folder=source.parent)
    assert run(*ask, "--force").code == 0
    assert output.read_text().startswith("<!doctype html>")

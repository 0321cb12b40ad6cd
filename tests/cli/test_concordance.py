"""`polyseme concordance`, as a user calls it: what it finds, how lines are sorted and written, what is refused."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

import polyseme
from cli.commands import Refuse, Run

SENTENCES = (
    "Dawn broke over the house.\nThe news broke.\nA crane caught a fish.\nSandy broke a law and Zoë Broke even.\n"
)
TREEBANK = """# sent_id = one
# text = She breaks it.
1\tShe\tshe\tPRON\t_\t_\t2\tnsubj\t_\t_
2\tbreaks\tbreak\tVERB\t_\t_\t0\troot\t_\t_
3\tit\tit\tPRON\t_\t_\t2\tobj\t_\tSpaceAfter=No
4\t.\t.\tPUNCT\t_\t_\t2\tpunct\t_\t_

# sent_id = two
# text = We broke even
1\tWe\twe\tPRON\t_\t_\t2\tnsubj\t_\t_
2\tbroke\tbreak\tVERB\t_\t_\t0\troot\t_\t_
3\teven\teven\tADV\t_\t_\t2\tadvmod\t_\t_

"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.txt"
    path.write_text(SENTENCES, encoding="utf-8")
    return path


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    path = tmp_path / "treebank.conllu"
    path.write_text(TREEBANK, encoding="utf-8")
    return path


def test_matches_are_printed_in_one_column(run: Run, source: Path) -> None:
    code, out, err = run("concordance", "broke", "--in", source, "--width", 12)
    assert code == 0
    assert out.splitlines() == [
        "1       Dawn [broke] over the …",
        "2   The news [broke].",
        "4      Sandy [broke] a law and …",
        "4  … and Zoë [Broke] even.",
    ]
    assert err == f"4 matches in 3 texts of {source}.\n"


@pytest.mark.parametrize(
    ("sort", "ids"), [("text", ["1", "2", "4", "4"]), ("left", ["1", "2", "4", "4"]), ("right", ["2", "4", "4", "1"])]
)
def test_lines_are_sorted(source: Path, sort: str, ids: list[str]) -> None:
    result = polyseme.concordance("broke", source=source, sort=sort)  # type: ignore[arg-type]
    assert [line.id for line in result.lines] == ids


def test_a_lemma_is_found_in_a_treebank(run: Run, treebank: Path) -> None:
    out = run("concordance", "break", "--match", "lemma", "--in", treebank, "--fields", "upos", "--json").out
    lines = json.loads(out)["lines"]
    assert [(line["id"], line["text"][line["start"] : line["end"]]) for line in lines] == [
        ("one", "breaks"),
        ("two", "broke"),
    ]
    assert lines[1]["fields"] == {"upos": "VERB"}


def test_a_text_in_the_place_of_a_file(refuse: Refuse, tmp_path: Path) -> None:
    message = refuse("concordance", "broke", "--in", "Dawn broke here.", folder=tmp_path)
    assert message.endswith("If it is a text: texts are read from standard input (-), or in Python from a list.")
    assert "text" not in refuse("concordance", "broke", "--in", "dawn.csv", folder=tmp_path)


def test_a_pattern_is_found(run: Run, source: Path) -> None:
    out = run("concordance", r"the \w+", "--match", "pattern", "--match-case", "--in", source).out
    assert out == "1  Dawn broke over [the house].\n"


def test_texts_may_come_from_standard_input_and_a_sample_is_drawn(run: Run) -> None:
    ended = run("concordance", "broke", "--in", "-", "--sample", 2, stdin=SENTENCES.encode())
    assert len(ended.out.splitlines()) == 2
    assert "4 matches in 3 texts of standard input, of which 2 are shown." in ended.err


def test_a_terminal_obeys_no_text(run: Run) -> None:
    out = run("concordance", "broke", "--in", "-", stdin=b"a \x1b[31mred broke\x07 \xc2\x9b1m\n").out
    assert out == "1  a \\x1b[31mred [broke]\\x07 \\x9b1m\n"


def test_long_texts_are_cut_and_offsets_count_in_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("x " * 5000 + "dawn broke " + "y " * 5000)
    [line] = polyseme.concordance("broke", source=path).lines
    assert len(line.text) == 2005
    assert line.offset + line.start == 10005


def test_texts_may_be_in_memory_and_the_result_is_a_short_table() -> None:
    result = polyseme.concordance("broke", source=(line for line in SENTENCES.splitlines() * 9))
    assert result.n_matches == 36
    assert repr(result).splitlines()[0] == "36 matches in 27 texts of the list of texts"
    assert len(repr(result).splitlines()) == 12
    with pytest.raises(polyseme.PolysemeError, match=r"There is: 'broke' \(36 times\)"):
        polyseme.concordance("brook", source=(line for line in SENTENCES.splitlines() * 9))


def test_plain_concordances_do_not_load_torch(source: Path) -> None:
    script = (
        "import sys, polyseme\n"
        f"source = {str(source)!r}\n"
        "result = polyseme.concordance('broke', source=source, sort='right', output=source + '.html')\n"
        "assert len(result.lines) == 4\n"
        "polyseme.concordance('br.ke', source=source, match='pattern')\n"
        "assert not {'torch', 'tokenizers', 'safetensors'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_lines_are_sorted_by_similarity_to_a_marked_use(run: Run, tiny: Path, source: Path) -> None:
    like = "Dawn [broke] over the house."
    result = polyseme.concordance("broke", source=source, like=like, model=tiny)
    cosines = [line.cosine for line in result.lines]
    assert cosines[0] == pytest.approx(1, abs=1e-5)
    assert cosines == sorted(cosines, reverse=True)  # type: ignore[type-var]
    assert result.lines[0].id == "1"
    out = run("concordance", "broke", "--in", source, "--like", like, "-m", tiny).out
    assert out.startswith("1.000  1")
    words = polyseme.concordance("the house|caught a", source=source, like=like, model=tiny, match="pattern")
    assert {line.text[line.start : line.end] for line in words.lines} == {"the house", "caught a"}


def test_lines_are_sorted_by_sense(run: Run, tiny: Path, source: Path) -> None:
    result = polyseme.concordance("broke", source=source, sort="sense", n_senses=2, model=tiny)
    assert [line.sense for line in result.lines] == sorted(line.sense or 0 for line in result.lines)
    assert {line.sense for line in result.lines} == {1, 2}
    assert (
        "The number was given."
        in run("concordance", "broke", "--in", source, "--sort", "sense", "--n-senses", 2, "-m", tiny).err
    )


def test_lines_are_written_by_their_ending(run: Run, source: Path, tmp_path: Path) -> None:
    names = {ending: tmp_path / f"broke.{ending}" for ending in ("txt", "csv", "html", "json")}
    for name in names.values():
        assert run("concordance", "broke", "--in", source, "-o", name).out == ""
    assert names["txt"].read_text(encoding="utf-8") == run("concordance", "broke", "--in", source).out
    rows = list(csv.DictReader(names["csv"].read_text(encoding="utf-8").splitlines()))
    assert [row["match"] for row in rows] == ["broke", "broke", "broke", "Broke"]
    texts = SENTENCES.splitlines()
    assert all(texts[int(row["id"]) - 1][int(row["start"]) : int(row["end"])] == row["match"] for row in rows)
    assert names["html"].read_text(encoding="utf-8").count("<tr>") == 4
    assert json.loads(names["json"].read_text(encoding="utf-8"))["n_matches"] == 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["brook"], "There is no match of the word 'brook' in sentences.txt. There is: 'broke' (4 times)."),
        (["x{9}", "--match", "pattern"], "There is no match of the pattern"),
        (["(", "--match", "pattern"], "'(' is no regular expression: missing ), unterminated subpattern"),
        (["broke", "--match", "lemma"], "in the column 'lemma' of a treebank (CoNLL-U)"),
        ([" "], "The word to look for is blank"),
        (["broke", "--match", "words"], "There is no match 'words'. Did you mean 'word'?"),
        (["broke", "--sort", "lef"], "Did you mean 'left'?"),
        (["broke", "--sort", "similarity"], "give it with --like"),
        (["broke", "--sort", "left", "--like", "Dawn [broke]."], "and no other order"),
        (["broke", "--n-senses", "2"], "sorted by sense"),
        (["broke", "--width", "0"], "'width' must be at least 1"),
        (["broke", "--sample", "0"], "'sample' must be at least 1"),
        (["broke", "-o", "broke.png"], "must end in .txt, .csv, .html, .json"),
    ],
)
def test_what_cannot_be_done_is_refused(
    refuse: Refuse, source: Path, monkeypatch: pytest.MonkeyPatch, line: list[str], message: str
) -> None:
    monkeypatch.chdir(source.parent)
    assert message in refuse("concordance", *line, "--in", "sentences.txt", folder=source.parent)


def test_a_lemma_that_the_treebank_lacks_is_refused_with_the_nearest(refuse: Refuse, treebank: Path) -> None:
    line = ("concordance", "breaks", "--match", "lemma", "--in", treebank)
    assert "There is: 'break' (2 times)." in refuse(*line, folder=treebank.parent)

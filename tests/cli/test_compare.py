"""`polyseme compare`, as a user calls it: one word, all words, and what cannot be compared."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import polyseme
from cli.commands import Refuse, Run
from polyseme.errors import OptionError
from polyseme.two_corpora.compare_word import Comparison
from polyseme.two_corpora.compare_words import Differences
from polyseme.two_corpora.measures import divergence

SUBJECTS = ("The vase", "Dawn", "The news", "Sandy", "We", "The burglar", "A crane", "The note")
FIRST = "".join(f"{subject} broke the law, and the law broke {subject}.\n" for subject in SUBJECTS)
SECOND = "".join(f"In the house {subject} caught a fish when dawn broke over it.\n" for subject in SUBJECTS)


@pytest.fixture
def corpora(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text(FIRST, encoding="utf-8")
    second.write_text(SECOND, encoding="utf-8")
    return first, second


def both(corpora: tuple[Path, Path]) -> list[object]:
    return ["--in", corpora[0], "--in", corpora[1]]


def test_a_word_is_measured_tested_and_shown_with_its_senses(run: Run, tiny: Path, corpora: tuple[Path, Path]) -> None:
    code, out, err = run("compare", "Broke", *both(corpora), "-m", tiny, "--n-senses", 2)
    assert code == 0
    assert f"Broke in {corpora[0]} (16 uses) and {corpora[1]} (8 uses): the uses differ (p " in out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[3:7]}
    assert set(rows) == {"difference", "APD", "PRT", "JSD"}
    assert float(rows["difference"][0]) > 0
    result = polyseme.compare("Broke", source=corpora, model=tiny, n_senses=2)
    assert isinstance(result, Comparison)
    first, second = (np.array([[each.shares[side] for each in result.senses]]) for side in (0, 1))
    assert rows["JSD"][0] == f"{divergence(first, second)[0]:.3f}"
    assert out.count("[broke]") == sum(len(lines) for each in result.senses for lines in each.examples)
    for each in result.senses:
        around = f" ({', '.join(each.neighbors[:3])})" if each.neighbors else ""
        assert f"sense {each.sense}{around}, {100 * each.shares[0]:.0f}% → {100 * each.shares[1]:.0f}%, " in out
    assert "The 8 + 8 texts (or documents) with the word were exchanged between the corpora 1,000 times" in err


def test_words_that_the_model_cannot_read_are_reported_once(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("Dawn broke \u2603 here.\nIt broke.\n", encoding="utf-8")
    ended = run("compare", "broke", "--in", tmp_path / "in.txt", "--in", tmp_path / "in.txt", "-m", tiny)
    assert ended.code == 0
    assert ended.err.count("note: The model's tokenizer has no pieces for 2 words") == 1
    assert ended.err.count("note: The model's tokenizer") == 1


def test_a_frame_is_one_corpus_and_not_as_many_as_it_has_columns(tiny: Path) -> None:
    frame = pd.DataFrame({"text": FIRST.splitlines(), "year": 1900})
    with pytest.raises(OptionError, match="Two corpora are compared, and 1 was given"):
        polyseme.compare("broke", source=frame, model=tiny)  # type: ignore[arg-type]


def test_the_same_corpus_twice_does_not_differ(tiny: Path, corpora: tuple[Path, Path]) -> None:
    result = polyseme.compare("law", source=[corpora[0], corpora[0]], model=tiny)
    assert isinstance(result, Comparison)
    assert result.difference.p is not None
    assert result.difference.p > 0.5
    assert result.prt.value == pytest.approx(0, abs=1e-6)
    assert result.n_groups == (8, 8)


def test_words_whose_uses_are_all_alike_have_no_effect(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("dawn broke\n" * 8, encoding="utf-8")
    done = run("compare", *both((tmp_path / "a.txt",) * 2), "-m", tiny, "--min-uses", 4, "-o", tmp_path / "out.html")
    assert done.code == 0, done.err
    assert "dawn" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_corpora_may_be_texts_in_memory(tiny: Path, corpora: tuple[Path, Path]) -> None:
    of_files = polyseme.compare("broke", source=corpora, model=tiny)
    texts = [FIRST.splitlines(), (line for line in SECOND.splitlines())]
    in_memory = polyseme.compare("broke", source=texts, model=tiny)
    assert isinstance(of_files, Comparison)
    assert isinstance(in_memory, Comparison)
    assert in_memory.sources == ("the list of texts (1)", "the list of texts (2)")
    assert in_memory.difference == of_files.difference
    frame = pd.DataFrame({"text": FIRST.splitlines() + SECOND.splitlines()})
    words = polyseme.compare(source=[frame[:8], frame[8:]], model=tiny, min_uses=8)
    assert isinstance(words, Differences)
    assert {each.word for each in words.words} == {"broke", "the"}


def test_results_are_shown_as_short_tables(tiny: Path, corpora: tuple[Path, Path]) -> None:
    word = polyseme.compare("broke", source=corpora, model=tiny)
    assert repr(word).startswith(f"broke in {corpora[0]} (16) and {corpora[1]} (8): the uses differ (p ")
    assert len(repr(word).splitlines()) == 7
    words = polyseme.compare(source=corpora, model=tiny, min_uses=2)
    assert len(repr(words).splitlines()) <= 12
    assert "<td" in str(words._repr_html_())


def test_uses_are_drawn_and_it_is_reported(run: Run, tiny: Path, corpora: tuple[Path, Path]) -> None:
    printed = run("compare", "broke", *both(corpora), "-m", tiny, "--max-uses", 7, "--seed", 3)
    assert f"Of 16 uses in {corpora[0]}, 7 were drawn." in printed.err
    result = polyseme.compare("broke", source=corpora, model=tiny, max_uses=7, seed=3)
    assert isinstance(result, Comparison)
    assert result.n_uses == (7, 7)
    again = polyseme.compare("broke", source=corpora, model=tiny, max_uses=7, seed=3)
    assert isinstance(again, Comparison)
    assert again.uses == result.uses
    assert again.difference == result.difference


def test_lines_between_empty_ones_are_exchanged_together(tiny: Path, tmp_path: Path) -> None:
    lines = FIRST.splitlines()
    blocks = tmp_path / "blocks.txt"
    blocks.write_text("\n\n".join("\n".join(lines[start : start + 2]) for start in range(0, 8, 2)), encoding="utf-8")
    rows = tmp_path / "rows.jsonl"
    keys = ["a", "b", None, "a", "c", "d", "e", "f"]
    rows.write_text(
        "".join(json.dumps({"text": text, "by": key}) + "\n" for text, key in zip(lines, keys, strict=True))
    )
    source = [blocks, rows]

    def n_groups(**options: str) -> tuple[int, int]:
        result = polyseme.compare("law", source=options.pop("source", source), model=tiny, **options)  # type: ignore[arg-type]
        assert isinstance(result, Comparison)
        assert sum(result.n_uses) == 32
        return result.n_groups

    assert n_groups(field="text", format="jsonl", group_by="by", source=[rows, rows]) == (6, 6)  # type: ignore[arg-type]
    assert n_groups(source=[blocks, blocks]) == (4, 4)  # type: ignore[arg-type]
    assert n_groups(source=[blocks, blocks], group_by="texts") == (8, 8)  # type: ignore[arg-type]


def test_too_few_texts_have_no_p_value(run: Run, tiny: Path, corpora: tuple[Path, Path]) -> None:
    corpora[1].write_text("Dawn broke.\nThe vase broke.\n")
    code, out, err = run("compare", "broke", *both(corpora), "-m", tiny)
    assert code == 0
    assert "(2 uses): not tested." in out
    assert "There is no p-value: the word occurs in 8 + 2 texts" in err
    words = polyseme.compare(source=corpora, model=tiny, min_uses=2)
    assert isinstance(words, Differences)
    assert [(each.word, each.p) for each in words.words if each.word == "broke"] == [("broke", None)]
    assert "without a p-value: 1." in words.explanation
    alone = polyseme.compare("dawn", source=corpora, model=tiny)
    assert isinstance(alone, Comparison)
    assert alone.apd.value is not None
    assert alone.apd.value > 0
    assert alone.difference.value is None
    output = corpora[0].parent / "alone.json"
    run("compare", "dawn", *both(corpora), "-m", tiny, "-o", output)
    assert "NaN" not in output.read_text()
    assert run("compare", "dawn", *both(corpora), "-m", tiny, "-o", output.with_suffix(".html")).code == 0


def test_all_words_are_listed_with_adjusted_p(run: Run, tiny: Path, corpora: tuple[Path, Path]) -> None:
    code, out, err = run("compare", *both(corpora), "-m", tiny, "--min-uses", 8, "--top", 2)
    assert code == 0
    result = polyseme.compare(source=corpora, model=tiny, min_uses=8, top=2)
    assert isinstance(result, Differences)
    assert {each.word for each in result.words} == {"broke", "the"}  # a comma is no word to compare
    assert all(
        each.p is not None and each.p_adjusted is not None and each.p <= each.p_adjusted for each in result.words
    )
    assert [line.split()[0] for line in out.splitlines()[3:5]] == [each.word for each in result.listed]
    assert {use.text for use in result.words[0].lines[0]} <= set(FIRST.splitlines())
    assert {use.text for use in result.words[0].lines[1]} <= set(SECOND.splitlines())
    assert "Compared: words with at least 8 uses in each corpus" in err


@pytest.mark.parametrize("word", [["broke"], []], ids=["one word", "all words"])
def test_results_are_written_by_their_ending(
    run: Run, tiny: Path, corpora: tuple[Path, Path], tmp_path: Path, word: list[str]
) -> None:
    names = [tmp_path / f"result.{ending}" for ending in ("html", "json", "csv")]
    options = [] if word else ["--min-uses", 4]
    for name in names:
        assert run("compare", *word, *both(corpora), "-m", tiny, *options, "-o", name).code == 0
    assert names[0].read_text(encoding="utf-8").startswith("<!doctype html>")
    content = json.loads(names[1].read_text(encoding="utf-8"))
    rows = list(csv.DictReader(names[2].read_text(encoding="utf-8").splitlines()))
    if word:
        assert len(rows) == len(content["uses"]) == 24
        assert {row["corpus"] for row in rows} == {"1", "2"}
    else:
        assert [row["word"] for row in rows] == [each["word"] for each in content["words"]]
    assert json.loads(run("compare", *word, *both(corpora), "-m", tiny, *options, "--json").out)["sources"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["broke", "--in", "first.txt"], "Two corpora are compared, and 1 was given. Give --in twice"),
        (["broke", *["--in", "first.txt"] * 3], "and 3 were given"),
        (["law", "--in", "first.txt", "--in", "second.txt"], "occurs 16 times in first.txt and not at all in second"),
        (["fishes", "--in", "second.txt", "--in", "second.txt"], "In second.txt (1) there is: 'fish' (8 times)."),
        ([" ", "--in", "first.txt", "--in", "second.txt"], "is blank"),
        (["broke", "--in", "first.txt", "--in", "-"], "standard input can be read only once"),
        (["broke", "--in", "first.txt", "--in", "second.txt", "--top", "3"], "'top' is for all words"),
        (["--in", "first.txt", "--in", "second.txt", "--map", "tsne"], "'map' is for one word"),
        (["--in", "first.txt", "--in", "second.txt"], "No word has 20 uses both in first.txt and in second.txt"),
        (["--in", "first.txt", "--in", "second.txt", "--top", "0"], "'top' must be at least 1"),
        (["broke", "--in", "first.txt", "--in", "second.txt", "--max-uses", "1"], "At least 2 uses"),
        (["broke", "--in", "first.txt", "--in", "second.txt", "--n-senses", "99"], "from 1 to that of the uses, 24"),
        (["broke", "--in", "first.txt", "--in", "second.txt", "-o", "x.png"], "must end in .html, .json, .csv"),
        (["broke", "--in", "first.txt", "--in", "missing.txt"], "There is no file missing.txt"),
        (
            ["broke", "--in", "first.txt", "--in", "second.txt", "--group-by", "text"],
            "The test exchanges texts, blocks, or",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(
    refuse: Refuse,
    tiny: Path,
    corpora: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    line: list[str],
    message: str,
) -> None:
    folder = corpora[0].parent
    monkeypatch.chdir(folder)
    assert message in refuse("compare", *line, "-m", tiny, folder=folder, stdin=b"Dawn broke.\n")

"""Readers of minimal pairs and last words: the real files, with their counts, and files that are not in order."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from pathlib import Path

import pytest

from polyseme.datasets import agreement, lambada
from polyseme.datasets import minimal_pairs as blimp
from polyseme.datasets.benchmark import find_data
from polyseme.datasets.minimal_pairs import MinimalPair, PairSet, limit_pairs, read_pairs
from polyseme.errors import InputError

# --- the real files ---------------------------------------------------------------------------------------------------


def test_blimp_is_67_paradigms_of_1000_pairs(data: Path) -> None:
    [found] = blimp.read_blimp(find_data(data, "blimp", blimp.FILES))
    assert found.levels == ("field", "paradigm")
    assert len(found.pairs) == 67_000
    paradigms = Counter(pair.groups[1] for pair in found.pairs)
    assert len(paradigms) == 67
    assert set(paradigms.values()) == {1000}
    fields = {pair.groups for pair in found.pairs}
    assert Counter(field for field, _ in fields) == {
        "syntax": 26,
        "morphology": 18,
        "syntax_semantics": 14,
        "semantics": 9,
    }
    assert found.pairs[0].good == "Who should Derek hug after shocking Richard?"
    assert found.pairs[0].bad == ("Who should Derek hug Richard after shocking?",)


def test_lambada_is_5153_passages_and_their_last_words(data: Path) -> None:
    items = lambada.read_lambada(find_data(data / "tasks", "lambada", lambada.FILES))
    assert len(items) == 5153
    assert [str(item.document.words[-1]) for item in items[:3]] == ["signs", "Shane", "insurance"]
    for item in items:
        last = item.document.words[-1]
        assert item.document.text[last.start :] == last
        assert item.document.text[last.start - 1].isspace()
        assert not any(character.isspace() for character in last)


def test_the_three_agreement_sets(data: Path) -> None:
    linzen, gulordava, marvin = agreement.read_agreement(
        find_data(data / "tasks" / "agreement", "agreement", agreement.FILES)
    )
    assert [each.name for each in (linzen, gulordava, marvin)] == ["linzen", "gulordava", "marvin"]
    assert len(linzen.pairs) == 7485
    assert "4 rows are left out" in linzen.notes[0]
    assert Counter(pair.groups for pair in gulordava.pairs if pair.groups[0]) == Counter(
        pair.groups for pair in gulordava.pairs
    )
    assert Counter(pair.groups[0] for pair in gulordava.pairs) == {"nonce": 369, "original": 41}
    assert len(marvin.pairs) == 10_284
    assert len({pair.groups[0] for pair in marvin.pairs}) == 22
    assert Counter(len(pair.bad) for pair in marvin.pairs) == {1: 10_284 - 864, 2: 864}
    for pair in (*linzen.pairs, *gulordava.pairs):
        assert pair.focus is not None
        [bad] = pair.bad
        differing = [place for place, words in enumerate(zip(pair.good, bad, strict=True)) if len(set(words)) > 1]
        assert differing in ([pair.focus], [])
    assert not any("<eos>" in pair.good for pair in gulordava.pairs)


# --- one's own --------------------------------------------------------------------------------------------------------


def test_pairs_of_ones_own_in_every_format(tmp_path: Path) -> None:
    rows = [
        {"good": "Dawn broke.", "bad": "Dawn break.", "group": "verbs"},
        {"good": 'A, "b"', "bad": "B, a", "group": "x"},
    ]
    (tmp_path / "a.csv").write_text('good,bad,group\nDawn broke.,Dawn break.,verbs\n"A, ""b""","B, a",x\n')
    (tmp_path / "b.tsv").write_text('group\tgood\tbad\nverbs\tDawn broke.\tDawn break.\nx\t"A, ""b"""\tB, a\n')
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with lzma.open(tmp_path / "d.jsonl.xz", "wt") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    for file_name in ("a.csv", "b.tsv", "c.jsonl", "d.jsonl.xz"):
        [found] = read_pairs([tmp_path / file_name])
        assert found.levels == ("group",)
        assert [(pair.good, pair.bad, pair.groups) for pair in found.pairs] == [
            ("Dawn broke.", ("Dawn break.",), ("verbs",)),
            ('A, "b"', ("B, a",), ("x",)),
        ]


def test_pairs_without_a_group_and_of_given_words(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"good": ["Dawn", "broke"], "bad": ["Dawn", "break"]}\n')
    [found] = read_pairs([file])
    assert found.levels == ()
    assert found.pairs == [MinimalPair(("Dawn", "broke"), (("Dawn", "break"),), (), place=f"{file}, line 1")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("good\tbad\na\t\n", r"line 2: 'bad' is missing or empty"),
        ("good\tbad\n \tb\n", r"line 2: 'good' is missing or empty"),
        ("good\twrong\na\tb\n", r"no column 'bad'. There are: good, wrong"),
        ("right\tbad\na\tb\n", r"there is no field 'good'"),
        ("good\tbad\na\tb\tc\n", r"line 2: there are 3 fields"),
        ("", "is empty"),
    ],
)
def test_pairs_that_are_not_in_order(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "p.tsv"
    file.write_text(content)
    with pytest.raises(InputError, match=said):
        read_pairs([file])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"good": "a", "bad": null}', "'bad' is missing"),
        ('{"good": "a", "bad": 3}', "must be a text or a list of words. Got 3"),
        ('{"good": "a", "bad": []}', "'bad' is missing"),
        ('{"good": "a", "bad": ["b", ""]}', "must be a text or a list of words"),
        ('{"good": "a"}', "no column 'bad'"),
    ],
)
def test_json_pairs_that_are_not_in_order(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(InputError, match=said):
        read_pairs([file])


def test_a_later_record_without_its_bad_side(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"good": "a", "bad": "b"}\n{"good": "c"}\n')
    with pytest.raises(InputError, match="line 2: 'bad' is missing"):
        read_pairs([file])


# --- agreement and lambada --------------------------------------------------------------------------------------------

HEADER = "pattern\tconstr_id\tsent_id\tform\tclass\ttype\tlen_prefix\tsent\n"


def test_gulordavas_pairs_of_which_one_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "colorless.tab"
    file.write_text(f"{HEADER}p\t0\t0\tis\tcorrect\toriginal\t1\tIt is so . <eos>\n")
    with pytest.raises(InputError, match="line 2: the wrong form of this sentence is missing"):
        agreement.read_agreement([file])
    with file.open("a") as more:
        more.write("p\t0\t0\tare\twrong\toriginal\t1\tIt is so . <eos>\n")
    [found] = agreement.read_agreement([file])
    [pair] = found.pairs
    assert (pair.good, pair.bad, pair.focus) == (("It", "is", "so", "."), (("It", "are", "so", "."),), 1)


@pytest.mark.parametrize(("place", "said"), [("9", "the sentence has 4 words"), ("x", "must be a whole number")])
def test_gulordavas_places(tmp_path: Path, place: str, said: str) -> None:
    file = tmp_path / "colorless.tab"
    rows = [
        f"p\t0\t0\t{form}\t{kind}\toriginal\t{place}\tIt is so . <eos>\n"
        for form, kind in (("is", "correct"), ("are", "wrong"))
    ]
    file.write_text(HEADER + "".join(rows))
    with pytest.raises(InputError, match=said):
        agreement.read_agreement([file])


@pytest.mark.parametrize("name", ["notes.txt", "linzen.csv"])
def test_a_file_of_another_layout(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("a\n")
    with pytest.raises(InputError, match="none of the agreement sets"):
        agreement.read_agreement([tmp_path / name])


@pytest.mark.parametrize(("text", "said"), [("   ", "empty"), ("one", "one word long")])
def test_a_passage_with_nothing_before_its_last_word(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "lambada_test.jsonl"
    file.write_text(json.dumps({"text": "He saw her"}) + "\n" + json.dumps({"text": text}) + "\n")
    with pytest.raises(InputError, match=f"line 2: the passage is {said}"):
        lambada.read_lambada([file])


def test_where_data_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs its data"):
        find_data(None, "blimp", blimp.FILES)
    with pytest.raises(InputError, match="There is no file or folder"):
        find_data(tmp_path / "nowhere", "blimp", blimp.FILES)
    with pytest.raises(InputError, match=r"does not hold the data of blimp. Looked for .*tasks/blimp"):
        find_data(tmp_path, "blimp", blimp.FILES)
    own = tmp_path / "tasks" / "blimp"
    own.mkdir(parents=True)
    for name in ("a.jsonl", "a.jsonl.xz", "b.jsonl.gz", "README.md"):
        (own / name).write_bytes(b"")
    expected = [own / "a.jsonl", own / "b.jsonl.gz"]
    for folder in (tmp_path, tmp_path / "tasks", own):
        assert find_data(folder, "blimp", blimp.FILES) == expected
    assert find_data(own / "a.jsonl.xz", "blimp", blimp.FILES) == [own / "a.jsonl.xz"]


def test_a_sample_takes_evenly_spaced_pairs_of_each_group() -> None:
    pairs = [MinimalPair(f"{group} {n}", ("bad",), (group,)) for n in range(10) for group in ("a", "b")]
    pairs.append(MinimalPair("c 0", ("bad",), ("c",)))
    [sample] = limit_pairs([PairSet("own", ("group",), pairs)], 4)
    assert [pair.good for pair in sample.pairs if pair.groups == ("a",)] == ["a 0", "a 2", "a 5", "a 7"]
    assert [pair.good for pair in sample.pairs if pair.groups == ("c",)] == ["c 0"]
    assert sample.notes == ("A sample: 9 of the 21 pairs of own, at most 4 of each group.",)
    whole = PairSet("own", ("group",), pairs)
    assert limit_pairs([whole], 10) == [whole]

"""One file or many: paths, folders, patterns and standard input, in order, each once, with ids that tell them apart."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from files.nasty.packed import PACK
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files import readers as readers_room
from polyseme.files.readers import ENDINGS, READERS, STRUCTURED
from polyseme.files.rows import Row, read_rows
from polyseme.files.source import COMPRESSIONS


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with folders in it, and with what is no text."""
    folder = tmp_path / "corpus"
    for name, content in {
        "b.txt": "b1\nb2\n",
        "a/z.jsonl": '{"text": "z"}\n',
        "a/y/x.txt": "x\n",
        "c.csv": "text\nc\n",
        "README": "no text\n",
        "notes.py": "print()\n",
        ".hidden.txt": "hidden\n",
        ".git/config.txt": "hidden\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def contents(rows: Iterator[Row]) -> list[object]:
    return [row.content for row in rows]


def test_a_folder_is_read_in_order_and_what_is_left_out_is_said(corpus: Path) -> None:
    with pytest.warns(PolysemeWarning) as said:
        reading = read_rows(corpus)
    assert len(said) == 1
    message = str(said[0].message)
    assert "2 files" in message
    for name in ("README", "notes.py", ".hidden.txt", ".git"):
        assert name in message
    rows = list(reading)
    assert [row.content for row in rows] == ["x", "z", "b1", "b2", "c"]
    assert [row.id for row in rows] == ["a/y/x.txt:1", "a/z.jsonl:1", "b.txt:1", "b.txt:2", "c.csv:1"]
    assert str(rows[3].place) == f"{corpus / 'b.txt'}, line 2"


def test_progress_runs_over_all_files(corpus: Path) -> None:
    with pytest.warns(PolysemeWarning):
        reading = read_rows(corpus)
    sizes = [(corpus / name).stat().st_size for name in ("a/y/x.txt", "a/z.jsonl", "b.txt", "c.csv")]
    assert (reading.name, reading.total) == ("4 files", sum(sizes))
    seen = [reading.done for _ in reading]
    assert seen == sorted(seen)
    assert seen[0] == sizes[0]
    assert reading.done == reading.total


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("*.txt", ["b1", "b2"]), ("**/*.txt", ["x", "b1", "b2"]), ("[bc].*", ["b1", "b2", "c"]), ("a/?.jsonl", ["z"])],
)
def test_patterns(corpus: Path, pattern: str, found: list[str]) -> None:
    assert contents(read_rows(str(corpus / pattern))) == found


def test_a_pattern_takes_files_and_says_so_of_folders(corpus: Path) -> None:
    with pytest.warns(PolysemeWarning, match=r"corpus/a \(a folder\)"):
        assert contents(read_rows(str(corpus / "[ab]*"))) == ["b1", "b2"]
    with pytest.raises(InputError, match="folders only"):
        read_rows(str(corpus / "a*"))


def test_several_are_read_in_the_order_given(corpus: Path) -> None:
    rows = list(read_rows([corpus / "c.csv", str(corpus / "a/y/x.txt")]))
    assert [(row.content, row.id) for row in rows] == [("c", "c.csv:1"), ("x", "a/y/x.txt:1")]


def test_one_file_needs_no_name_in_its_ids(corpus: Path) -> None:
    assert [row.id for row in read_rows([corpus / "b.txt"])] == ["1", "2"]


def test_no_source_at_all() -> None:
    with pytest.raises(InputError, match="nothing to read"):
        read_rows([])


def test_a_bad_file_among_many_is_refused_when_it_is_met(corpus: Path) -> None:
    (corpus / "c.csv").write_text("text\nc\nd,e\n")
    reading = read_rows([corpus / "b.txt", corpus / "c.csv"])
    assert [next(reading).content for _ in range(3)] == ["b1", "b2", "c"]
    with pytest.raises(InputError, match=r"c\.csv, line 3: there are 2 fields"):
        next(reading)


def test_a_missing_file_among_many_is_refused_at_once(corpus: Path) -> None:
    with pytest.raises(InputError, match=r"no file .*nothing\.txt"):
        read_rows([corpus / "b.txt", corpus / "nothing.txt"])


def test_no_file_stays_open(corpus: Path) -> None:
    before = sum(1 for _ in Path("/dev/fd").iterdir())
    with read_rows([corpus / "b.txt", corpus / "c.csv"]) as rows:
        next(rows)
    with read_rows([corpus / "c.csv", corpus / "b.txt"]) as rows:
        list(rows)
    read_rows(corpus / "b.txt").close()
    assert sum(1 for _ in Path("/dev/fd").iterdir()) == before


@contextmanager
def nobody() -> Iterator[None]:
    """Whoever runs this, someone who may not read everything."""
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)


def test_what_may_not_be_read_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "secret").mkdir(mode=0)
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "a.txt").chmod(0)
    monkeypatch.chdir(tmp_path)
    with nobody(), pytest.raises(InputError, match="secret cannot be listed: Permission denied"):
        read_rows(".")
    with nobody(), pytest.raises(InputError, match=r"a\.txt may not be read by this user"):
        read_rows("*.txt")


# --- standard input and packed files ---------------------------------------------------------------------------------


class _Stdin:
    def __init__(self, content: bytes) -> None:
        self.buffer = io.BufferedReader(io.BytesIO(content))


def test_standard_input_is_plain_text_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Stdin(b'{"text": "a"}\n'))
    assert contents(read_rows("-")) == ['{"text": "a"}']
    monkeypatch.setattr(sys, "stdin", _Stdin(b'{"text": "a"}\n{"text": 1}\n'))
    reading = read_rows("-", format="jsonl")
    assert next(reading).content == "a"
    assert reading.total is None
    with pytest.raises(InputError, match="standard input, line 2"):
        next(reading)


def test_standard_input_among_files(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Stdin(b"s\n"))
    reading = read_rows([corpus / "b.txt", "-", corpus / "c.csv"])
    assert [row.id for row in reading] == ["b.txt:1", "b.txt:2", "standard input:1", "c.csv:1"]
    assert reading.total is None
    with pytest.raises(InputError, match="named twice"):
        read_rows(["-", "-"])


def test_parquet_does_not_come_through_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Stdin(b"PAR1"))
    with pytest.raises(InputError, match="standard input comes through a pipe"):
        read_rows("-", format="parquet")


def test_every_compression_is_tried() -> None:
    assert set(PACK) == set(COMPRESSIONS)


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_packed_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"in.csv{suffix}"
    path.write_bytes(PACK[suffix](b"text\n" + b"".join(b"row %d\n" % number for number in range(30_000))))
    with read_rows(path) as reading:
        assert contents(reading) == [f"row {number}" for number in range(30_000)]
        assert reading.done == reading.total == path.stat().st_size


# --- formats and options ---------------------------------------------------------------------------------------------


def test_files_and_table_of_readers_agree() -> None:
    (room,) = readers_room.__path__
    modules = {path.stem for path in Path(room).glob("*.py")} - {"__init__", "blocks"}
    assert {reader.home.partition(":")[0] for reader in READERS.values()} == modules
    for reader in READERS.values():
        assert callable(reader.load())
    assert not set(STRUCTURED) & set(ENDINGS)
    assert not set(COMPRESSIONS) & set(ENDINGS)


@pytest.mark.parametrize("format", ["conll", ".conll", "bio", "CONLL"])
def test_a_format_can_be_named(tmp_path: Path, format: str) -> None:
    path = tmp_path / "words.data"
    path.write_text("a O\nb O\n")
    assert contents(read_rows(path, format=format)) == [["a", "b"]]


def test_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"no format 'jsnl'\. Did you mean 'jsonl'\?"):
        read_rows(tmp_path, format="jsnl")


def test_with_a_format_every_file_of_a_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.data").write_text("a O\n")
    (tmp_path / "b").write_text("b O\n")
    assert contents(read_rows(tmp_path, format="conll")) == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("words", "sintactic", "Did you mean 'syntactic'"),
        ("split", "lines", "Did you mean 'line'"),
        ("quotes", "single", "There are: double, none"),
        ("delimiter", ";;", "must be one character"),
        ("delimiter", '"', "must be one character"),
    ],
)
def test_options_with_values_they_cannot_have(corpus: Path, option: str, value: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_rows(corpus / "b.txt", **{option: value})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("b.txt", {"field": "text"}),
        ("b.txt", {"fields": "all"}),
        ("b.txt", {"words": "surface"}),
        ("c.csv", {"split": "paragraph"}),
        ("a/z.jsonl", {"delimiter": ";"}),
        ("a/z.jsonl", {"check_text": False}),
    ],
)
def test_options_without_use_are_refused(corpus: Path, name: str, options: dict[str, object]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(options))!r} is for .*{name} is read as"):
        read_rows(corpus / name, **options)


def test_an_option_must_have_a_use_for_one_file_and_a_field_for_all(corpus: Path) -> None:
    several = [corpus / "c.csv", corpus / "b.txt"]
    assert contents(read_rows(several, split="document")) == ["c", "b1\nb2"]
    with pytest.raises(OptionError, match=r"b\.txt is read as text"):
        read_rows(several, field="text")


def test_sentences_are_found_by_who_asks_for_them(corpus: Path, tmp_path: Path) -> None:
    def halves(text: str) -> list[tuple[int, int]]:
        return [(0, len(text) // 2), (len(text) // 2, len(text))] if text else []

    (tmp_path / "some.txt").write_text("abcd\n\nefgh")
    rows = list(read_rows(tmp_path / "some.txt", split="sentence", sentences=halves))
    assert [(row.id, row.content, row.place.line) for row in rows] == [
        ("1.1", "ab", 1),
        ("1.2", "cd", 1),
        ("3.1", "ef", 3),
        ("3.2", "gh", 3),
    ]
    assert contents(read_rows(tmp_path / "some.txt", sentences=halves)) == ["abcd", "", "efgh"]
    with pytest.raises(OptionError, match="Nothing is split into sentences here"):
        read_rows(tmp_path / "some.txt", split="sentence")
    with pytest.raises(OptionError, match=r"'split' is for text.*c\.csv is read as csv"):
        read_rows(corpus / "c.csv", split="sentence", sentences=halves)


def test_a_document_of_a_folder_has_the_name_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "emma.txt").write_text("Emma\nWoodhouse\n")
    (tmp_path / "persuasion.txt").write_text("Anne\r\n\r\nElliot")
    rows = list(read_rows(tmp_path, split="document"))
    assert [(row.id, row.content) for row in rows] == [
        ("emma.txt", "Emma\nWoodhouse"),
        ("persuasion.txt", "Anne\r\n\r\nElliot"),
    ]

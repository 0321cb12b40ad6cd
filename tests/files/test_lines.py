"""Plain text in: every line as it stands, and everything that is no text refused in words."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.errors import InputError, PolysemeWarning
from polyseme.files.lines import Line, read_lines

PACKED: dict[str, Callable[[bytes], bytes]] = {".txt": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def texts(path: str | os.PathLike[str]) -> list[str]:
    return [line.text for line in read_lines(path)]


def written(folder: Path, content: bytes, name: str = "in.txt") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refusal(path: str | os.PathLike[str]) -> str:
    """The one paragraph with which a file is refused."""
    with pytest.raises(InputError) as caught:
        list(read_lines(path))
    message = str(caught.value)
    assert "\n" not in message
    return message


@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"])), min_size=1),
    ending=st.sampled_from(["\n", "\r\n"]),
    ends_last=st.booleans(),
    suffix=st.sampled_from(sorted(PACKED)),
)
def test_any_lines_come_back(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ending: str, ends_last: bool, suffix: str
) -> None:
    lines = ["the first", *lines, "the last"]
    raw = (ending.join(lines) + ending * ends_last).encode()
    path = written(tmp_path_factory.getbasetemp(), PACKED[suffix](raw), f"lines{suffix}")
    reading = read_lines(path)
    back = list(reading)
    assert [line.text for line in back] == lines
    assert [line.number for line in back] == list(range(1, len(lines) + 1))
    for line in back:
        assert raw[line.offset :].startswith(line.text.encode() + (ending.encode() if line.text != "the last" else b""))
    assert reading.done == reading.total == path.stat().st_size


def test_only_newlines_end_a_line(tmp_path: Path) -> None:
    odd = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\rh"
    assert texts(written(tmp_path, f"{odd}\n{odd}\r\nend\r\r\n".encode())) == [odd, odd, "end\r"]


def test_empty_lines_are_empty_texts(tmp_path: Path) -> None:
    assert texts(written(tmp_path, b"\n\na\n \n\n")) == ["", "", "a", " ", ""]


def test_a_byte_order_mark_is_skipped_once(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")
    assert list(read_lines(path)) == [Line("a", 1, 3), Line("\ufeffb", 2, 5)]


def test_a_file_with_carriage_returns_only_is_said_to_be_one_text(tmp_path: Path) -> None:
    with pytest.warns(PolysemeWarning, match="one text, although it has 2 carriage returns"):
        assert texts(written(tmp_path, b"a\rb\rc")) == ["a\rb\rc"]


def test_no_file_stays_open(tmp_path: Path) -> None:
    path = written(tmp_path, b"a\nb\n")
    before = sum(1 for _ in Path("/dev/fd").iterdir())
    list(read_lines(path))
    with read_lines(path) as lines:
        next(lines)
    refusal(written(tmp_path, b"%PDF-1.7", "in.pdf"))
    assert sum(1 for _ in Path("/dev/fd").iterdir()) == before


def test_progress_counts_bytes_of_the_packed_file(tmp_path: Path) -> None:
    draw = random.Random(0)
    raw = b"".join(draw.randbytes(60).hex().encode() + b"\n" for _ in range(20_000))  # which packs badly
    path = written(tmp_path, gzip.compress(raw, 1), "in.txt.gz")
    lines = read_lines(path)
    assert lines.total == path.stat().st_size
    seen = [lines.done for line in lines if line.number % 1000 == 0]
    assert seen == sorted(seen)
    assert len(set(seen)) >= 4
    assert seen[-1] == lines.total


# --- standard input --------------------------------------------------------------------------------------------------


class _Stdin:
    def __init__(self, content: bytes) -> None:
        self.buffer = io.BufferedReader(io.BytesIO(content))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = _Stdin("eins\nzwei ✓".encode())
    monkeypatch.setattr(sys, "stdin", stdin)
    lines = read_lines("-")
    assert (lines.name, lines.total) == ("standard input", None)
    assert [line.text for line in lines] == ["eins", "zwei ✓"]
    assert not stdin.buffer.closed


def test_bad_standard_input_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Stdin(b"a\n\xff\n"))
    assert "standard input, line 2: byte 2" in refusal("-")
    monkeypatch.setattr(sys, "stdin", _Stdin(b""))
    assert "standard input is empty" in refusal("-")
    monkeypatch.setattr(sys, "stdin", None)
    assert "no standard input" in refusal("-")


def test_a_named_pipe_is_read_as_it_comes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    feeder = threading.Thread(target=pipe.write_bytes, args=(b"\xef\xbb\xbfa\nb\n",))
    feeder.start()
    lines = read_lines(pipe)
    assert lines.total is None
    assert [line.text for line in lines] == ["a", "b"]
    feeder.join()


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_missing_file(tmp_path: Path) -> None:
    assert "There is no file" in refusal(tmp_path / "nothing.txt")


def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)


def test_a_file_in_a_file(tmp_path: Path) -> None:
    assert "Not a directory" in refusal(written(tmp_path, b"a") / "b")


def test_an_impossible_name() -> None:
    assert "null" in refusal("a\0b")


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = written(tmp_path, b"secret\n")
    path.chmod(0)
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        assert "may not be read" in refusal(path)
    finally:
        if os.getuid() == 0:
            os.seteuid(0)


@pytest.mark.parametrize("suffix", sorted(PACKED))
def test_an_empty_file(tmp_path: Path, suffix: str) -> None:
    assert "is empty" in refusal(written(tmp_path, b"", f"in{suffix}"))
    assert "is empty" in refusal(written(tmp_path, PACKED[suffix](b""), f"in{suffix}"))


@pytest.mark.parametrize(
    "content", [b" \n\t\n\r\n", (b" " * 9 + b"\n") * 30_000, b"\xef\xbb\xbf", "\u00a0\u3000".encode()]
)
def test_a_file_of_blanks(tmp_path: Path, content: bytes) -> None:
    assert "nothing in it but blanks" in refusal(written(tmp_path, content))


@pytest.mark.parametrize("suffix", sorted(PACKED))
def test_what_is_not_utf_8_is_named_to_the_byte(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path, PACKED[suffix](b"good\ncaf\xe9 noir\n"), f"in{suffix}")
    message = refusal(path)
    assert f"{path}, line 2: byte 8" in message
    assert "0xE9" in message
    assert "iconv" in message


def test_a_byte_order_mark_does_not_shift_the_place_of_an_error(tmp_path: Path) -> None:
    assert "line 1: byte 4 of" in refusal(written(tmp_path, b"\xef\xbb\xbfa\xff\n"))


@pytest.mark.parametrize("bad", [b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"a\xe2\x82"])
def test_almost_utf_8_is_refused_too(tmp_path: Path, bad: bytes) -> None:
    assert "is not UTF-8" in refusal(written(tmp_path, b"good\n" + bad))


def test_a_nul_far_into_a_text_is_named_to_the_byte(tmp_path: Path) -> None:
    start = b"text\n" * 100_000
    assert "line 100001: byte 500002 of the text is a NUL" in refusal(written(tmp_path, start + b"ab\0c\n"))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image"),
        (b"PK\x03\x04\x14\0", "a zip archive"),
        (gzip.compress(b"text", mtime=0), "compressed with gzip"),
        (lzma.compress(b"text"), "compressed with xz"),
        (b"\x28\xb5\x2f\xfd\0", "compressed with zstd"),
        (b"PAR1\x15\x04\x15", "a Parquet file"),
        (b"\x7fELF\x02\x01", "a program"),
        (b"%PDF-1.7\n", "a PDF document"),
        ("text\n".encode("utf-16"), "text in UTF-16"),
        (b"some\nfew\0 bytes", "binary: it has a NUL at byte 8, line 2"),
    ],
)
def test_a_binary_file_is_refused_before_the_first_line(tmp_path: Path, content: bytes, what: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InputError, match=what):
        read_lines(path)


def test_text_may_begin_like_a_magic_number(tmp_path: Path) -> None:
    assert texts(written(tmp_path, b"PAR1 is a gene\nBZh9\n")) == ["PAR1 is a gene", "BZh9"]


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_packed_file_that_was_cut_short_is_named(tmp_path: Path, suffix: str) -> None:
    whole = PACKED[suffix](os.urandom(50_000).hex().encode() + b"\nend\n")
    path = written(tmp_path, whole[: len(whole) // 2], f"in{suffix}")
    message = refusal(path)
    assert str(path) in message
    assert "damaged or was cut short" in message


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_packed_file_with_a_wrong_bit_is_named(tmp_path: Path, suffix: str) -> None:
    packed = bytearray(PACKED[suffix](b"some text\n" * 1000))
    packed[-12] ^= 0x55
    assert "damaged" in refusal(written(tmp_path, bytes(packed), f"in{suffix}"))


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_plain_text_under_the_name_of_a_packed_file_is_named(tmp_path: Path, suffix: str) -> None:
    assert "cannot be decompressed" in refusal(written(tmp_path, b"plain text\n", f"in{suffix}"))


def test_several_packed_files_end_to_end_are_one(tmp_path: Path) -> None:
    assert texts(written(tmp_path, gzip.compress(b"a\n") + gzip.compress(b"b\n"), "in.gz")) == ["a", "b"]

r"""Plain text in: one text per line, UTF-8 to the letter, with the place of each line known.

- A line ends at `\n` or `\r\n`, and at nothing else: U+2028, U+0085, form feeds and vertical tabs are text. So is a
  lone `\r`; a file that has no other line ends is most likely not meant as one text, which a warning says.
- An empty line is an empty text, not nothing: line 7 of the file is always text 7.
- A byte-order mark at the very start is skipped.
- What is not UTF-8, or has a NUL in it, is refused with its line and its byte; nothing is repaired.
- A line, or a text of several lines, that is longer than allowed is refused before it is in memory: a small compressed
  file may hold a line of any length.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from polyseme.errors import Advice, InputError, PolysemeWarning
from polyseme.files.atomic import AnyPath
from polyseme.files.bad_rows import BadRows
from polyseme.files.reading_options import RowRequest
from polyseme.files.rows import Place
from polyseme.files.source import BLOCK, LONGEST, READ_ERRORS, Reading, Source, open_source

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """One line of a file, without its end."""

    text: str
    number: int
    """Counted from 1."""
    offset: int
    """The byte at which the line begins, counted from 0; in a compressed file, of what is packed in it."""


def read_lines(path: AnyPath) -> Reading[Line]:
    """The lines of a plain text, packed or not, or of standard input (`-`), in memory one at a time.

    What can be seen to be wrong from the outside or from the first bytes is refused at once, the rest when it is met.
    """
    source = open_source(path)
    return Reading(source, lines_of(source))


def lines_of(
    source: Source, *, with_ends: bool = False, bad: BadRows | None = None, longest: int = LONGEST
) -> Iterator[Line]:
    r"""The lines of a source, without their ends or with them (then `\r\n` is two characters, as it stands).

    What the first bytes show to be no text is refused here, before the first line. Where `bad` rows are skipped, so are
    lines that are not UTF-8 or have more than `longest` bytes.
    """
    try:
        refuse_binary(source)
    except InputError:
        source.close()
        raise
    return _lines(source, with_ends, bad, longest)


def requested_lines(source: Source, request: RowRequest, *, with_ends: bool = False) -> Iterator[Line]:
    """The same, as the request for rows has it."""
    return lines_of(source, with_ends=with_ends, bad=request.bad_rows, longest=request.max_text_bytes)


def refuse_binary(source: Source) -> None:
    """Refuse a source that is empty, or whose first bytes are not those of text."""
    head = b"" if source.total == 0 else source.head()
    if not head:
        raise InputError(f"{source.name} is empty: there is nothing to read.")
    binary = binary_kind(head)
    if binary:
        prefix = "What is packed in " if source.compressed else ""
        raise InputError(f"{prefix}{source.name} looks to be {binary.name}. {binary.advice}")


def _lines(source: Source, with_ends: bool, bad: BadRows | None, longest: int) -> Iterator[Line]:
    number = offset = n_returns = 0
    blank = True
    with contextlib.closing(source):
        for raw in _raw_lines(source, longest):
            number += 1
            if len(raw) > longest and not raw.endswith(b"\n"):
                refuse = partial(_refuse_length, f"{source.name}, line {number}", longest)
                refuse() if bad is None else bad.attempt(refuse)
                blank = False
                offset += len(raw) + _skip_line(source)
                continue
            if number == 1 and raw.startswith(_BYTE_ORDER_MARK):
                offset = len(_BYTE_ORDER_MARK)
                raw = raw[offset:]
            decode = partial(_decoded, raw if with_ends else _without_end(raw), source.name, number, offset)
            text = decode() if bad is None else bad.attempt(decode)
            if text is None:
                offset += len(raw)
                continue
            blank = blank and not text.strip()
            if number == 1:
                n_returns = text.removesuffix("\r\n").count("\r")
            yield Line(text, number, offset)
            offset += len(raw)
    if blank:
        raise InputError(f"{source.name} has nothing in it but blanks: there is nothing to read.")
    if number == 1 and n_returns:
        warnings.warn(
            f"{source.name} was read as one text, although it has {n_returns} carriage returns: only \\n and \\r\\n "
            "end a line. If each ends a text, convert the file: tr '\\r' '\\n'",
            PolysemeWarning,
            stacklevel=2,
        )


def _raw_lines(source: Source, longest: int) -> Iterator[bytes]:
    """The lines as bytes; of one that is longer, its beginning."""
    readline, most = source.stream.readline, min(longest + 1, sys.maxsize)
    try:
        while raw := readline(most):
            yield raw
    except READ_ERRORS as error:
        raise source.explain(error) from error


def _skip_line(source: Source) -> int:
    """Read to the end of a line, and return how many bytes that were."""
    n_bytes = 0
    for raw in _raw_lines(source, BLOCK):
        n_bytes += len(raw)
        if raw.endswith(b"\n"):
            break
    return n_bytes


def _refuse_length(place: str, longest: int, noun: str = "line") -> None:
    raise InputError(
        f"{place}: the {noun} is longer than {longest:,} bytes, and is not read into memory.",
        Advice("max_text_bytes", "Divide it, or allow longer ones with {}.", otherwise="Divide it."),
    )


def _without_end(raw: bytes) -> bytes:
    if raw.endswith(b"\n"):
        return raw[: -2 if raw.endswith(b"\r\n") else -1]
    return raw


def _decoded(raw: bytes, name: str, number: int, offset: int) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name}, line {number}: byte {offset + error.start} of the text (0x{raw[error.start]:02X}) is not UTF-8. "
            "Convert the file with the encoding it has, for instance: iconv -f LATIN1 -t UTF-8 FILE > NEW"
        ) from error
    nul = raw.find(b"\0")
    if nul >= 0:
        raise InputError(f"{name}, line {number}: byte {offset + nul} of the text is a NUL. Take it out: tr -d '\\0'")
    return text


# --- files that are not plain text ------------------------------------------------------------------------------------


_PLAIN = "Text in UTF-8 is read here."
_UTF_8 = "Convert it to UTF-8 first: iconv -f {} -t UTF-8 FILE > NEW"


class FileKind(NamedTuple):
    """What a file seems to be, and what its owner can do about it."""

    name: str
    advice: str


_KNOWN = {
    b"\x1f\x8b": FileKind("compressed with gzip", "Give it the ending .gz, or unpack it: gzip -d"),
    b"\xfd7zXZ\x00": FileKind("compressed with xz", "Give it the ending .xz, or unpack it: xz -d"),
    b"\x28\xb5\x2f\xfd": FileKind("compressed with zstd", "Give it the ending .zst, or unpack it: zstd -d"),
    **dict.fromkeys(
        (b"BZh%d1AY&SY" % level for level in range(1, 10)),
        FileKind("compressed with bzip2", "Give it the ending .bz2, or unpack it: bzip2 -d"),
    ),
    b"PK\x03\x04": FileKind("a zip archive (or .docx, .xlsx, .odt, .npz)", f"Unpack or export it. {_PLAIN}"),
    b"PAR1\x15": FileKind("a Parquet file", "Give it the ending .parquet, without that of a compression."),
    b"ARROW1\x00\x00": FileKind("an Arrow file", f"Export its column of texts. {_PLAIN}"),
    b"\x89HDF\r\n": FileKind("an HDF5 file", _PLAIN),
    b"\x93NUMPY": FileKind("a NumPy array", _PLAIN),
    b"SQLite format 3\x00": FileKind("an SQLite database", _PLAIN),
    b"%PDF-": FileKind("a PDF document", f"Take its text out first: pdftotext. {_PLAIN}"),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": FileKind("an old Office document", f"Export it as text. {_PLAIN}"),
    b"\x7fELF": FileKind("a program", _PLAIN),
    b"\x89PNG\r\n": FileKind("a PNG image", _PLAIN),
    b"\xff\xd8\xff": FileKind("a JPEG image", _PLAIN),
    b"GIF87a": FileKind("a GIF image", _PLAIN),
    b"GIF89a": FileKind("a GIF image", _PLAIN),
    b"\xff\xfe\x00\x00": FileKind("text in UTF-32", _UTF_8.format("UTF-32")),
    b"\x00\x00\xfe\xff": FileKind("text in UTF-32", _UTF_8.format("UTF-32")),
    b"\xff\xfe": FileKind("text in UTF-16", _UTF_8.format("UTF-16")),
    b"\xfe\xff": FileKind("text in UTF-16", _UTF_8.format("UTF-16")),
}
"""From the first bytes of a file to what it is."""


def binary_kind(head: bytes) -> FileKind | None:
    """What a file that begins with `head` seems to be if it is not plain text; None if it may well be."""
    for start, kind in _KNOWN.items():
        if head.startswith(start):
            return kind
    nul = head.find(b"\0")
    if nul < 0:
        return None
    line = head.count(b"\n", 0, nul) + 1
    return FileKind(
        f"binary: it has a NUL at byte {nul}, line {line}", f"{_PLAIN} Were it text, tr -d '\\0' takes NULs out."
    )


# --- blocks -----------------------------------------------------------------------------------------------------------


def within(lines: Iterable[Line], name: str, longest: int) -> Iterator[Line]:
    """The lines of one text, which is refused where it becomes too long."""
    first: Line | None = None
    for line in lines:
        first = first or line
        if line.offset + len(line.text) - first.offset > longest:
            _refuse_length(f"{name}, line {first.number}", longest, "text")
        yield line


def blocks(lines: Iterable[Line], name: str, longest: int = LONGEST) -> Iterator[list[Line]]:
    """The lines of each block. A line is blank that has nothing in it but ASCII blanks, tabs and its end."""
    block: list[Line] = []
    for line in lines:
        if line.text.strip(" \t\r\n"):
            block.append(line)
            if line.offset + len(line.text) - block[0].offset > longest:
                _refuse_length(f"{name}, line {block[0].number}", longest, "text from here to the next blank line")
        elif block:
            yield block
            block = []
    if block:
        yield block


def sentences(lines: Iterable[Line], name: str, longest: int = LONGEST) -> Iterator[list[Line]]:
    """The blocks of a file in which a carriage return within a line can only be a mistake."""
    return blocks(_without_returns(lines, name), name, longest)


def _without_returns(lines: Iterable[Line], name: str) -> Iterator[Line]:
    for line in lines:
        if "\r" in line.text:
            raise InputError(
                f"{Place(name, line.number)}: there is a carriage return within the line; only \\n and \\r\\n end a "
                "line. If each ends one, convert the file: tr '\\r' '\\n'"
            )
        yield line

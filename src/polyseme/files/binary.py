"""Telling a file that is not plain text by its first bytes, so that it is refused in words and not in mojibake."""

from __future__ import annotations

from typing import NamedTuple

_PLAIN = "Text in UTF-8 is read here."
_UTF_8 = "Convert it to UTF-8 first: iconv -f {} -t UTF-8 FILE > NEW"


class Look(NamedTuple):
    """What a file seems to be, and what its owner can do about it."""

    what: str
    advice: str


class _Magic(NamedTuple):
    start: bytes
    look: Look


_KNOWN = (
    _Magic(b"\x1f\x8b", Look("compressed with gzip", "Give it the ending .gz, or unpack it: gzip -d")),
    _Magic(b"\xfd7zXZ\x00", Look("compressed with xz", "Give it the ending .xz, or unpack it: xz -d")),
    _Magic(b"\x28\xb5\x2f\xfd", Look("compressed with zstd", "Give it the ending .zst, or unpack it: zstd -d")),
    *(
        _Magic(b"BZh%d1AY&SY" % level, Look("compressed with bzip2", "Give it the ending .bz2, or unpack it: bzip2 -d"))
        for level in range(1, 10)
    ),
    _Magic(b"PK\x03\x04", Look("a zip archive (or .docx, .xlsx, .odt, .npz)", f"Unpack or export it. {_PLAIN}")),
    _Magic(b"PAR1\x15", Look("a Parquet file", "Give it the ending .parquet, without that of a compression.")),
    _Magic(b"ARROW1\x00\x00", Look("an Arrow file", f"Export its column of texts. {_PLAIN}")),
    _Magic(b"\x89HDF\r\n", Look("an HDF5 file", _PLAIN)),
    _Magic(b"\x93NUMPY", Look("a NumPy array", _PLAIN)),
    _Magic(b"SQLite format 3\x00", Look("an SQLite database", _PLAIN)),
    _Magic(b"%PDF-", Look("a PDF document", f"Take its text out first: pdftotext. {_PLAIN}")),
    _Magic(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Look("an old Office document", f"Export it as text. {_PLAIN}")),
    _Magic(b"\x7fELF", Look("a program", _PLAIN)),
    _Magic(b"\x89PNG\r\n", Look("a PNG image", _PLAIN)),
    _Magic(b"\xff\xd8\xff", Look("a JPEG image", _PLAIN)),
    _Magic(b"GIF87a", Look("a GIF image", _PLAIN)),
    _Magic(b"GIF89a", Look("a GIF image", _PLAIN)),
    _Magic(b"\xff\xfe\x00\x00", Look("text in UTF-32", _UTF_8.format("UTF-32"))),
    _Magic(b"\x00\x00\xfe\xff", Look("text in UTF-32", _UTF_8.format("UTF-32"))),
    _Magic(b"\xff\xfe", Look("text in UTF-16", _UTF_8.format("UTF-16"))),
    _Magic(b"\xfe\xff", Look("text in UTF-16", _UTF_8.format("UTF-16"))),
)


def binary_look(head: bytes) -> Look | None:
    """What a file that begins with `head` seems to be if it is not plain text; None if it may well be."""
    for magic in _KNOWN:
        if head.startswith(magic.start):
            return magic.look
    nul = head.find(b"\0")
    if nul < 0:
        return None
    line = head.count(b"\n", 0, nul) + 1
    return Look(
        f"binary: it has a NUL at byte {nul}, line {line}", f"{_PLAIN} Were it text, tr -d '\\0' takes NULs out."
    )

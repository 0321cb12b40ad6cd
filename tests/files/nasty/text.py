"""Plain text that is not quite."""

from __future__ import annotations

from files.nasty.case import ARABIC, COMBINING, MEGABYTE, Group

group = Group("text", "in.txt")
gives, refuses = group.gives, group.refuses

CASES = [
    refuses("empty", b"", "is empty"),
    refuses("blanks", b" \n\t\n\r\n", "nothing in it but blanks"),
    refuses("only a byte-order mark", b"\xef\xbb\xbf", "nothing in it but blanks"),
    refuses("Latin-1", b"good\ncaf\xe9\n", "0xE9", "line 2"),
    refuses("overlong UTF-8", b"a\xc0\xaf\n", "not UTF-8", "line 1"),
    refuses("surrogates in UTF-8", b"a\nb\n\xed\xa0\x80", "not UTF-8", "line 3"),
    refuses("UTF-8 cut short", "a\nπ".encode()[:-1], "not UTF-8", "line 2"),
    refuses("UTF-16", "text\n".encode("utf-16"), "UTF-16"),
    refuses("UTF-16 without mark", "text\n".encode("utf-16-le"), "NUL", "line 1"),
    refuses("UTF-32", "text\n".encode("utf-32"), "UTF-32"),
    refuses("a NUL", b"a\nb\0\n", "NUL", "line 2"),
    refuses("a far NUL", b"text\n" * 100_000 + b"\0", "NUL", "line 100001"),
    gives("mixed line ends", b"a\r\nb\nc\r\r\n\nd", ["a", "b", "c\r", "", "d"]),
    gives("odd separators", "a\x0b\x0c\x85\u2028b\n".encode(), ["a\x0b\x0c\x85\u2028b"]),
    gives("a word of 1 MB", f"{MEGABYTE}\nb\n".encode(), [MEGABYTE, "b"]),
    gives("right to left", f"{ARABIC}\n".encode(), [ARABIC]),
    gives("combining marks", f"{COMBINING}\n".encode(), [COMBINING]),
    gives("carriage returns only", b"a\rb", ["a\rb"], warned="although it has 1 carriage"),
    refuses("a picture", b"\x89PNG\r\n\x1a\n\0", "PNG"),
    refuses("JSON under .json", b"[]", "ending in .json are not read", file="in.json"),
    gives("paragraphs", b"\n\na\r\nb\n \n\t\nc", ["a\r\nb", "c"], split="paragraph"),
    gives("a document", b"a\n\nb\n", ["a\n\nb"], split="document"),
]

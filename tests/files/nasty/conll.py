"""Columns of words that are ragged, or that begin with what might be a comment."""

from __future__ import annotations

from files.nasty.case import ARABIC, COMBINING, MEGABYTE, Group

group = Group("CoNLL", "in.conll")
gives, refuses = group.gives, group.refuses

CASES = [
    gives("# as words", b"#metoo\tO\n#\tO\n\nb\tO\n", [["#metoo", "#"], ["b"]]),
    gives("# as comments", b"# by me\n\n# id 1\n#a\tO\nb\tO\n", [["#a", "b"]]),
    gives("a comment of as many columns", b"# a\nb O\n", [["#", "b"]]),
    refuses("ragged", b"a\tO\nb\n", "columns", "line 2"),
    refuses("ragged by sentence", b"a\tO\n\nb O\n", "columns", "line 3"),
    refuses("two words in a line", b"a\n\nNew York\n", "columns", "line 3"),
    gives("documents", b"-DOCSTART- O\n\na O\n-DOCSTART- O\nb O\n", [["a"], ["b"]]),
    refuses("documents only", b"-DOCSTART-\tO\n\n", "no words"),
    refuses("no word", b"a\tO\n\tO\n", "is empty", "line 2"),
    refuses("no such column", b"a\tO\n", "no column 3", "line 1", field=3),
    gives("the second column", b"1 a\n2 b\n", [["a", "b"]], field=2),
    refuses("a blank that is none", "a O\n\u00a0\n".encode(), "columns", "line 2"),
    refuses("carriage returns", b"a\tO\rb\tO\r", "carriage return", "line 1"),
    gives("Windows", b"a\tO\r\n\r\nb\tO\r\n", [["a"], ["b"]]),
    gives(
        "right to left, marks, a word of 1 MB",
        f"{ARABIC}\tO\n{COMBINING}\tO\n{MEGABYTE}\tO\n".encode(),
        [[ARABIC, COMBINING, MEGABYTE]],
    ),
]

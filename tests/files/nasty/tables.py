"""Ragged, misquoted, misnamed and misread CSV and TSV."""

from __future__ import annotations

from files.nasty.case import ARABIC, MEGABYTE, Group

group = Group("tables", "in.csv")
gives, refuses = group.gives, group.refuses

CASES = [
    refuses("too few fields", b"id,text\n1,a\n2\n", "1 field", "line 3", field="text"),
    refuses("too many", b"id,text\n1,a,b\n", "3 fields", "line 2", field="text"),
    refuses("ragged after a long field", b'id,text\n1,"a\n\nb"\n2\n', "1 field", "line 5", field="text"),
    refuses("an open quote", b'text\na\n"b\nc\n', "not closed to the end", "line 3"),
    refuses("a quote half-way", b'text\n"a"b\n', "with 'b' behind", "line 2"),
    gives("a quote in a field", b'text\n5" pipe\n', ['5" pipe']),
    gives("quotes of all kinds", b'text\n"a ""b"""\n""""\n""\n', ['a "b"', '"', ""]),
    gives("line ends in quotes", b'"text"\r\n"a\r\nb\nc\rd"\r\n', ["a\r\nb\nc\rd"]),
    gives("no quotes", b'text\n"a\nb"\n', ['"a', 'b"'], file="in.tsv", quotes="none"),
    refuses("a NUL in CSV", b"text\na\0\n", "NUL", "line 2"),
    refuses("a header and no rows", b"id,text\n", "no rows", field="text"),
    refuses("a name twice", b"text,text\na,b\n", "2 columns", "line 1", field="text"),
    refuses("no names", b",,\na,b,c\n", "no column has a name", "line 1"),
    gives("one without a name", b",text\n0,a\n1,b\n", ["a", "b"]),
    refuses("a missing column", b"id,txt\n1,a\n", "'txt'?", "line 1", field="text"),
    refuses("no column named", b"key,text\n1,a\n", "2 fields can be the text: key, text", "line 1"),
    gives("an id, and one column besides", b"id,text\n1,a\n", ["a"]),
    refuses("semicolons", b"id;text\n1;a\n", "semicolon", "line 1", field="text"),
    gives("semicolons, said", b"id;text\n1;a,b\n", ["a,b"], field="text", delimiter=";"),
    gives("a mark in CSV", b'\xef\xbb\xbf"text"\na\n', ["a"]),
    refuses("CSV in Latin-1", b"text\na\n\xe9\n", "not UTF-8", "line 3"),
    refuses("CSV in UTF-16", "text\na\n".encode("utf-16"), "UTF-16"),
    refuses("carriage returns in CSV", b"text\ra\rb", "carriage return", "line 1"),
    gives("blank lines in CSV", b"text\n\na\r\n\r\n\n", ["a"]),
    gives("a column of numbers", b"id,stars\na,3\nb,4\n", ["3", "4"], warned="'stars' is a number", field="stars"),
    gives("a field of 1 MB", f'text\n"{MEGABYTE},"\n'.encode(), [f"{MEGABYTE},"]),
    refuses("CSV under .tsv", b"id,text\n1,a\n", "comma", "line 1", file="in.tsv", field="text"),
    refuses("a tab too many", b"id\ttext\n1\ta\t\n", "3 fields", "line 2", file="in.tsv", field="text"),
    gives("right to left in TSV", f"a\tb\n{ARABIC}\tx\n".encode(), [ARABIC], file="in.tsv", field="a"),
    refuses("a header of 1 MB", f'"{MEGABYTE}\n\n",b\na,b\n'.encode(), "2 fields can be the text: xxx", "line 1"),
    refuses("a thousand columns", b"x," * 1000 + b"texts\n", "'texts'? There", "line 1", field="text"),
]

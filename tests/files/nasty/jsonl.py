"""JSON that is none, is too much, or is something else than a text."""

from __future__ import annotations

import json
from typing import Any

from files.nasty.case import MEGABYTE, Group

group = Group("JSONL", "in.jsonl")
gives, refuses = group.gives, group.refuses


def lines(*objects: Any) -> bytes:
    """JSON Lines."""
    return b"".join(json.dumps(one).encode() + b"\n" for one in objects)


CASES = [
    refuses("broken", b'{"text": "a"}\n{"text": "b\n', "not JSON", "line 2"),
    refuses("cut in two", b'{"text":\n"a"}\n', "not JSON", "line 1"),
    refuses("two in a line", b'{"text": 1} {"text": 2}\n', "not JSON", "line 1"),
    refuses("single quotes", b"{'text': 'a'}\n", "not JSON", "line 1"),
    refuses("a missing field", lines({"text": "a"}, {"txet": "b"}), "Did you mean 'txet'?", "line 2"),
    refuses(
        "a field nobody has",
        lines({"review": "a", "stars": 1}),
        "Did you mean 'review'? There are: review, stars",
        "line 1",
        field="reveiw",
    ),
    refuses(
        "two texts to choose from",
        lines({"title": "a", "body": "b"}),
        "2 fields can be the text: title, body",
        "line 1",
    ),
    refuses("no text at all", lines({"n": 1}), "no field holds a text", "line 1"),
    *(
        refuses(f"the text is {what}", lines({"text": "a"}, {"text": value}), what, "line 2")
        for what, value in {
            "a number": 3.5,
            "null": None,
            "a truth value (true)": True,
            "an object with the fields en": {"en": "a"},
            "item 2 of it is a number": ["a", 2],
            "item 1 of it is a list": [["a"], ["b"]],
            "item 1 of it is null": [None],
        }.items()
    ),
    refuses("the text is NaN", b'{"text": NaN}\n', "a number", field="text"),
    gives("NaN beside", b'{"text": "a", "x": NaN, "y": -Infinity}\n', ["a"]),
    refuses(
        "a number without end", b'{"text": "a"}\n{"text": "a", "n": ' + b"9" * 5000 + b"}\n", "cannot be read", "line 2"
    ),
    refuses("a key twice", b'{"text": "a", "text": "b"}\n', "'text' stands twice", "line 1"),
    refuses("nested without end", b"[" * 200_000, "nested more than 100 deep", "line 1"),
    gives("a lone surrogate", b'{"text": "a\\ud800"}\n', ["a\ud800"]),
    gives("a NUL, written out", b'{"text": "a\\u0000b"}\n', ["a\0b"]),
    refuses("a raw tab in a string", b'{"text": "a\tb"}\n', "not JSON", "line 1"),
    refuses("a number a line", b"1\n2\n", "the line is a number", "line 1"),
    gives("strings and words", lines("a b", ["c", "d"], []), ["a b", ["c", "d"], []]),
    gives("blank lines", b'\n{"text": "a"}\n  \r\n{"text": ""}\r\n\n', ["a", ""]),
    gives("a mark", b'\xef\xbb\xbf{"text": "a"}', ["a"]),
    refuses("JSON in UTF-16", '{"text": "a"}'.encode("utf-16"), "UTF-16"),
    refuses("JSON in Latin-1", b'{"text": "\xe9"}\n', "not UTF-8", "line 1"),
    refuses("an array of objects", b'[{"text": "a"}]\n', "the line is a list", "line 1"),
    gives("a field of a field", lines({"a": {"b": "c"}}), ["c"], field="a.b"),
    gives("a point in a name", lines({"a.b": "c"}), ["c"], field="a.b"),
    gives("a word of 1 MB in a list", lines({"w": [MEGABYTE]}), [[MEGABYTE]]),
    refuses("an id that is no id", lines({"text": "a", "id": [1]}), "An id must be", "line 1", id_field="id"),
]

"""Treebanks whose words, ids, columns or ranges do not add up."""

from __future__ import annotations

from files.nasty.case import Group

group = Group("CoNLL-U", "in.conllu")
gives, refuses = group.gives, group.refuses


def word(number: int | str, form: str, misc: str = "_") -> str:
    """A line of CoNLL-U."""
    return f"{number}\t{form}" + "\t_" * 7 + f"\t{misc}\n"


def conllu(*parts: str) -> bytes:
    return ("".join(parts) + "\n").encode()


_TEXT = "# text = Don't go.\n"
_DONT = word("1-2", "Don't") + word(1, "Do") + word(2, "n't")
_GO = word(3, "go", "SpaceAfter=No") + word(4, ".")

CASES = [
    gives("words", conllu(_TEXT, _DONT, _GO), [["Do", "n't", "go", "."]]),
    gives("surface", conllu(_TEXT, _DONT, _GO), [["Don't", "go", "."]], words="surface"),
    refuses(
        "words and text differ",
        conllu("# text = Don't goo.\n", _DONT, _GO),
        "do not add up to its text: at '.'",
        "line 6",
    ),
    refuses(
        "a blank too many",
        conllu(_TEXT, _DONT, word(3, "go"), word(4, ".")),
        "at 'go' the words continue with ' .', the text with '.'",
        "line 5",
    ),
    refuses("a word missing", conllu(_TEXT, _DONT, word(3, "go")), "do not add up", "line 5"),
    gives(
        "words and text differ, and that is fine",
        conllu("# text = Quite\n", _DONT, _GO),
        [["Do", "n't", "go", "."]],
        check_text=False,
    ),
    refuses("nine columns", conllu(word(1, "a"), "2" + "\t_" * 8 + "\n"), "this line 9", "line 2"),
    refuses("blanks for tabs", conllu(word(1, "a").replace("\t", " ")), "this line 1", "line 1"),
    refuses("ids out of order", conllu(word(1, "a"), word(3, "b")), "the id 3", "line 2"),
    refuses("an id twice", conllu(word(1, "a"), word(1, "b")), "the id 1", "line 2"),
    refuses("no id", conllu(word("_", "a")), "'_' is no id", "line 1"),
    refuses("a range backwards", conllu(word("2-1", "ab"), word(1, "a")), "the id 2-1", "line 1"),
    refuses(
        "ranges in ranges",
        conllu(word("1-3", "abc"), word(1, "a"), word("2-3", "bc"), word(2, "b"), word(3, "c")),
        "the id 2-3",
        "line 3",
    ),
    refuses("a range past the end", conllu(word("1-2", "ab"), word(1, "a")), "past the last", "line 1"),
    refuses("an empty node too early", conllu(word("1.1", "a"), word(1, "b")), "the id 1.1", "line 1"),
    gives("an empty node", conllu(word("0.1", "e"), word(1, "b"), word("1.1", "e")), [["b"]]),
    refuses("an empty word", conllu(word(1, "a"), word(2, " ")), "is empty", "line 2"),
    gives("comments without words", b"# newdoc\n\n" + conllu(word(1, "a")), [["a"]]),
    refuses("comments only", b"# newdoc\n", "no words"),
    gives("# as a word", conllu(word(1, "#"), word(2, "1")), [["#", "1"]]),
    gives("blanks in words", conllu("# text = 10\u00a0000 km\n", word(1, "10 000"), word(2, "km")), [["10 000", "km"]]),
    gives("no blank line at the end", word(1, "a").encode(), [["a"]]),
    refuses(
        "a treebank with carriage returns",
        conllu(word(1, "a"), word(2, "b")).replace(b"\n", b"\r"),
        "carriage return",
        "line 1",
    ),
    refuses("an id of 1 MB", conllu(word("9" * (1 << 20), "a")), "999…' is no id", "line 1"),
    refuses("an empty node alone", conllu(word("0.1", "a")), "no word", "line 1"),
    refuses("a range without a lemma", conllu(_DONT), "not given (_)", "line 1", field="lemma", words="surface"),
]

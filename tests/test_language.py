"""The source is written in the ordinary English of the field: no pronoun or participle as a name, no private idiom.

`NAMES` has words that do not name anything, with nouns to use instead; `PHRASES` has turns of phrase that a reader of
other libraries would not expect. A match fails with its file, its line and a suggestion.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "polyseme"

NAMES: Mapping[str, str] = {
    "found": "result, matches, or the noun that it is",
    "told": "callback, message, report",
    "asked": "request, options",
    "wishes": "request, options",
    "given": "value, text, options, or the noun that it is",
    "kept": "selected, valid, checkpoint, or the noun that it is",
    "some": "chunk, rows, texts, or the noun that they are",
    "ran": "run, result",
    "way": "direction, strategy, method",
    "ways": "directions, strategies, methods",
    "manner": "strategy, mode",
    "chance": "rng, random_keys, probability, baseline",
    "guessed": "predicted",
    "guesser": "predictor, scorer",
    "guesses": "predictions",
    "apart": "mask_documents, or the noun that it is",
    "again": "resume, reread_inputs",
    "anew": "rebuild, overwrite",
    "made": "created, or the noun that it is",
    "took": "seconds",
    "gone": "removed, missing",
    "said": "message, label, warned",
    "wanted": "requested, selected, expected",
    "what": "the noun that it is",
    "how": "method, explanation",
    "whose": "owners",
    "its": "the noun that they are",
    "about": "subject, description",
    "settle": "prepare, resolve",
    "settled": "prepared, resolved",
    "meet": "warm_up",
    "onward": "continuation",
    "going": "running, active",
    "parting": "clustering, split",
    "initial_spread": "init_std",
    "most_pieces": "max_pieces",
    "optimiser": "optimizer",
}
"""Words that are no names, and what to look for instead. Underscores around a name do not count."""

PHRASES: Mapping[str, str] = {
    r"\ban? \w+ an? (?!time\b|lot\b|little\b|few\b|bit\b|while\b|priori\b)\w+": "one … per …",
    r"\b(?:is|are|was|were|be|being) said\b": "reported, printed, raises",
    r"\b(?:is|are|was|were|be|being) told\b": "reported, passed, shown",
    r"\btold (?:of|apart)\b": "reported, distinguished",
    r"\bgo(?:es|ne)? on (?:with|from)\b|\bgoing on with\b": "resume, continue",
    r"\b(?:hands?|handed|handing) on\b": "passes on, returns",
    r"\bone an? (?:row|word|item|split|side|text|prompt|document)\b": "one per …",
    r"\banew\b|\bafresh\b": "from scratch, rebuilt, again",
    r"\basked (?:for|of)\b": "requested, required",
    r"\blet loose\b": "unfrozen, trained",
    r"\bby heart\b": "memorized",
    r"\bwhat (?:is|was|has|comes|came|stands|stood) (?:\w+ ){1,4}(?:is|are|was|goes|stands|comes|has)\b": "a noun",
    r"\bst(?:ands?|ood) (?:in|at|beside|before|after|behind|below|above|there|here|together)\b": "is, occurs, appears",
    r"\b(?-i:MERGED)\b": "one docstring for the file",
    r"\bwarm-up\b": "warmup",
    r"\b(?:optimis|initialis|normalis|tokenis|regularis|summaris|visualis|serialis|factoris|utilis)\w+": "-iz-",
    r"\b(?:colour|neighbour|behaviour|centre)\w*": "American spelling",
    r"\b(?:learnt|spelt)\b": "learned, spelled",
    r"\bsay, once\b": "report once",
    r"\bhow far (?:\w+ ){1,3}(?:has|have) come\b": "progress, position",
    r"\bwhat came of\b": "result",
}
"""Turns of phrase, as regular expressions in which a blank is any whitespace, and ordinary words for them."""


PATTERNS = [(re.compile(phrase.replace(" ", r"\s+"), re.IGNORECASE), advice) for phrase, advice in PHRASES.items()]


class Match(NamedTuple):
    """A place that breaks the rule."""

    file: str
    line: int
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text!r}; write: {self.advice}"


def names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """The names that a file defines, with their lines."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, node.asname


def texts(source: str, nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """The docstrings, messages and comments of a file, with the lines where they begin."""
    inside: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            inside.update(id(part) for part in ast.walk(node) if part is not node)
            parts = (part.value if _is_text(part) else "…" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
    for node in nodes:
        if _is_text(node) and id(node) not in inside:
            yield node.lineno, node.value
    comments = list(comments_of(source, nodes))
    while comments:
        n_lines = next(
            (n for n in range(1, len(comments)) if comments[n][0] != comments[0][0] + n), len(comments)
        )  # adjacent lines are one comment
        yield comments[0][0], "\n".join(text for _, text in comments[:n_lines])
        comments = comments[n_lines:]


def comments_of(source: str, nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """What follows a # that is in no string, with its line; `tokenize` would take as long as all the rest."""
    strings: dict[int, list[tuple[int, float]]] = {}
    for node in nodes:
        if _is_text(node) or isinstance(node, ast.JoinedStr):
            for line in range(node.lineno, node.end_lineno + 1):
                start = node.col_offset if line == node.lineno else 0
                end = node.end_col_offset if line == node.end_lineno else math.inf
                strings.setdefault(line, []).append((start, end))
    for number, text in enumerate(source.splitlines(), start=1):
        if "#" in text:
            line = text.encode()
            places = [place for place, byte in enumerate(line) if byte == ord("#")]
            inside = strings.get(number, [])
            first = next((at for at in places if not any(start <= at < end for start, end in inside)), None)
            if first is not None:
                yield number, line[first:].decode().lstrip("# ")


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def matches(path: Path) -> list[Match]:
    """Everything in a file that breaks the rule."""
    source = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(source)))
    file = path.relative_to(SOURCE).as_posix()
    defined = ((line, name, name.strip("_")) for line, name in names(nodes))
    result = [Match(file, line, name, NAMES[bare]) for line, name, bare in defined if bare in NAMES]
    for line, text in texts(source, nodes):
        for pattern, advice in PATTERNS:
            for match in pattern.finditer(text):
                phrase = " ".join(match[0].split())
                result.append(Match(file, line + text.count("\n", 0, match.start()), phrase, advice))
    return sorted(result)


def test_the_source_is_in_the_words_of_the_field() -> None:
    problems = [str(match) for path in sorted(SOURCE.rglob("*.py")) for match in matches(path)]
    assert not problems, "\n".join(problems)


def test_matches_are_found_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        '"""Fine.\n\nA vector a word, and what\nis printed here is more."""\n\n'
        "# Each line stands\n# in a file.\n"
        "def find(given, rows):\n"
        '    _found = f"{rows} were asked for"\n'
        "    return _found\n"
    )
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    lines = [(match.line, match.text) for match in matches(file)]
    assert lines == [
        (3, "A vector a word"), (3, "what is printed here is"), (6, "stands in"), (8, "given"), (9, "_found"),
        (9, "asked for"),
    ]  # fmt: skip

r"""Patterns of tokenizer files that would not end, or would fill the memory, are refused before any text is read.

The regular expressions in a tokenizer.json are run by a library that tries every way in which they may match, without
any limit of time. With some, 40 letters take years. Those that published tokenizers have take, at worst, the square of
the length of a text. A pattern is accepted if that can be seen from it:

- nothing is repeated that itself may match in more than one way: `(a+)+`, `(a|b)*`, `(a{1,9}){2}`;
- of the parts of an alternative that repeat without a bound, and that something follows which may fail, there is one at
  most: `\s+(?!\S)` and ` ?\p{L}+[\r\n]*`, but not `a*a*b`;
- it has no references to its own groups (`\1`, `\k<x>`, `\g<x>`).

Replacements, one after another, may make a text longer, but not without limit: `e` as `ee`, forty times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyseme.errors import ModelError
from polyseme.text.cut_points import WORD

MANY = 32
"""Repetitions from which on a bounded quantifier counts as one without a bound."""
MOST_GROWTH = 1000
"""Characters that one character may become."""

_QUANTIFIER = re.compile(r"([*+?]|\{(\d*)(,?)(\d*)\})(\+|\?)?")
_GROUP = re.compile(r"\((\?(:|=|!|>|<=|<!|#[^)]*|[imx-]+[:)]|<\w+>|'\w+'))?")
_ESCAPE = re.compile(r"\\(x\{[0-9a-fA-F ]*\}|[pP]\{[^}]*\}|[xu][0-9a-fA-F]{2,4}|.)", re.DOTALL)
_REFERENCE = re.compile(r"\\([1-9]|k[<']|g[<'])")
_CHARACTERS = re.compile(r"\\x\{([0-9a-f]+)\}")


class _RefusedError(ValueError):
    """Why a pattern is not accepted."""


@dataclass(frozen=True)
class _Part:
    """What stands between two parts of a sequence: how often it repeats, and what is inside."""

    can_be_absent: bool = False
    varies: bool = False
    """Whether it may match the same text in more than one way."""
    unbounded: int = 0
    """How many repetitions without a bound are in it that are tried again where what follows fails."""
    only_looks: bool = False


def refuse_patterns(steps: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Refuse the steps of a normalizer and pre-tokenizer whose patterns or replacements have no limit."""
    for step in steps:
        pattern = step.get("pattern")
        source = pattern.get("Regex") if isinstance(pattern, Mapping) else None
        if source is not None and (reason := reason_unlimited(source)):
            raise ModelError(
                f"{path} has the pattern {source[:80]!r}, with which some texts would take longer than anybody waits: "
                f"{reason}. Write it in another way, with one repetition for each alternative."
            )
    replacements = [(step["pattern"], str(step["content"])) for step in steps if step["type"] == "Replace"]
    for number, (_, content) in enumerate(replacements):
        if _grown(content, replacements[number + 1 :]) > MOST_GROWTH:
            raise ModelError(
                f"The replacements in {path} make more than {MOST_GROWTH:,} characters of one, so that texts would not "
                "fit into memory. Get the file of another source."
            )


def reason_unlimited(pattern: str) -> str:
    r"""Why a pattern might take more than the square of a text's length; empty where it does not.

    >>> reason_unlimited(r"'s| ?\p{L}+|\s+(?!\S)|\s+")
    ''
    >>> reason_unlimited("(a+)+$")
    'it repeats what may itself match in several ways'
    """
    if pattern == WORD:  # whose repetitions are each preceded by a mark that none of them has
        return ""
    try:
        _, end = _alternatives(pattern, 0)
        if end < len(pattern):
            raise _RefusedError("its brackets do not close")
    except _RefusedError as refused:
        return str(refused)
    return ""


def _alternatives(pattern: str, at: int) -> tuple[_Part, int]:
    """What is between brackets, or all of a pattern, and where it ends."""
    alternatives: list[_Part] = []
    parts: list[_Part] = []
    while at < len(pattern) and pattern[at] != ")":
        if pattern[at] == "|":
            alternatives.append(_sequence(parts))
            parts, at = [], at + 1
            continue
        part, at = _single(pattern, at)
        while at < len(pattern) and (quantifier := _QUANTIFIER.match(pattern, at)):
            part, at = _repeated(part, quantifier), quantifier.end()
        parts.append(part)
    alternatives.append(_sequence(parts))
    whole = _Part(
        can_be_absent=any(each.can_be_absent for each in alternatives),
        varies=len(alternatives) > 1 or any(each.varies for each in alternatives),
        unbounded=max(each.unbounded for each in alternatives),
    )
    return whole, at


def _single(pattern: str, at: int) -> tuple[_Part, int]:
    """The character, class or group that begins here, without its quantifier."""
    if _REFERENCE.match(pattern, at):
        raise _RefusedError("it refers to its own groups")
    if escape := _ESCAPE.match(pattern, at):
        return _Part(only_looks=escape[1] in "AzZbBG"), escape.end()
    if pattern[at] == "[":
        return _Part(), _end_of_class(pattern, at)
    if pattern[at] != "(":
        return _Part(only_looks=pattern[at] in "^$"), at + 1
    group = _GROUP.match(pattern, at)
    if group is None or (group[1] is None and pattern[at + 1 : at + 2] == "?"):
        raise _RefusedError("it has a kind of group that no published tokenizer has")
    kind = group[2] or ""
    if kind.startswith("#") or kind.endswith(")"):
        return _Part(can_be_absent=True, only_looks=True), group.end() + (kind.startswith("#"))
    inner, end = _alternatives(pattern, group.end())
    if end >= len(pattern):
        raise _RefusedError("its brackets do not close")
    looks = kind in ("=", "!", "<=", "<!")
    return _Part(inner.can_be_absent, inner.varies, inner.unbounded, looks), end + 1


def _end_of_class(pattern: str, at: int) -> int:
    depth = 0
    while at < len(pattern):
        if escape := _ESCAPE.match(pattern, at):
            at = escape.end()
            continue
        depth += {"[": 1, "]": -1}.get(pattern[at], 0)
        at += 1
        if depth == 0:
            return at
    raise _RefusedError("its brackets do not close")


def _repeated(part: _Part, quantifier: re.Match[str]) -> _Part:
    sign, least, comma, most = quantifier[1], quantifier[2], quantifier[3], quantifier[4]
    if sign in "*+?":
        low, high = (0 if sign in "*?" else 1), (1 if sign == "?" else None)
    else:
        low = int(least or 0)
        high = int(most) if most else None if comma else low
    if (high is None or high > 1) and part.varies:
        raise _RefusedError("it repeats what may itself match in several ways")
    endless = (high is None or high > MANY) and high != low
    once = quantifier[5] == "+" and sign in "*+?"  # possessive: never tried again
    return _Part(
        can_be_absent=low == 0 or part.can_be_absent,
        varies=low != high or part.varies,
        unbounded=part.unbounded + (1 if endless and not once else 0),
        only_looks=part.only_looks,
    )


def _sequence(parts: Sequence[_Part]) -> _Part:
    """Parts one after another. The last one that must match something succeeds at once; those before may be retried."""
    unbounded = sum(part.unbounded for part in parts)
    following = [number for number, part in enumerate(parts) if part.only_looks or not part.can_be_absent]
    last = following[-1] if following else -1
    retried = sum(part.unbounded for number, part in enumerate(parts) if number < last or part.only_looks)
    if retried > 1:
        raise _RefusedError("several repetitions without a bound follow one another")
    return _Part(
        can_be_absent=all(part.can_be_absent or part.only_looks for part in parts),
        varies=any(part.varies for part in parts),
        unbounded=min(unbounded, 2),
    )


def _grown(text: str, replacements: Sequence[tuple[Mapping[str, str], str]]) -> int:
    """How long a text is after replacements, as far as they can be followed; no further than is too long already."""
    factor = 1
    for pattern, content in replacements:
        if len(text) * factor > MOST_GROWTH:
            break
        for old in _replaced(pattern):
            text = text.replace(old, content) if old else text
        if "Regex" in pattern and not _CHARACTERS.search(pattern["Regex"]):
            factor *= max(1, len(content))
    return len(text) * factor


def _replaced(pattern: Mapping[str, str]) -> Iterator[str]:
    """The texts that a replacement is of, where they are listed."""
    if "String" in pattern:
        yield pattern["String"]
    else:
        yield from (chr(int(code, 16)) for code in _CHARACTERS.findall(pattern["Regex"]) if int(code, 16) < 0x110000)

"""Words in a canonical form, by which uses of one word are recognized."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Mapping

_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
"""Soft hyphen, zero-width space, word joiner and byte order mark: they say where lines may break, and spell nothing."""


def form(word: str) -> str:
    """The word in a canonical form, which depends neither on case nor on the encoding of accents nor on soft hyphens.

    >>> form("Straße") == form("STRASSE"), form("Crane") == form("cranes"), form("co\u00adoperate")
    (True, False, 'cooperate')
    """
    return same_case_form(word).casefold()


def same_case_form(word: str) -> str:
    """The word in a form that depends neither on the encoding of accents nor on soft hyphens.

    >>> same_case_form("Crane")
    'Crane'
    """
    return word if word.isascii() else unicodedata.normalize("NFC", word.translate(_INVISIBLE) or word)


def times(count: int) -> str:
    """How often a word occurs, in words."""
    return {0: "not at all", 1: "once"}.get(count, f"{count:,} times")


def close_forms(word: str, counts: Mapping[str, int], where: str = "There") -> str:
    """The forms most like a word that does not occur, after a blank, with how often each does; empty if none is close.

    >>> close_forms("bnak", {"bank": 4, "river": 1})
    " There is: 'bank' (4 times)."
    """
    close = difflib.get_close_matches(form(word), counts, n=3, cutoff=0.7)
    listed = ", ".join(f"{each!r} ({times(counts[each])})" for each in close)
    return f" {where} is: {listed}." if close else ""

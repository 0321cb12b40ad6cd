"""Words in a canonical form, by which uses of one word are recognized."""

from __future__ import annotations

import unicodedata

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

"""Words in a canonical form, by which uses of one word are recognized."""

from __future__ import annotations

import unicodedata


def form(word: str) -> str:
    """The word in a canonical form, which does not depend on case or on the encoding of accents.

    >>> form("Straße") == form("STRASSE"), form("Crane") == form("cranes")
    (True, False)
    """
    return unicodedata.normalize("NFC", word).casefold()


def same_case_form(word: str) -> str:
    """The word in a form that does not depend on the encoding of accents.

    >>> same_case_form("Crane")
    'Crane'
    """
    return unicodedata.normalize("NFC", word)

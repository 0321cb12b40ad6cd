"""Words and marks as running text: where tokenization has split marks off words, they are put back.

Only what follows from the marks alone is done; a single apostrophe or a dash between blanks stays by itself. So the
same words come out again when the text is split.
"""

from __future__ import annotations

from collections.abc import Sequence

_AFTER_WORD = frozenset(".,;:!?)]}%…”»")
_BEFORE_WORD = frozenset("([{$£€“„«")
_WITHIN = frozenset("-/")
"""Marks that join the words on both sides."""
_QUOTE = '"'
"""Opens and closes in turn."""


def joined_words(words: Sequence[str]) -> str:
    """Words with blanks between them, but for those that marks leave out.

    Whether there is a blank depends on what is before it alone, so the text of a beginning begins the text.

    >>> joined_words('The " crane " ( a bird ) , well - known , flew .'.split())
    'The "crane" (a bird), well-known, flew.'
    """
    parts: list[str] = []
    quoted, holds = False, True  # whether a quotation is open; whether the next word follows without a blank
    for word in words:
        closes = word == _QUOTE and quoted
        blank = not holds and not closes and word not in _AFTER_WORD and word not in _WITHIN
        parts += [" ", word] if blank else [word]
        opens = word == _QUOTE and not quoted
        quoted = opens or (quoted and not closes)
        holds = opens or word in _BEFORE_WORD or word in _WITHIN
    return "".join(parts)

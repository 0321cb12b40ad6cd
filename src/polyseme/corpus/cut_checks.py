"""Where a text may be cut before it is tokenized: what can be shown of a tokenizer, and of a stretch of text.

`text.cut_points` has the rule for blanks; here are those that `fast_tokenization` needs besides.
"""

from __future__ import annotations

import unicodedata
from typing import Any

from polyseme.text.cut_points import steps

_PLAIN = frozenset(map(chr, range(0x21, 0x7F)))
_METASPACE = "\u2581"


def is_ordinary(stretch: str) -> bool:
    """Whether a text can be cut before the blanks around a stretch: nothing at its ends holds on to them."""
    first, last = stretch[0], stretch[-1]
    if first in _PLAIN and last in _PLAIN:
        return True
    return _is_plain(first) and (_is_plain(last) or unicodedata.category(last)[0] == "M")


def _is_plain(character: str) -> bool:
    if character in _PLAIN:
        return True
    category = unicodedata.category(character)
    if category[0] not in "LNPS" or category == "Sk" or character == _METASPACE:
        return False
    spelled_out = unicodedata.normalize("NFKD", character)
    return not (spelled_out[0].isspace() or spelled_out[-1].isspace())


def drops_blanks(backend: Any) -> bool:
    """Whether blanks only separate words, however many there are."""
    first = steps(backend.pre_tokenizer)[0]
    return first["type"] in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")


def parts_marks(backend: Any) -> bool:
    """Whether words and the marks of ASCII around them are read as if each were alone."""
    if any(not token.special for token in backend.get_added_tokens_decoder().values()):
        return False
    simple = ("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents")
    kinds = [step["type"] for step in steps(backend.pre_tokenizer)]
    return kinds in (["BertPreTokenizer"], ["Whitespace"]) and all(
        step["type"] in simple for step in steps(backend.normalizer)
    )


def can_be_cut_at_lines(backend: Any) -> bool:
    """Whether a text can also be cut before a line's end between two ordinary characters.

    That is so where a line's end parts words as a blank does, or is a blank after normalizing, or is a piece by itself.
    """
    if any(not token.special and "\n" in token.content for token in backend.get_added_tokens_decoder().values()):
        return False
    first = steps(backend.pre_tokenizer)[0]
    if drops_blanks(backend):
        return True
    if first["type"] == "Metaspace":
        return backend.normalizer is not None and bool(backend.normalizer.normalize_str("x\nx") == "x x")
    return first["type"] == "ByteLevel" and not first["add_prefix_space"] and not steps(backend.normalizer)

"""Long text in stretches, each of which a tokenizer can read by itself with the same result.

Encoding ten megabytes in one call takes several times the memory and time of encoding them in stretches. A stretch
begins with a single blank between two letters or digits. Whether that gives the same pieces as the whole text depends
on the tokenizer's normaliser and pre-tokenizer, so it is done only for those of which it can be shown: where every
blank ends what came before, and nothing that happens at the beginning of a text is lost or done twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer

_BLANK_BETWEEN_WORDS = re.compile(r"(?<=\w) (?=\w)")

_CHARACTER_BY_CHARACTER = frozenset(
    ["BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "StripAccents"]
)
"""Normalisers that never look across a blank."""

_DROP_BLANKS = frozenset(["BertPreTokenizer", "Whitespace", "WhitespaceSplit"])
"""Pre-tokenizers that cut at every blank and drop it."""

EXTRA_BLANKS = " {2,}"
OUTER_BLANKS = r"\A +| +\z"
"""Patterns with which blanks are tidied: several in a row, and those around a text."""


def cut_text(text: str, length: int) -> Iterator[tuple[int, int]]:
    """Where stretches of at least `length` characters start and end; the last may be shorter.

    >>> list(cut_text("one two three", 5))
    [(0, 7), (7, 13)]
    """
    start = 0
    while start + length < len(text):
        blank = _BLANK_BETWEEN_WORDS.search(text, start + length)
        if blank is None:
            break
        yield start, blank.start()
        start = blank.start()
    yield start, len(text)


def can_be_cut(backend: Tokenizer) -> bool:
    """Whether stretches give the same pieces as the whole text."""
    return not _has_added_words(backend) and _cut_at_blanks(steps(backend.normalizer), steps(backend.pre_tokenizer))


def prepends_itself(backend: Tokenizer) -> bool:
    """Whether the normaliser puts a prefix before everything, so that a blank before it would be one too many."""
    return any(step["type"] == "Prepend" for step in steps(backend.normalizer))


def steps(component: Any) -> list[dict[str, Any]]:
    """The settings of a normaliser or pre-tokenizer (or None), one after another where it is a sequence."""
    if component is None:
        return []
    settings = json.loads(component.__getstate__())
    return list(_flat(settings))


def _flat(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    inner = settings.get("normalizers", settings.get("pretokenizers", settings.get("processors")))
    if settings["type"] != "Sequence" or inner is None:
        yield settings
        return
    for step in inner:
        yield from _flat(step)


def _has_added_words(backend: Tokenizer) -> bool:
    """Whether there are added pieces that look at blanks; special ones are never looked for in text."""
    added = backend.get_added_tokens_decoder().values()
    return any(
        not token.special and (token.lstrip or token.rstrip or token.single_word or " " in token.content)
        for token in added
    )


def _cut_at_blanks(normalizers: list[dict[str, Any]], pre_tokenizers: list[dict[str, Any]]) -> bool:
    if not pre_tokenizers or not all(_stays_in_stretch(step) for step in normalizers):
        return False
    loses_blank = any(_strips_start(step) for step in normalizers)
    first = pre_tokenizers[0]
    if first["type"] in _DROP_BLANKS:
        return True
    if first["type"] == "Metaspace":
        return bool(first.get("split", True)) and (not loses_blank or first["prepend_scheme"] == "always")
    if first["type"] == "ByteLevel":
        return bool(first.get("use_regex", True)) and (not loses_blank or bool(first["add_prefix_space"]))
    return False


def _stays_in_stretch(step: dict[str, Any]) -> bool:
    if step["type"] == "Replace":
        pattern = step["pattern"]
        return pattern.get("Regex") in (EXTRA_BLANKS, OUTER_BLANKS) or " " not in pattern.get("String", " ")
    return step["type"] in _CHARACTER_BY_CHARACTER or step["type"] == "Strip"


def _strips_start(step: dict[str, Any]) -> bool:
    if step["type"] == "Strip":
        return bool(step.get("strip_left"))
    return step["type"] == "Replace" and step["pattern"].get("Regex") == OUTER_BLANKS

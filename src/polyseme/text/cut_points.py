"""Where raw text can be cut so that its parts, encoded separately, have the same pieces as the whole.

That is before a single blank between two ordinary characters, and only for tokenizers whose normalizer and
pre-tokenizer allow it: they must split at every blank, and do nothing at the beginning of a text that would be lost or
done twice. A part that begins with a blank then has the pieces that it has inside its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer

_WITH_BLANKS = "\u037a\ufc5e-\ufc63\ufdfa\ufdfb\ufe70-\ufe7e"
"""Letters whose compatibility forms have a blank in them, which would then be next to the one at the cut."""
_BLANK = re.compile(rf"(?<=[\w!-~])(?<![{_WITH_BLANKS}]) (?=[\w!-~])(?![{_WITH_BLANKS}])")
"""A single blank between letters, digits and ASCII punctuation; marks and format characters might attach to it."""

_CHARACTER_BY_CHARACTER = frozenset(
    ["BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "StripAccents"]
)
"""Normalizers that never look across a blank."""

_DROP_BLANKS = frozenset(["BertPreTokenizer", "Whitespace", "WhitespaceSplit"])
"""Pre-tokenizers that cut at every blank and drop it."""

CHARACTER = r"(?m:.)"
"""The pattern of a pre-tokenizer that splits every character, line feeds included."""
_LETTERS = r"[\p{L}\p{M}\p{N}_]+"
WORD = rf"{_LETTERS}(?:(?:['’.]|(?<=\p{{N}}),(?=\p{{N}})){_LETTERS})*|."
"""Letters and digits with apostrophes and points inside, or a single mark: nearly as `text.words` splits."""
EXTRA_BLANKS = " {2,}"
OUTER_BLANKS = r"\A +| +\z"
"""Patterns for normalizing blanks: several in a row, and those around a text."""

_SINGLE_CHARACTERS = re.compile(r"\[(?:\\x\{[0-9a-f]+\})+\]\Z")
"""A pattern that is a list of single characters."""


def cut_places(text: str) -> list[int]:
    """The offsets at which one part of the text ends and the next one starts.

    >>> cut_places("one two,  three four")
    [3, 15]
    """
    return [blank.start() for blank in _BLANK.finditer(text)]


def can_be_cut(backend: Tokenizer) -> bool:
    """Whether the parts of a text, cut at `cut_places`, have the same pieces as the whole."""
    return not _has_added_words(backend) and _cut_at_blanks(steps(backend.normalizer), steps(backend.pre_tokenizer))


def prepends_itself(backend: Tokenizer) -> bool:
    """Whether the normalizer prepends a prefix to every text, so that no blank must be added before it."""
    return any(step["type"] == "Prepend" for step in steps(backend.normalizer))


def steps(component: Any) -> list[dict[str, Any]]:
    """The settings of a normalizer, pre-tokenizer or post-processor (or None), as a list if it is a sequence."""
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
    """Whether there are added pieces that depend on blanks; special ones are never matched in text."""
    added = backend.get_added_tokens_decoder().values()
    return any(
        not token.special and (token.lstrip or token.rstrip or token.single_word or " " in token.content)
        for token in added
    )


def _cut_at_blanks(normalizers: list[dict[str, Any]], pre_tokenizers: list[dict[str, Any]]) -> bool:
    if not pre_tokenizers or not all(_stays_in_part(step) for step in normalizers):
        return False
    loses_blank = any(_strips_start(step) for step in normalizers)
    first = pre_tokenizers[0]
    if first["type"] in _DROP_BLANKS:
        return True
    if first["type"] == "Split":
        return bool(first["pattern"] == {"String": " "} and first["behavior"] == "Removed")
    if first["type"] == "Metaspace":
        return bool(first.get("split", True)) and (not loses_blank or first["prepend_scheme"] == "always")
    if first["type"] == "ByteLevel":
        return bool(first.get("use_regex", True)) and (not loses_blank or bool(first["add_prefix_space"]))
    return False


def _stays_in_part(step: dict[str, Any]) -> bool:
    if step["type"] == "Replace":
        pattern = step["pattern"]
        if "Regex" in pattern:
            return pattern["Regex"] in (EXTRA_BLANKS, OUTER_BLANKS) or bool(_SINGLE_CHARACTERS.match(pattern["Regex"]))
        return " " not in pattern["String"]
    return step["type"] in _CHARACTER_BY_CHARACTER or step["type"] == "Strip"


def _strips_start(step: dict[str, Any]) -> bool:
    if step["type"] == "Strip":
        return bool(step.get("strip_left"))
    return step["type"] == "Replace" and bool(step["pattern"].get("Regex") == OUTER_BLANKS)

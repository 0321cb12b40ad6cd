"""Text to pieces exactly as SentencePiece has them, with their places in the text as it was given.

Texts go through three steps. What the family does beforehand is done character by character (ALBERT: decomposed,
without accents, in small letters). The table of the file replaces characters, except in user-defined pieces; blanks
are put in order and become ▁. Then the pieces are searched for (`sentencepiece_search`). ASCII without anything odd in
it takes a shorter way.

A piece is where its characters come from, without blanks around it; one that is a blank alone (▁) is where the
character after it is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from polyseme.text.character_map import CharacterMap
from polyseme.text.sentencepiece import BLANK, Kind, SentencePieceModel
from polyseme.text.sentencepiece_search import LikeliestPieces, MergedPieces, by_length

_KNOWN_TABLES = ("", "identity", "nfkc", "nfkc_cf", "nmt_nfkc", "nmt_nfkc_cf")
"""Normalizations that put no blanks beside words but those that `cut_points` knows of."""
_CLEANED_TOGETHER = re.compile("``|''|(?s:.)")
"""What is cleaned at once: a character, or two quotation marks that become one."""


class Located(NamedTuple):
    """A text in which each character comes from somewhere in another."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]


class Encoded(NamedTuple):
    """The pieces of a text."""

    ids: tuple[int, ...]
    edges: tuple[int, ...]
    """The start and end of each, one after another."""
    scores: tuple[float, ...]
    is_close: bool
    """Whether the pieces depend on what comes before."""


class SentencePieceEncoder:
    """Encodes texts with a `.model` file; `cleaning` is a normalizer of the `tokenizers` library that comes first."""

    def __init__(self, model: SentencePieceModel, cleaning: Any = None) -> None:
        self.model = model
        self.cleaning = cleaning
        self._map = CharacterMap(model.charsmap)
        self._cleaned: dict[str, str] = {}

    def __reduce__(self) -> tuple[type[SentencePieceEncoder], tuple[SentencePieceModel, Any]]:
        return SentencePieceEncoder, (self.model, self.cleaning)

    @cached_property
    def can_be_cut(self) -> bool:
        """Whether parts of a text, cut at `cut_points.cut_places`, have the pieces that they have in it."""
        matched = [piece.text for piece in self.model.pieces if piece.kind in (Kind.NORMAL, Kind.USER_DEFINED)]
        if BLANK not in matched or any(BLANK in text[1:] or " " in text for text in matched):
            return False
        return self.model.normalization in _KNOWN_TABLES

    def without(self, ids: Collection[int]) -> SentencePieceEncoder:
        """An encoder that never has these pieces in a text."""
        matched = (Kind.NORMAL, Kind.USER_DEFINED)
        pieces = [
            piece._replace(kind=Kind.CONTROL) if id in ids and piece.kind in matched else piece
            for id, piece in enumerate(self.model.pieces)
        ]
        if pieces == self.model.pieces:
            return self
        return SentencePieceEncoder(dataclasses.replace(self.model, pieces=pieces), self.cleaning)

    def encode(self, text: str, so_far: float = 0.0) -> Encoded:
        """The pieces of a text, behind others whose scores have a sum (`sentencepiece_search.add_up`)."""
        located = self._plain(text) or self._normalized(text)
        normalized, model = located.text, self.model
        ids: list[int] = []
        edges: list[int] = []
        after_unknown = False
        cuts = self._search.cut(normalized, so_far)
        for id, start, end in cuts.pieces:
            is_unknown = id == model.unknown
            if is_unknown and model.byte_fallback:
                for place in range(start, end):
                    for byte in normalized[place].encode():
                        ids.append(self._bytes[byte])
                        edges += self._place(located, place, place + 1)
            elif is_unknown and after_unknown:
                edges[-1] = self._place(located, start, end)[1]
            else:
                ids.append(id)
                edges += self._place(located, start, end)
            after_unknown = is_unknown
        return Encoded(tuple(ids), tuple(edges), cuts.scores, cuts.is_close)

    # --- before the table ------------------------------------------------------------------------------------------

    def _clean(self, text: str) -> Located:
        if self.cleaning is None:
            return Located(text, range(len(text)), range(1, len(text) + 1))
        parts: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        for match in _CLEANED_TOGETHER.finditer(text):
            part = self._clean_part(match[0])
            parts.append(part)
            starts += [match.start()] * len(part)
            ends += [match.end()] * len(part)
        return Located("".join(parts), starts, ends)

    def _clean_part(self, part: str) -> str:
        if part not in self._cleaned:
            self._cleaned[part] = self.cleaning.normalize_str(part)
        return self._cleaned[part]

    # --- the table and blanks ----------------------------------------------------------------------------------------

    def _plain(self, text: str) -> Located | None:
        """A text of ASCII that the table leaves as it is, with single blanks; None for another one."""
        if not text.isascii() or self._odd.search(text):
            return None
        shift = 0
        if self.model.remove_extra_whitespaces and text.startswith(" "):
            text, shift = text[1:], 1
        if self._small_letters:
            text = text.translate(self._small_letters)
        if self.model.add_dummy_prefix and text:
            text, shift = " " + text, shift - 1
        return Located(
            text.replace(" ", BLANK), range(shift, shift + len(text)), range(shift + 1, shift + 1 + len(text))
        )

    def _normalized(self, text: str) -> Located:
        """A text as pieces are searched in it."""
        cleaned = self._clean(text)
        extra, size = self.model.remove_extra_whitespaces, len(cleaned.text)
        chars: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        place = 0
        begins, after_blank = True, extra
        while place < size:
            part, end = self._part_at(cleaned.text, place)
            is_same = part == cleaned.text[place:end]
            first, last = cleaned.starts[place], cleaned.ends[end - 1]
            place = end
            if begins and extra and part == " ":
                continue
            if begins and self.model.add_dummy_prefix:
                chars.append(BLANK)
                starts.append(first)
                ends.append(first)
            begins = False
            if after_blank:
                part = part.lstrip(" ")
            chars += part.replace(" ", BLANK)
            starts += cleaned.starts[end - len(part) : end] if is_same else [first] * len(part)
            ends += cleaned.ends[end - len(part) : end] if is_same else [last] * len(part)
            after_blank = extra and (part.endswith(" ") if part else after_blank)
        normalized = "".join(chars)
        if extra:
            normalized = normalized.rstrip(BLANK)
        return Located(normalized, starts, ends)

    def _part_at(self, text: str, place: int) -> tuple[str, int]:
        """What the text becomes here, and where that ends: a user-defined piece, a key of the table, or a character."""
        if self._user_defined and (match := self._user_defined.match(text, place)):
            return match[0], match.end()
        return self._map.longest(text, place) or (text[place], place + 1)

    @cached_property
    def _odd(self) -> re.Pattern[str]:
        """What is not to be found in a plain text."""
        odd = {char for char in map(chr, range(0x80)) if self.cleaning and len(self._clean_part(char)) != 1}
        odd |= {char for char in map(chr, range(0x80)) if self._clean_ascii(char) in self._map.changed_ascii}
        patterns = [re.escape(char) for char in sorted(odd | {"\0"})]
        patterns += [re.escape(piece) for piece in self.model.user_defined if " " in piece]
        if self.model.remove_extra_whitespaces:
            patterns += ["  ", r" \Z"]
        if self.cleaning:
            patterns += ["``", "''"]
        return re.compile("|".join(patterns))

    @cached_property
    def _small_letters(self) -> dict[int, str]:
        """What cleaning makes of ASCII, where it makes another character of one."""
        if not self.cleaning:
            return {}
        return {code: new for code in range(0x80) if len(new := self._clean_part(chr(code))) == 1 and new != chr(code)}

    def _clean_ascii(self, char: str) -> str:
        return self._clean_part(char) if self.cleaning else char

    @cached_property
    def _user_defined(self) -> re.Pattern[str] | None:
        pieces = by_length(self.model.user_defined)
        return re.compile("|".join(map(re.escape, pieces))) if pieces else None

    # --- pieces ------------------------------------------------------------------------------------------------------

    @cached_property
    def _search(self) -> LikeliestPieces | MergedPieces:
        model = self.model
        normal = {piece.text: (id, piece.score) for id, piece in enumerate(model.pieces) if piece.kind == Kind.NORMAL}
        search = LikeliestPieces if model.algorithm == "unigram" else MergedPieces
        return search(normal, model.user_defined, model.unknown)

    @cached_property
    def _bytes(self) -> dict[int, int]:
        """The piece of each byte."""
        return {int(piece.text[1:-1], 16): id for id, piece in enumerate(self.model.pieces) if piece.kind == Kind.BYTE}

    def _place(self, located: Located, start: int, end: int) -> tuple[int, int]:
        """Where a piece comes from."""
        text = located.text
        if text[start] != BLANK and text[end - 1] != BLANK:
            return located.starts[start], located.ends[end - 1]
        while start < end - 1 and text[start] == BLANK:
            start += 1
        while start < end - 1 and text[end - 1] == BLANK:
            end -= 1
        if text[start] == BLANK and end < len(text) and text[end] != BLANK:
            start, end = end, end + 1
        return max(located.starts[start], 0), located.ends[end - 1]

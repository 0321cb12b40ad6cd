"""Text to pieces exactly as the SentencePiece library encodes it, with spans in the original text.

Encoding has three steps. First the family's own cleaning runs, character by character (ALBERT: decompose, strip
accents, lowercase). Then the table of the file replaces characters, except in user-defined pieces; extra blanks are
removed, and blanks become ▁. Last, `sentencepiece_search` finds the pieces. ASCII text that the table does not change
takes a faster path.

The span of a piece covers the characters that it comes from, without blanks around them. A piece that is a blank alone
(▁) has the span of the character after it.
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
"""Normalizations that add no blanks to a text other than those that `cut_points` handles."""
_CLEANED_TOGETHER = re.compile("``|''|(?s:.)")
"""Units of cleaning: a character, or two quotation marks that become one."""


class AlignedText(NamedTuple):
    """A normalized text, with the span of each of its characters in the original."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]


class EncodedText(NamedTuple):
    """The pieces of a text."""

    ids: tuple[int, ...]
    edges: tuple[int, ...]
    """The start and end of each piece, one after another."""
    scores: tuple[float, ...]
    has_ties: bool
    """Whether other pieces are about as likely, so that the text before decides."""


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

    def encode(self, text: str, so_far: float = 0.0) -> EncodedText:
        """The pieces of a text; `so_far` is the sum of all scores before it (`sentencepiece_search.add_up`)."""
        aligned = self._plain(text) or self._normalized(text)
        normalized, model = aligned.text, self.model
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
                        edges += self._place(aligned, place, place + 1)
            elif is_unknown and after_unknown:
                edges[-1] = self._place(aligned, start, end)[1]
            else:
                ids.append(id)
                edges += self._place(aligned, start, end)
            after_unknown = is_unknown
        return EncodedText(tuple(ids), tuple(edges), cuts.scores, cuts.has_ties)

    # --- before the table ------------------------------------------------------------------------------------------

    def _clean(self, text: str) -> AlignedText:
        if self.cleaning is None:
            return AlignedText(text, range(len(text)), range(1, len(text) + 1))
        parts: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        for match in _CLEANED_TOGETHER.finditer(text):
            part = self._clean_part(match[0])
            parts.append(part)
            starts += [match.start()] * len(part)
            ends += [match.end()] * len(part)
        return AlignedText("".join(parts), starts, ends)

    def _clean_part(self, part: str) -> str:
        if part not in self._cleaned:
            self._cleaned[part] = self.cleaning.normalize_str(part)
        return self._cleaned[part]

    # --- the table and blanks ----------------------------------------------------------------------------------------

    def _plain(self, text: str) -> AlignedText | None:
        """An ASCII text with single blanks that the table does not change; None for any other text."""
        if not text.isascii() or self._odd.search(text):
            return None
        shift = 0
        if self.model.remove_extra_whitespaces and text.startswith(" "):
            text, shift = text[1:], 1
        if self._small_letters:
            text = text.translate(self._small_letters)
        if self.model.add_dummy_prefix and text:
            text, shift = " " + text, shift - 1
        return AlignedText(
            text.replace(" ", BLANK), range(shift, shift + len(text)), range(shift + 1, shift + 1 + len(text))
        )

    def _normalized(self, text: str) -> AlignedText:
        """A text after all three normalizations: cleaning, the table, blanks."""
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
        return AlignedText(normalized, starts, ends)

    def _part_at(self, text: str, place: int) -> tuple[str, int]:
        """What replaces the user-defined piece, key of the table or character at a place, and where that ends."""
        if self._user_defined and (match := self._user_defined.match(text, place)):
            return match[0], match.end()
        return self._map.longest(text, place) or (text[place], place + 1)

    @cached_property
    def _odd(self) -> re.Pattern[str]:
        """Matches whatever a text without normalization must not contain."""
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
        """The ASCII characters that cleaning replaces by one other character."""
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

    def _place(self, aligned: AlignedText, start: int, end: int) -> tuple[int, int]:
        """The span of a piece in the original text."""
        text = aligned.text
        if text[start] != BLANK and text[end - 1] != BLANK:
            return aligned.starts[start], aligned.ends[end - 1]
        while start < end - 1 and text[start] == BLANK:
            start += 1
        while start < end - 1 and text[end - 1] == BLANK:
            end -= 1
        if text[start] == BLANK and end < len(text) and text[end] != BLANK:
            start, end = end, end + 1
        return max(aligned.starts[start], 0), aligned.ends[end - 1]

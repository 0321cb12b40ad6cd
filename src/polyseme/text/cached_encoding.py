"""Parts of text to pieces, through a memory of the parts read before.

A text has far fewer different words than words, so what the library says about a part of text is kept and looked up
the next time. For given words the parts are the words, each as it would stand in a text: after a blank, unless it is
the first. Raw text is cut into parts where that cannot change its pieces (`cutting`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from polyseme.text.cut_points import can_be_cut, cut_places, prepends_itself
from polyseme.text.specials import is_unigram, literal_twin
from polyseme.types import Document

Ints = NDArray[np.int64]

REMEMBERED = 100_000
"""How many parts are remembered; after that the memory starts afresh."""
LONGEST = 64
"""The longest part, in characters, that is remembered."""
AT_ONCE = 100_000
"""How many parts are looked up at once."""
CHARACTERS_AT_ONCE = 1_000_000
"""How many characters are in the library's hands at once."""


class Reading(NamedTuple):
    """Pieces of several parts, one after another."""

    ids: Ints
    """[n]"""
    spans: Ints
    """[n, 2], each in its own part."""
    counts: Ints
    """[parts]: how many pieces each part has."""


class _Spelled(NamedTuple):
    """The pieces of one part of text."""

    ids: tuple[int, ...]
    ends: tuple[int, ...]
    """The start and end of each piece in the part."""


class Reader:
    """Reads parts of text with a `tokenizers.Tokenizer`."""

    def __init__(self, backend: Tokenizer, specials: Mapping[str, int]) -> None:
        backend.encode_special_tokens = True
        self._backend = backend
        self._specials = specials
        self._known: dict[str, _Spelled] = {}

    def parts(self, document: Document) -> tuple[list[str], list[int]]:
        """The parts of a document that can be read by themselves, and where in its text each starts."""
        text = document.text
        if not document.given:
            places = cut_places(text) if self._can_be_cut else []
            starts = [0, *places]
            return [text[start:end] for start, end in zip(starts, [*places, len(text)], strict=True)], starts
        blank = "" if self._prepends_itself else " "
        parts = [blank + word if place else str(word) for place, word in enumerate(document.words)]
        return parts, [word.end - len(part) for word, part in zip(document.words, parts, strict=True)]

    def read(self, parts: Sequence[str]) -> Reading:
        """The pieces of all parts."""
        readings = [self._read(parts[start : start + AT_ONCE]) for start in range(0, len(parts), AT_ONCE)]
        if not readings:
            return Reading(np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros(0, np.int64))
        return readings[0] if len(readings) == 1 else Reading(*map(np.concatenate, zip(*readings, strict=True)))

    @cached_property
    def stand_in(self) -> int | None:
        """What a word gets that comes out as nothing: the unknown piece, or else that of a mere blank."""
        if "unknown" in self._specials:
            return self._specials["unknown"]
        blanks = (self._backend.token_to_id(blank) for blank in ("Ġ", "▁"))
        return next((int(id) for id in blanks if id is not None), None)

    def _read(self, parts: Sequence[str]) -> Reading:
        known = self._known
        types = dict.fromkeys(parts)
        new = [part for part in types if part not in known]
        if len(known) + len(new) > REMEMBERED:
            known = self._known = {}
            new = list(types)
        for few in _few_at_a_time(new):
            known.update(zip(few, self._spell(few), strict=True))
        found = [known[part] for part in parts]
        for part in new:
            if len(part) > LONGEST:
                known.pop(part, None)
        counts = np.fromiter((len(spelled.ids) for spelled in found), np.int64, len(found))
        n = int(counts.sum())
        return Reading(
            np.fromiter(chain.from_iterable(spelled.ids for spelled in found), np.int64, n),
            np.fromiter(chain.from_iterable(spelled.ends for spelled in found), np.int64, 2 * n).reshape(n, 2),
            counts,
        )

    def _spell(self, texts: list[str]) -> list[_Spelled]:
        if len(texts) == 1:  # one text needs none of the threads that a batch would start
            encodings = [self._backend.encode(texts[0], add_special_tokens=False)]
        else:
            encodings = self._backend.encode_batch(texts, add_special_tokens=False)
        spelled = [_spelled(encoding) for encoding in encodings]
        for place, text in enumerate(texts):
            if not self._never_in_text.isdisjoint(spelled[place].ids) or self._spells_unknown(text):
                spelled[place] = self._spell_literally(text)
        return spelled

    def _spell_literally(self, text: str) -> _Spelled:
        """The pieces of a text that looks like a special piece and is none."""
        ids, ends = _spelled(self._literal_twin.encode(text, add_special_tokens=False))
        if self.stand_in is None:
            return _Spelled(ids, ends)
        return _Spelled(tuple(self.stand_in if id in self._never_in_text else id for id in ids), ends)

    def _spells_unknown(self, text: str) -> bool:
        return self._unknown_in_text is not None and self._unknown_in_text in text

    @cached_property
    def _can_be_cut(self) -> bool:
        return can_be_cut(self._backend)

    @cached_property
    def _prepends_itself(self) -> bool:
        return prepends_itself(self._backend)

    @cached_property
    def _never_in_text(self) -> frozenset[int]:
        """The ids of special pieces, which text must not come out as; the unknown piece may."""
        added = self._backend.get_added_tokens_decoder()
        special = {id for id, token in added.items() if token.special} | set(self._specials.values())
        return frozenset(special - {self._specials.get("unknown")})

    @cached_property
    def _unknown_in_text(self) -> str | None:
        """The unknown piece as it is written, where text that spells it out would come out as it."""
        if "unknown" not in self._specials or not is_unigram(self._backend):
            return None
        return str(self._backend.id_to_token(self._specials["unknown"]))

    @cached_property
    def _literal_twin(self) -> Tokenizer:
        return literal_twin(self._backend, self._never_in_text)


def _spelled(encoding: Encoding) -> _Spelled:
    return _Spelled(tuple(encoding.ids), tuple(chain.from_iterable(encoding.offsets)))


def _few_at_a_time(texts: Sequence[str]) -> Iterator[list[str]]:
    few: list[str] = []
    size = 0
    for text in texts:
        few.append(text)
        size += len(text)
        if size > CHARACTERS_AT_ONCE:
            yield few
            few, size = [], 0
    if few:
        yield few

"""Parts of text to pieces, with a cache of the parts encoded before.

A text repeats most of its words, so the pieces of a part are cached. In a list of words each word is a part, with a
blank before it unless it is the first. Raw text is cut into parts where that cannot change its pieces (`cut_points`).
Pieces that are single characters are looked up all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer
from tokenizers.models import WordLevel

from polyseme.text.cut_points import CHARACTER, can_be_cut, cut_places, prepends_itself, steps
from polyseme.text.library_faults import library_faults
from polyseme.text.ragged_arrays import places_within
from polyseme.text.sentencepiece_encoding import SentencePieceEncoder
from polyseme.text.sentencepiece_search import add_up
from polyseme.text.specials import is_unigram, literal_twin
from polyseme.types import Document

Ints = NDArray[np.int64]
Item = TypeVar("Item")

CACHE_SIZE = 100_000
"""Parts in the cache; when it is full it is cleared."""
MAX_CACHED_LENGTH = 64
"""The longest part, in characters, that is cached."""
PARTS_PER_CALL = 100_000
"""Parts that are looked up at once."""
CHARACTERS_PER_CALL = 1_000_000
"""Characters that are passed to the library at once."""


class EncodedParts(NamedTuple):
    """Pieces of several parts, one after another."""

    ids: Ints
    """[n]"""
    spans: Ints
    """[n, 2], relative to the start of their part."""
    counts: Ints
    """[parts]: pieces per part."""


class _PartPieces(NamedTuple):
    """The pieces of one part of text."""

    ids: tuple[int, ...]
    ends: tuple[int, ...]
    """The start and end of each piece in the part."""
    scores: tuple[float, ...] = ()
    """The score of each piece in a SentencePiece model; empty for other tokenizers."""
    has_ties: bool = False
    """Whether other pieces are about as likely, so that the text before the part decides."""


class CachedEncoder:
    """Encodes parts of text with a `tokenizers.Tokenizer`, or with the encoder of a SentencePiece model."""

    def __init__(
        self, backend: Tokenizer, specials: Mapping[str, int], sentencepiece: SentencePieceEncoder | None = None
    ) -> None:
        backend.encode_special_tokens = True
        self._backend = backend
        self._specials = specials
        self._sentencepiece = sentencepiece.without(self._never_in_text) if sentencepiece else None
        self._cache: dict[str, _PartPieces] = {}

    def parts(self, document: Document) -> tuple[list[str], list[int]]:
        """The parts of a document that can be encoded separately, and where each starts in its text."""
        text = document.text
        if not document.pretokenized:
            places = cut_places(text) if self.can_be_cut else []
            starts = [0, *places]
            return [text[start:end] for start, end in zip(starts, [*places, len(text)], strict=True)], starts
        blank = "" if self._prepends_itself else " "
        parts = [blank + word if place else str(word) for place, word in enumerate(document.words)]
        return parts, [word.end - len(part) for word, part in zip(document.words, parts, strict=True)]

    def encode(self, parts: Sequence[str], n_parts: Ints | None = None) -> EncodedParts:
        """The pieces of all parts; `n_parts` is how many make up each text, if they were cut from texts."""
        if self._characters is not None:
            return self._characters.encode(parts)
        encoded: list[_PartPieces] = []
        for start in range(0, len(parts), PARTS_PER_CALL):
            encoded += self._encode_cached(parts[start : start + PARTS_PER_CALL])
        if self._sentencepiece and n_parts is not None:
            self._resolve_ties(parts, encoded, n_parts)
        counts = np.fromiter((len(pieces.ids) for pieces in encoded), np.int64, len(encoded))
        n = int(counts.sum())
        return EncodedParts(
            np.fromiter(chain.from_iterable(pieces.ids for pieces in encoded), np.int64, n),
            np.fromiter(chain.from_iterable(pieces.ends for pieces in encoded), np.int64, 2 * n).reshape(n, 2),
            counts,
        )

    @cached_property
    def placeholder(self) -> int | None:
        """The piece of a word that has no pieces: the unknown piece, or else the piece of a single blank."""
        if "unknown" in self._specials:
            return self._specials["unknown"]
        blanks = (self._backend.token_to_id(blank) for blank in ("Ġ", "▁"))
        return next((int(id) for id in blanks if id is not None), None)

    def _resolve_ties(self, parts: Sequence[str], encoded: list[_PartPieces], n_parts: Ints) -> None:
        """Encode parts with ties again, given the scores of all parts before them in their text."""
        assert self._sentencepiece is not None
        tied = [place for place, pieces in enumerate(encoded) if pieces.has_ties]
        begins = np.concatenate([[0], np.cumsum(n_parts)])
        added, so_far = 0, 0.0
        for place, text in zip(tied, np.searchsorted(begins, tied, side="right").tolist(), strict=True):
            if begins[text - 1] > added:
                added, so_far = int(begins[text - 1]), 0.0
            so_far = add_up(so_far, chain.from_iterable(pieces.scores for pieces in encoded[added:place]))
            encoded[place] = _PartPieces(*self._sentencepiece.encode(parts[place], so_far))
            added = place

    def _encode_cached(self, parts: Sequence[str]) -> list[_PartPieces]:
        cache = self._cache
        types = dict.fromkeys(parts)
        new = [part for part in types if part not in cache]
        if len(cache) + len(new) > CACHE_SIZE:
            cache = self._cache = {}
            new = list(types)
        for texts in batch_by_size(new, len, CHARACTERS_PER_CALL):
            cache.update(zip(texts, self._encode_texts(texts), strict=True))
        encoded = [cache[part] for part in parts]
        for part in new:
            if len(part) > MAX_CACHED_LENGTH:
                cache.pop(part, None)
        return encoded

    def _encode_texts(self, texts: list[str]) -> list[_PartPieces]:
        if self._sentencepiece:
            return [_PartPieces(*self._sentencepiece.encode(text)) for text in texts]
        with library_faults("The model's tokenizer makes no pieces of a text", "Get the tokenizer's files again."):
            if len(texts) == 1:  # one text needs none of the threads that a batch would start
                encodings = [self._backend.encode(texts[0], add_special_tokens=False)]
            else:
                encodings = self._backend.encode_batch(texts, add_special_tokens=False)
        result = [_part_pieces(encoding) for encoding in encodings]
        for index, text in enumerate(texts):
            unknown = self._unknown_in_text
            if not self._never_in_text.isdisjoint(result[index].ids) or (unknown is not None and unknown in text):
                result[index] = self._encode_literally(text)
        return result

    def _encode_literally(self, text: str) -> _PartPieces:
        """The pieces of a text that spells out a special piece and must not become it."""
        ids, ends, *_ = _part_pieces(self._literal_twin.encode(text, add_special_tokens=False))
        if self.placeholder is None:
            return _PartPieces(ids, ends)
        return _PartPieces(tuple(self.placeholder if id in self._never_in_text else id for id in ids), ends)

    @cached_property
    def _characters(self) -> _Characters | None:
        return _Characters.of(self._backend)

    @cached_property
    def can_be_cut(self) -> bool:
        """Whether the parts of a text, cut at certain blanks, have the same pieces as the whole."""
        return can_be_cut(self._backend) and (self._sentencepiece is None or self._sentencepiece.can_be_cut)

    @cached_property
    def _prepends_itself(self) -> bool:
        return prepends_itself(self._backend)

    @cached_property
    def _never_in_text(self) -> frozenset[int]:
        """The ids of special pieces, which no text may be encoded as; the unknown piece may be."""
        added = self._backend.get_added_tokens_decoder()
        special = {id for id, token in added.items() if token.special} | set(self._specials.values())
        return frozenset(special - {self._specials.get("unknown")})

    @cached_property
    def _unknown_in_text(self) -> str | None:
        """The unknown piece as text, where text that spells it out would be encoded as it."""
        if "unknown" not in self._specials or not is_unigram(self._backend):
            return None
        return str(self._backend.id_to_token(self._specials["unknown"]))

    @cached_property
    def _literal_twin(self) -> Tokenizer:
        return literal_twin(self._backend, self._never_in_text)


class _Characters(NamedTuple):
    """A vocabulary of single characters, by their code points, in order."""

    codes: NDArray[np.uint32]
    ids: Ints
    unknown: int

    @classmethod
    def of(cls, backend: Tokenizer) -> _Characters | None:
        """That of a tokenizer whose pieces are the characters of a text as they are; None where they are not."""
        splits = [(step.get("pattern"), step.get("behavior")) for step in steps(backend.pre_tokenizer)]
        added = backend.get_added_tokens_decoder().values()
        plain = backend.normalizer is None and splits == [({"Regex": CHARACTER}, "Isolated")]
        if not plain or not isinstance(backend.model, WordLevel) or not all(token.special for token in added):
            return None
        unknown = backend.token_to_id(backend.model.unk_token)
        pieces = backend.get_vocab(with_added_tokens=False)
        by_code = sorted((ord(piece), id) for piece, id in pieces.items() if len(piece) == 1)
        if unknown is None or not by_code:
            return None
        codes, ids = zip(*by_code, strict=True)
        return cls(np.array(codes, np.uint32), np.array(ids, np.int64), int(unknown))

    def encode(self, parts: Sequence[str]) -> EncodedParts:
        """A piece for each character of all parts."""
        counts = np.fromiter(map(len, parts), np.int64, len(parts))
        codes = np.frombuffer("".join(parts).encode("utf-32-le", "surrogatepass"), np.uint32)
        places = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        ids = np.where(self.codes[places] == codes, self.ids[places], self.unknown)
        starts = places_within(counts)
        return EncodedParts(ids, np.stack([starts, starts + 1], axis=1), counts)


def _part_pieces(encoding: Encoding) -> _PartPieces:
    return _PartPieces(tuple(encoding.ids), tuple(chain.from_iterable(encoding.offsets)))


def batch_by_size(items: Iterable[Item], size: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """The items in lists; a list ends with the item that takes its total size beyond the limit."""
    batch: list[Item] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total > limit:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch

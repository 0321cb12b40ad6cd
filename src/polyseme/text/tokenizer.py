"""The tokenizer around the `tokenizers` library: documents to pieces, aligned with their words.

The library turns text into pieces; here pieces meet words. Raw text goes through as a whole, given words one by one,
and in both cases the pieces of a word are found by their places in the text (`align`).
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from polyseme.errors import InputError, ModelError
from polyseme.text import export, literals
from polyseme.text.align import align, put_in
from polyseme.text.framing import Frame
from polyseme.text.stretches import can_be_cut, cut_text, prepends_itself
from polyseme.types import Document, Framed, Pieces, Unit

Ints = NDArray[np.int64]

STRETCH = 16_384
"""Characters after which raw text is cut at the next blank, where the tokenizer allows it."""
CHUNK = 1_000_000
"""Characters that are in the library's hands at once."""
KNOWN_WORDS = 65_536
"""Given words whose pieces are remembered."""
MASK_TEXT = "[MASK]"
"""What stands for a mask in any model's text where a verb reads masks, besides the model's own."""


class PieceTokenizer:
    """Text to pieces and back (`types.Tokenizer`), around a `tokenizers.Tokenizer`, which it takes over.

    No text is ever shortened or padded, and a special piece is never found in a text: `[MASK]` in it is text.
    """

    def __init__(self, backend: Tokenizer, frame: Frame) -> None:
        backend.no_truncation()
        backend.no_padding()
        backend.post_processor = None
        backend.encode_special_tokens = True
        self.backend = backend
        self.framing = frame
        self.specials: Mapping[str, int] = {role: self._id_of(piece) for role, piece in frame.specials.items()}
        missing = sorted(frame.needed - self.specials.keys())
        if missing:
            raise ModelError(
                f"The tokenizer has no special piece for {' and '.join(missing)}, which rows of the form "
                f"{frame.single!r} need. It has: {dict(frame.specials)}. Name the piece in special_tokens_map.json "
                "beside the tokenizer's files, or choose another frame."
            )
        self._known: dict[str, tuple[list[int], list[tuple[int, int]]]] = {}

    def __reduce__(self) -> tuple[type[PieceTokenizer], tuple[Tokenizer, Frame]]:
        return PieceTokenizer, (self.backend, self.framing)

    # --- what it is --------------------------------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """Equal for tokenizers that give equal pieces: a hash of what they do, not of how they were stored."""
        content = {"tokenizer": export.behaviour(self.backend), "frame": self.framing.to_json()}
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def unit(self) -> Unit:
        return "word" if type(self.backend.model).__name__ == "WordLevel" else "piece"

    @cached_property
    def n_pieces(self) -> int:
        """One more than the largest id."""
        size = int(self.backend.get_vocab_size())
        if any(self.backend.id_to_token(id) is None for id in range(size)):  # ids have gaps
            return 1 + max(self.backend.get_vocab().values())
        return size

    @cached_property
    def n_specials(self) -> int:
        """How many specials `frame` puts around a single stretch."""
        return len(self.framing.slots(1)) - 1

    # --- text to pieces ----------------------------------------------------------------------------------------------

    def encode(self, document: Document) -> Pieces:
        """The pieces of one document, without specials, and which of them make up each word."""
        return self.encode_many([document])[0]

    def encode_many(self, documents: Sequence[Document]) -> list[Pieces]:
        """The pieces of each document; faster than one at a time where documents are short."""
        return [pieces for chunk in _chunks(documents) for pieces in self._encode_chunk(chunk)]

    def encode_with_masks(self, text: str) -> Pieces:
        """The pieces of raw text in which `[MASK]`, or the model's own mask written out, is the mask piece.

        The words of the result are the masks: each row of `words` has the place of one mask piece, twice.
        """
        if "mask" not in self.specials:
            raise ModelError("This model has no mask piece, so there is nothing that it could fill in.")
        mask = np.array([self.specials["mask"]], dtype=np.int64)
        ids: list[Ints] = []
        spans: list[Ints] = []
        masks: list[int] = []
        for start, end, is_mask in self._masks_in(text):
            if is_mask:
                masks.append(sum(map(len, ids)))
                ids.append(mask)
                spans.append(np.array([[start, end]], dtype=np.int64))
            else:
                part_ids, part_spans, _ = self._read_texts([text[start:end]])
                ids.append(part_ids)
                spans.append(part_spans + start)
        return Pieces(np.concatenate(ids), np.concatenate(spans), np.array([masks, masks], dtype=np.int64).T)

    def frame(self, ids: Ints, pair: Ints | None = None) -> Framed:
        """One row as the encoder reads it: the stretch `ids`, or a pair of stretches, with the specials around."""
        stretches = {"a": np.asarray(ids, dtype=np.int64)}
        if pair is not None:
            stretches["b"] = np.asarray(pair, dtype=np.int64)
        row: list[Ints] = []
        segments: list[Ints] = []
        places: dict[str, int] = {}
        length = 0
        for name, segment in self.framing.slots(len(stretches)):
            part = stretches[name] if name in stretches else np.array([self.specials[name]], dtype=np.int64)
            places[name] = length
            length += len(part)
            row.append(part)
            segments.append(np.full(len(part), segment, dtype=np.int64))
        return Framed(np.concatenate(row), np.concatenate(segments), places["a"], places.get("b"))

    # --- and back ----------------------------------------------------------------------------------------------------

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces as they are written in the vocabulary; `<7>` for an id that it does not have."""
        return [self.backend.id_to_token(int(id)) or f"<{int(id)}>" for id in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some pieces, without start, end and padding; masks and the unknown piece are written out."""
        silent = {self.specials[role] for role in ("start", "end", "pad") if role in self.specials}
        return str(self.backend.decode([int(id) for id in ids if id not in silent], skip_special_tokens=False))

    def save(self, folder: str) -> None:
        """Write `tokenizer.json`, `tokenizer_config.json` and `special_tokens_map.json`, for us and for others."""
        export.write(self.backend, self.framing, folder)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _encode_chunk(self, documents: Sequence[Document]) -> list[Pieces]:
        """All documents at once, as if their texts stood one after another with a gap between them.

        One pass over flat arrays takes the place of a few small array operations for each of many short documents.
        The documents are all of raw text or all of given words.
        """
        ids, spans, n_pieces = (self._read_given if documents[0].given else self._read_raw)(documents)
        bases = np.cumsum([0, *(len(document.text) + 2 for document in documents)])[:-1] + 1  # [documents]
        n_words = np.array([len(document.words) for document in documents], dtype=np.int64)
        offsets = np.fromiter(
            chain.from_iterable((word.start, word.end) for document in documents for word in document.words),
            dtype=np.int64,
            count=2 * int(n_words.sum()),
        ).reshape(-1, 2)
        offsets += np.repeat(bases, n_words)[:, None]
        spans = spans + np.repeat(bases, n_pieces)[:, None]

        words = align(spans, offsets)
        vanished = words[:, 0] > words[:, 1]
        n_unknown = np.zeros(len(documents), dtype=np.int64)
        if vanished.any():
            of_document = np.repeat(np.arange(len(documents)), n_words)
            n_unknown = np.bincount(of_document[vanished], minlength=len(documents))
            stand_in = self._stand_in_for(documents, int(np.flatnonzero(vanished)[0]))
            ids, spans, words = put_in(ids, spans, words, offsets, stand_in)
            n_pieces = n_pieces + n_unknown

        piece_ends, word_ends = np.cumsum(n_pieces), np.cumsum(n_words)
        words -= np.repeat(piece_ends - n_pieces, n_words)[:, None]
        spans -= np.repeat(bases, n_pieces)[:, None]
        return [
            Pieces(ids[piece_end - n : piece_end], spans[piece_end - n : piece_end], words[word_end - w : word_end], u)
            for n, piece_end, w, word_end, u in zip(
                n_pieces.tolist(), piece_ends.tolist(), n_words.tolist(), word_ends.tolist(), n_unknown.tolist(),
                strict=True,
            )
        ]  # fmt: skip

    def _read_raw(self, documents: Sequence[Document]) -> tuple[Ints, Ints, Ints]:
        """Flat ids [n], spans [n, 2], and the number of pieces of each document."""
        length = STRETCH if self._can_be_cut else sys.maxsize
        stretches = [list(cut_text(document.text, length)) for document in documents]
        texts = [
            document.text[start:end] for document, cuts in zip(documents, stretches, strict=True) for start, end in cuts
        ]
        ids, spans, n_pieces = self._read_texts(texts)
        starts = np.array([start for cuts in stretches for start, _ in cuts], dtype=np.int64)
        spans += np.repeat(starts, n_pieces)[:, None]
        return ids, spans, _sums(n_pieces, [len(cuts) for cuts in stretches])

    def _read_given(self, documents: Sequence[Document]) -> tuple[Ints, Ints, Ints]:
        """The same for given words: each is read as it would stand in a text, after a blank unless it is the first."""
        keys = [
            self._glue + word if place else str(word) for document in documents for place, word in enumerate(document.words)
        ]
        known = self._pieces_of_words(keys)
        found = [known[key] for key in keys]
        n_pieces = np.array([len(ids) for ids, _ in found], dtype=np.int64)
        ids = np.fromiter(chain.from_iterable(ids for ids, _ in found), dtype=np.int64)
        spans = _flat_spans(spans for _, spans in found)
        words = [word for document in documents for word in document.words]
        starts = np.array([word.end - len(key) for word, key in zip(words, keys, strict=True)], dtype=np.int64)
        spans += np.repeat(starts, n_pieces)[:, None]
        return ids, spans, _sums(n_pieces, [len(document.words) for document in documents])

    def _pieces_of_words(self, keys: Sequence[str]) -> Mapping[str, tuple[list[int], list[tuple[int, int]]]]:
        """The ids and spans of each word type; those of words seen before are remembered, up to a bound."""
        types = dict.fromkeys(keys)
        if len(self._known) + len(types) > KNOWN_WORDS:
            self._known = {}
        new = [key for key in types if key not in self._known]
        ids, spans, n_pieces = self._read_texts(new)
        end = 0
        for key, n in zip(new, n_pieces.tolist(), strict=True):
            self._known[key] = (ids[end : end + n].tolist(), spans[end : end + n].tolist())
            end += n
        return self._known

    def _read_texts(self, texts: Sequence[str]) -> tuple[Ints, Ints, Ints]:
        """Flat ids [n], spans [n, 2] in each text, and the number of pieces of each text."""
        parts = [self._read_few(few) for few in _few_at_a_time(texts)]
        if not parts:
            return np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros(0, np.int64)
        ids, spans, n_pieces = zip(*parts, strict=True)
        return np.concatenate(ids), np.concatenate(spans), np.concatenate(n_pieces)

    def _read_few(self, texts: Sequence[str]) -> tuple[Ints, Ints, Ints]:
        read = _flat(self.backend.encode_batch(texts, add_special_tokens=False))
        if np.isin(read[0], self._never_in_text).any():
            read = _flat(self._literal_backend.encode_batch(texts, add_special_tokens=False))
            if self._stand_in is not None:
                read[0][np.isin(read[0], self._never_in_text)] = self._stand_in
        return read

    def _masks_in(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """The text in parts: where each starts and ends, and whether it is a mask.

        Blanks before a mask go with it where the model's own mask piece is defined so (RoBERTa's).
        """
        own = self.framing.specials["mask"]
        added = self.backend.get_added_tokens_decoder().get(self.specials["mask"])
        blanks = r"\s*" if added is not None and added.lstrip else ""
        end = 0
        for match in re.finditer(f"{blanks}(?P<mask>{re.escape(own)}|{re.escape(MASK_TEXT)})", text):
            yield end, match.start(), False
            yield match.start("mask"), match.end(), True
            end = match.end()
        yield end, len(text), False

    def _id_of(self, piece: str) -> int:
        id = self.backend.token_to_id(piece)
        if id is None:
            raise ModelError(f"The tokenizer's vocabulary has no piece {piece!r}, which its frame names as a special.")
        return int(id)

    @cached_property
    def _can_be_cut(self) -> bool:
        return can_be_cut(self.backend)

    @cached_property
    def _glue(self) -> str:
        return "" if prepends_itself(self.backend) else " "

    @cached_property
    def _never_in_text(self) -> Ints:
        """The ids of special pieces, which text must not come out as; the unknown piece may."""
        added = self.backend.get_added_tokens_decoder()
        special = {id for id, token in added.items() if token.special} | set(self.specials.values())
        unknown = {self.specials.get("unknown"), literals.unknown_id(self.backend)}
        return np.array(sorted(special - unknown), dtype=np.int64)

    @cached_property
    def _literal_backend(self) -> Tokenizer:
        return literals.literal_twin(self.backend, self._never_in_text.tolist())

    @cached_property
    def _stand_in(self) -> int | None:
        """What a word gets that comes out as nothing: the unknown piece, or else that of a mere blank."""
        if "unknown" in self.specials:
            return self.specials["unknown"]
        blanks = (self.backend.token_to_id(blank) for blank in ("Ġ", "▁"))
        return next((int(id) for id in blanks if id is not None), None)

    def _stand_in_for(self, documents: Sequence[Document], word: int) -> int:
        if self._stand_in is None:
            words = [word for document in documents for word in document.words]
            raise InputError(
                f"The word {str(words[word])!r} comes out as nothing, and this tokenizer has neither an unknown piece "
                "nor one for a blank to give it. Leave the word out."
            )
        return self._stand_in


def _chunks(documents: Sequence[Document]) -> Iterator[list[Document]]:
    """Documents one after another, all raw or all of given words, and not too much text at once."""
    for _, alike in groupby(documents, key=lambda document: document.given):
        chunk: list[Document] = []
        size = 0
        for document in alike:
            chunk.append(document)
            size += len(document.text)
            if size > CHUNK:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk


def _few_at_a_time(texts: Sequence[str]) -> Iterator[list[str]]:
    few: list[str] = []
    size = 0
    for text in texts:
        few.append(text)
        size += len(text)
        if size > CHUNK:
            yield few
            few, size = [], 0
    if few:
        yield few


def _flat(encodings: Sequence[Encoding]) -> tuple[Ints, Ints, Ints]:
    ids = [encoding.ids for encoding in encodings]
    return (
        np.fromiter(chain.from_iterable(ids), dtype=np.int64),
        _flat_spans(encoding.offsets for encoding in encodings),
        np.array([len(row) for row in ids], dtype=np.int64),
    )


def _flat_spans(spans: Iterable[Iterable[Sequence[int]]]) -> Ints:
    pairs = chain.from_iterable(spans)
    return np.fromiter(chain.from_iterable(pairs), dtype=np.int64).reshape(-1, 2)


def _sums(counts: Ints, group_sizes: Sequence[int]) -> Ints:
    """The sum of each group of consecutive counts; a group may be empty."""
    groups = np.repeat(np.arange(len(group_sizes)), group_sizes)
    return np.bincount(groups, weights=counts, minlength=len(group_sizes)).astype(np.int64)

"""The tokenizer around the `tokenizers` library: documents to pieces, aligned with their words.

The library turns text into pieces (`cached_encoding`). Here pieces are aligned with words by their offsets
(`alignment`) and framed with special pieces; and the tokenizer is written to files that this library and others load.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from polyseme.errors import InputError, ModelError
from polyseme.text.alignment import align, insert_missing
from polyseme.text.cached_encoding import CachedEncoder, batch_by_size
from polyseme.text.cut_points import CHARACTER, steps
from polyseme.text.framing import Frame, get_frame
from polyseme.text.joined_words import joined_words
from polyseme.text.sentencepiece_encoding import SentencePieceEncoder
from polyseme.text.sentencepiece_settings import SETTING, settings_of
from polyseme.text.specials import THEIR_NAMES
from polyseme.types import Document, FramedRow, Pieces, Unit

Ints = NDArray[np.int64]

CHARACTERS_PER_CALL = 1_000_000
"""Characters of the documents that are encoded together in flat arrays."""
_BEHAVIOR = ("added_tokens", "normalizer", "pre_tokenizer", "model")
MASK_TEXT = "[MASK]"
"""Read as a mask by every model with a mask piece, where a verb reads masks, besides the model's own."""


class PieceTokenizer:
    """Text to pieces and back (`types.Tokenizer`), around a `tokenizers.Tokenizer`, which it modifies.

    No text is ever truncated or padded, and no text is encoded as a special piece: `[MASK]` in a text is text.
    """

    def __init__(self, backend: Tokenizer, frame: Frame, sentencepiece: SentencePieceEncoder | None = None) -> None:
        backend.no_truncation()
        backend.no_padding()
        backend.post_processor = None
        self.backend = backend
        self.framing = frame
        self.sentencepiece = sentencepiece
        """The encoder of a SentencePiece model, which encodes texts in place of `backend`."""
        self.specials: Mapping[str, int] = {role: self._id_of(piece) for role, piece in frame.specials.items()}
        missing = sorted(frame.needed - self.specials.keys())
        if missing:
            raise ModelError(
                f"The tokenizer has no special piece for {' and '.join(missing)}, which rows of the form "
                f"{frame.single!r} need. It has: {dict(frame.specials)}. Name the piece in special_tokens_map.json "
                "beside the tokenizer's files, or choose another frame."
            )
        self._encoder = CachedEncoder(backend, self.specials, sentencepiece)

    def __reduce__(self) -> tuple[type[PieceTokenizer], tuple[Tokenizer, Frame, SentencePieceEncoder | None]]:
        return PieceTokenizer, (self.backend, self.framing, self.sentencepiece)

    def with_special(self, role: str, piece: str) -> PieceTokenizer:
        """The same tokenizer with a piece, which it must have, as the special of a role."""
        specials = {**self.framing.specials, role: piece}
        return PieceTokenizer(self.backend, self.framing.replace(specials=specials), self.sentencepiece)

    def in_family(self, frame: str) -> PieceTokenizer:
        """The same tokenizer as models of a family with this frame have it: without segments where they have none."""
        if self.framing.n_segments == 1 or get_frame(frame).n_segments > 1:
            return self
        return PieceTokenizer(self.backend, self.framing.without_segments(), self.sentencepiece)

    # --- properties --------------------------------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """Equal for tokenizers that give equal pieces: a hash of their behavior, not of their files."""
        content = {"tokenizer": _behavior(self.backend), "frame": self.framing.to_json(), **self._settings}
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def unit(self) -> Unit:
        if type(self.backend.model).__name__ != "WordLevel":
            return "piece"
        first = steps(self.backend.pre_tokenizer)[:1]
        return "character" if any(step.get("pattern") == {"Regex": CHARACTER} for step in first) else "word"

    @cached_property
    def n_pieces(self) -> int:
        """One more than the largest id."""
        size = int(self.backend.get_vocab_size())
        if None in map(self.backend.id_to_token, range(size)):  # ids have gaps
            return 1 + max(self.backend.get_vocab().values())
        return size

    @cached_property
    def n_specials(self) -> int:
        """How many specials `frame` puts around a single stretch."""
        return len(self.framing.slots(1)) - 1

    # --- text to pieces ----------------------------------------------------------------------------------------------

    def encode(self, document: Document) -> Pieces:
        """The pieces of one document, without specials, and which of them make up each word."""
        return self._encode_together([document])[0]

    def encode_many(self, documents: Sequence[Document]) -> list[Pieces]:
        """The pieces of each document; faster than one at a time where documents are short."""
        return [
            pieces
            for batch in batch_by_size(documents, lambda document: len(document.text), CHARACTERS_PER_CALL)
            for pieces in self._encode_together(batch)
        ]

    def encode_with_masks(self, text: str) -> Pieces:
        """The pieces of raw text in which `[MASK]`, or the model's own mask written out, is the mask piece.

        The words of the result are the masks: each row of `words` has the index of one mask piece, twice.
        """
        if "mask" not in self.specials:
            raise ModelError("This model has no mask piece, so there is nothing that it could fill in.")
        ids: list[Ints] = []
        spans: list[Ints] = []
        masks: list[int] = []
        for start, end, is_mask in self._masks_in(text):
            if is_mask:
                masks.append(sum(map(len, ids)))
                ids.append(np.array([self.specials["mask"]], dtype=np.int64))
                spans.append(np.array([[start, end]], dtype=np.int64))
            else:
                encoded = self._encoder.encode([text[start:end]])
                ids.append(encoded.ids)
                spans.append(encoded.spans + start)
        return Pieces(np.concatenate(ids), np.concatenate(spans), np.array([masks, masks], dtype=np.int64).T)

    def frame(self, ids: Ints, pair: Ints | None = None) -> FramedRow:
        """One row as the encoder reads it: the stretch `ids`, or a pair of stretches, with the specials around."""
        stretches = {"a": ids} if pair is None else {"a": ids, "b": pair}
        slots = self.framing.slots(len(stretches))
        length = sum(map(len, stretches.values())) + len(slots) - len(stretches)
        row, segments = np.empty(length, dtype=np.int64), np.zeros(length, dtype=np.int64)
        starts: dict[str, int] = {}
        end = 0
        for name, segment in slots:
            start = starts[name] = end
            if name in stretches:
                end += len(stretches[name])
                row[start:end] = stretches[name]
            else:
                end += 1
                row[start] = self.specials[name]
            if segment:
                segments[start:end] = segment
        return FramedRow(row, segments, starts["a"], starts.get("b"))

    # --- pieces to text ---------------------------------------------------------------------------------------------

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces as they are written in the vocabulary; `<7>` for an id that it does not have."""
        return [self.backend.id_to_token(int(id)) or f"<{int(id)}>" for id in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of pieces, without start, end and padding; masks and the unknown piece are written out."""
        hidden = {self.specials[role] for role in ("start", "end", "pad") if role in self.specials}
        shown = [int(id) for id in ids if int(id) not in hidden]
        if self._splits_marks:
            return joined_words(self.pieces(shown))
        return str(self.backend.decode(shown, skip_special_tokens=False))

    @cached_property
    def _splits_marks(self) -> bool:
        """Whether pieces are words and marks that were split off them, and no decoder says how they are joined."""
        splits = any(step["type"] == "Split" for step in steps(self.backend.pre_tokenizer))
        return self.unit == "word" and splits and self.backend.decoder is None

    def save(self, folder: str) -> None:
        """Write `tokenizer.json`, `tokenizer_config.json` and `special_tokens_map.json`, which others load too."""
        _write_files(self.backend, self.framing, folder, self._settings)

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _settings(self) -> dict[str, Any]:
        """What tokenizer_config.json needs besides the frame."""
        return {SETTING: settings_of(self.sentencepiece)} if self.sentencepiece else {}

    def _encode_together(self, documents: Sequence[Document]) -> list[Pieces]:
        """All documents at once, as if they were one text with gaps between them.

        One pass over flat arrays replaces a few small array operations per document, of which there may be many.
        """
        parts, part_starts, n_parts = self._parts(documents)
        gap = 2  # a piece may take in the blank before or after its part
        bases = np.cumsum([gap, *(len(document.text) + gap for document in documents)])[:-1]
        n_words = np.array([len(document.words) for document in documents], dtype=np.int64)
        offsets = np.fromiter(
            chain.from_iterable((word.start, word.end) for document in documents for word in document.words),
            dtype=np.int64,
            count=2 * int(n_words.sum()),
        ).reshape(-1, 2)
        offsets += np.repeat(bases, n_words)[:, None]

        is_cut = not any(document.pretokenized for document in documents)
        ids, spans, counts = self._encoder.encode(parts, n_parts if is_cut else None)
        spans += np.repeat(part_starts + np.repeat(bases, n_parts), counts)[:, None]
        n_pieces = _sums(counts, n_parts)
        words = align(spans, offsets)
        vanished = np.flatnonzero(words[:, 0] > words[:, 1])
        n_unknown = np.bincount(np.repeat(np.arange(len(documents)), n_words)[vanished], minlength=len(documents))
        if len(vanished):
            ids, spans, words = insert_missing(
                ids, spans, words, offsets, self._placeholder(documents, int(vanished[0]))
            )
            n_pieces += n_unknown

        piece_ends, word_ends = np.cumsum(n_pieces), np.cumsum(n_words)
        words -= np.repeat(piece_ends - n_pieces, n_words)[:, None]
        spans -= np.repeat(bases, n_pieces)[:, None]
        ends = zip(piece_ends.tolist(), word_ends.tolist(), n_unknown.tolist(), strict=True)
        result, piece, word = [], 0, 0
        for piece_end, word_end, unknown in ends:
            result.append(Pieces(ids[piece:piece_end], spans[piece:piece_end], words[word:word_end], unknown))
            piece, word = piece_end, word_end
        return result

    def _parts(self, documents: Sequence[Document]) -> tuple[list[str], Ints, Ints]:
        """The parts of all documents, where each starts in its text, and how many each document has."""
        parts: list[str] = []
        starts: list[int] = []
        n_parts: list[int] = []
        for document in documents:
            document_parts, document_starts = self._encoder.parts(document)
            parts += document_parts
            starts += document_starts
            n_parts.append(len(document_parts))
        return parts, np.array(starts, dtype=np.int64), np.array(n_parts, dtype=np.int64)

    def _placeholder(self, documents: Sequence[Document], index: int) -> int:
        if self._encoder.placeholder is None:
            words = [word for document in documents for word in document.words]
            raise InputError(
                f"The word {str(words[index])!r} has no pieces, and this tokenizer has neither an unknown "
                "piece nor one for a blank to give it. Leave the word out."
            )
        return self._encoder.placeholder

    def _masks_in(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """The text in parts: the offsets of each, and whether it is a mask.

        Blanks before a mask belong to it if the model's mask piece is defined that way (RoBERTa's is).
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


def _sums(counts: Ints, group_sizes: Ints) -> Ints:
    """The sum of each group of consecutive counts; a group may be empty."""
    groups = np.repeat(np.arange(len(group_sizes)), group_sizes)
    return np.bincount(groups, weights=counts, minlength=len(group_sizes)).astype(np.int64)


# --- as files ---------------------------------------------------------------------------------------------------------


def _behavior(backend: Tokenizer) -> dict[str, Any]:
    """The settings that decide which pieces a text has; not those for framing rows or decoding."""
    # Eight digits of a score: the library does not read back the last digits that it wrote.
    settings = json.loads(backend.to_str(), parse_float=lambda number: f"{float(number):.8g}")
    return {name: settings[name] for name in _BEHAVIOR}


def _write_files(backend: Tokenizer, frame: Frame, folder: str, more: Mapping[str, Any]) -> None:
    """Write the files from which this library and others can load the tokenizer."""
    settings: dict[str, Any] = json.loads(backend.to_str())
    settings["post_processor"] = _post_processor(backend, frame)
    specials = {name: piece for role, piece in frame.specials.items() for name in THEIR_NAMES[role]}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", *(["token_type_ids"] if frame.n_segments > 1 else []), "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **specials,
        **more,
    }
    path = Path(folder)
    _write_json(path / "tokenizer.json", settings)
    _write_json(path / "tokenizer_config.json", config)
    _write_json(path / "special_tokens_map.json", specials)


def _post_processor(backend: Tokenizer, frame: Frame) -> dict[str, Any] | None:
    """The frame as the `tokenizers` library writes it down."""
    if not frame.needed:
        return None
    names = {"a": "$A", "b": "$B", **frame.specials}
    single, pair = ([f"{names[slot.name]}:{slot.segment}" for slot in frame.slots(n)] for n in (1, 2))
    pieces = sorted({frame.specials[role] for role in frame.needed})
    special_tokens = [(piece, backend.token_to_id(piece)) for piece in pieces]
    processor = TemplateProcessing(single=single, pair=pair, special_tokens=special_tokens)
    settings: dict[str, Any] = json.loads(processor.__getstate__())
    return settings


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

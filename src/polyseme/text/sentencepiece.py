"""SentencePiece's `.model` files: a reader of their wire format, and the nearest tokenizer of the `tokenizers` library.

A `.model` is a protocol buffer: fields, each with a number and a kind, that may contain further fields. Only the few
that affect encoding are read (https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto).

The tokenizer of the library decodes pieces, and is saved as tokenizer.json for other programs. It treats rare
characters and blanks differently, so `sentencepiece_encoding` encodes texts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from polyseme.errors import ModelError
from polyseme.text.cut_points import EXTRA_BLANKS, OUTER_BLANKS

BLANK = "▁"
"""A blank as pieces write it."""


class Kind(IntEnum):
    """The kind of a piece; only normal and user-defined ones are matched in text."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Piece(NamedTuple):
    """An entry of the vocabulary; its index is its id."""

    text: str
    score: float
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class SentencePieceModel:
    """The settings of a `.model` file that affect encoding."""

    pieces: Sequence[Piece]
    algorithm: str = "unigram"
    byte_fallback: bool = False
    blanks_are_suffixes: bool = False
    normalization: str = ""
    """The name of the normalization that `charsmap` was compiled from, such as `nmt_nfkc`."""
    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True

    @cached_property
    def unknown(self) -> int:
        """The id of the unknown piece."""
        return next(id for id, piece in enumerate(self.pieces) if piece.kind == Kind.UNKNOWN)

    @cached_property
    def user_defined(self) -> dict[str, int]:
        """The pieces that are never taken apart, with their ids."""
        return {piece.text: id for id, piece in enumerate(self.pieces) if piece.kind == Kind.USER_DEFINED}


def read_model(path: Path) -> SentencePieceModel:
    """Read a `.model` file."""
    try:
        model = _model(path.read_bytes())
    except (_DamagedError, UnicodeDecodeError, ValueError, struct.error) as error:
        raise ModelError(
            f"{path} is not a SentencePiece model, or it is damaged or was cut short ({error}). Get the file again."
        ) from None
    if model.algorithm not in ("unigram", "bpe"):
        raise ModelError(
            f"{path} is a SentencePiece model of kind {model.algorithm!r}; only unigram and BPE can be read."
        )
    if model.blanks_are_suffixes or not model.escape_whitespaces:
        raise ModelError(
            f"{path} is a SentencePiece model that writes blanks after words, or not at all; only models that write "
            "them before words (▁the) can be read."
        )
    if model.algorithm == "bpe":
        _refuse_unclear_merges(model, path)
    return model


def _refuse_unclear_merges(model: SentencePieceModel, path: Path) -> None:
    """Merges are written to other files in their order alone."""
    scores = [piece.score for piece in model.pieces if piece.kind == Kind.NORMAL and len(piece.text) > 1]
    unused = [piece.text for piece in model.pieces if piece.kind == Kind.UNUSED]
    if unused or len(set(scores)) < len(scores):
        reason = f"pieces that are not to be used ({unused[0]!r})" if unused else "several pieces with one score"
        raise ModelError(
            f"{path} is a SentencePiece model of kind 'bpe' with {reason}, which cannot be read. Use the file as it "
            "was trained."
        )


def backend(model: SentencePieceModel, before: Sequence[Any] = ()) -> Tokenizer:
    """The tokenizer of the `tokenizers` library that is nearest; `before` are normalizers that are applied first."""
    tokenizer = Tokenizer(_unigram(model) if model.algorithm == "unigram" else _bpe(model))
    tokenizer.normalizer = normalizers.Sequence([*before, *_normalizers(model)])
    tokenizer.pre_tokenizer = _pre_tokenizer(model)
    if model.algorithm == "bpe":
        tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in model.user_defined])
    scheme = "always" if model.add_dummy_prefix else "never"
    metaspace = decoders.Metaspace(replacement=BLANK, prepend_scheme=scheme)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), metaspace]) if model.byte_fallback else metaspace
    return tokenizer


def _normalizers(model: SentencePieceModel) -> list[Any]:
    steps: list[Any] = []
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    if model.add_dummy_prefix and not model.remove_extra_whitespaces:
        steps.append(normalizers.Prepend(" "))
    if model.remove_extra_whitespaces and not _splits_words(model):
        steps += [normalizers.Replace(Regex(OUTER_BLANKS), ""), normalizers.Replace(Regex(EXTRA_BLANKS), " ")]
    return steps


def _pre_tokenizer(model: SentencePieceModel) -> Any:
    """If words are split, each gets its own ▁, whose span is then in the word and not in a blank."""
    scheme = "always" if model.add_dummy_prefix and model.remove_extra_whitespaces else "never"
    if _splits_words(model):
        split = pre_tokenizers.Split(" ", behavior="removed")
        return pre_tokenizers.Sequence([split, pre_tokenizers.Metaspace(replacement=BLANK, prepend_scheme=scheme)])
    return pre_tokenizers.Metaspace(replacement=BLANK, prepend_scheme=scheme, split=not _has_phrases(model))


def _splits_words(model: SentencePieceModel) -> bool:
    return model.add_dummy_prefix and model.remove_extra_whitespaces and not _has_phrases(model)


def _has_phrases(model: SentencePieceModel) -> bool:
    """Whether some piece has a blank anywhere but at its start, so that it may span several words."""
    return any(BLANK in piece.text[1:] for piece in model.pieces)


def _unigram(model: SentencePieceModel) -> models.Unigram:
    lowest = min((piece.score for piece in model.pieces if piece.kind == Kind.NORMAL), default=0.0)
    unreachable = {Kind.UNUSED, Kind.BYTE}
    vocabulary = [(text, lowest - 1000 if kind in unreachable else score) for text, score, kind in model.pieces]
    return models.Unigram(vocabulary, unk_id=model.unknown, byte_fallback=model.byte_fallback)


def _bpe(model: SentencePieceModel) -> models.BPE:
    """Scores as merges: every two pieces that make up a third, best scores first."""
    scores = {piece.text: piece.score for piece in model.pieces if piece.kind == Kind.NORMAL}
    merges = [
        (text[:cut], text[cut:])
        for text in sorted(scores, key=lambda text: -scores[text])
        for cut in range(1, len(text))
        if text[:cut] in scores and text[cut:] in scores
    ]
    return models.BPE(
        vocab={piece.text: id for id, piece in enumerate(model.pieces)},
        merges=merges,
        unk_token=model.pieces[model.unknown].text,
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
    )


# --- the wire format -------------------------------------------------------------------------------------------------


class _DamagedError(Exception):
    """The bytes are no valid model."""


def _model(data: bytes) -> SentencePieceModel:
    pieces: list[Piece] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for number, value in _fields(data):
        if number == 1:
            pieces.append(_piece(value))
        elif number == 2:
            trainer = dict(_fields(_message(value)))
        elif number == 3:
            normalizer = dict(_fields(_message(value)))
    algorithms = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
    algorithm = trainer.get(3, 1)
    if algorithm not in algorithms:
        raise _DamagedError(f"its algorithm has the number {algorithm}, which is that of no algorithm")
    if sum(piece.kind == Kind.UNKNOWN for piece in pieces) != 1:
        raise _DamagedError("it must have exactly one unknown piece")
    return SentencePieceModel(
        pieces=pieces,
        algorithm=algorithms[algorithm],
        byte_fallback=bool(trainer.get(35, False)),
        blanks_are_suffixes=bool(trainer.get(24, False)),
        normalization=_message(normalizer.get(1, b"")).decode(),
        charsmap=_message(normalizer.get(2, b"")),
        add_dummy_prefix=bool(normalizer.get(3, True)),
        remove_extra_whitespaces=bool(normalizer.get(4, True)),
        escape_whitespaces=bool(normalizer.get(5, True)),
    )


def _piece(data: Any) -> Piece:
    fields = dict(_fields(_message(data)))
    (score,) = struct.unpack("<f", _message(fields.get(2, bytes(4))))
    return Piece(_message(fields.get(1, b"")).decode(), score, Kind(_number(fields.get(3, Kind.NORMAL))))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: numbers as integers, everything else as bytes."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == 2:
            length, position = _varint(data, position)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise _DamagedError(f"no field is of kind {wire}")
        if position + length > len(data):
            raise _DamagedError(f"a field of {length} bytes extends beyond the end")
        yield number, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """An integer with seven bits per byte, lowest first, and the position after it."""
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise _DamagedError("a number does not end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _message(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise _DamagedError("a number where a text or message should be")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise _DamagedError("a text or message where a number should be")
    return value

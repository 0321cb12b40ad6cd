"""SentencePiece's `.model` files: a reader of their wire format, and the same tokenizer in the `tokenizers` library.

A `.model` is a protocol buffer: fields, each with a number and a kind, that may hold further fields. Few of them say
how text is read (https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto); these are taken.
"""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from polyseme.errors import ModelError
from polyseme.text.cut_points import EXTRA_BLANKS, OUTER_BLANKS

BLANK = "▁"
NOT_CHARACTERS = 0xFDD0
"""The first of 32 codes that Unicode has set aside for use within programs."""
"""What a blank is written as in pieces."""


class Kind(IntEnum):
    """What a piece is for; only normal and user-defined ones are found in text."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Piece(NamedTuple):
    """An entry of the vocabulary; its place is its id."""

    text: str
    score: float
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class SentencePieceModel:
    """What a `.model` file says about reading text."""

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


def read_model(path: Path) -> SentencePieceModel:
    """Read a `.model` file."""
    try:
        return _model(path.read_bytes())
    except (_DamagedError, UnicodeDecodeError, ValueError, struct.error) as error:
        raise ModelError(
            f"{path} is not a SentencePiece model, or it is damaged or was cut short ({error}). Get the file again."
        ) from None


def backend(model: SentencePieceModel, before: Sequence[Any] = ()) -> Tokenizer:
    """A tokenizer that gives the pieces SentencePiece gives; `before` are normalizers for the text as it comes in."""
    if model.blanks_are_suffixes or not model.escape_whitespaces:
        raise ModelError(
            "This SentencePiece model writes blanks after words, or not at all; only models that write them before "
            "words (▁the) can be read."
        )
    tokenizer = Tokenizer(_unigram(model) if model.algorithm == "unigram" else _bpe(model))
    tokenizer.normalizer = normalizers.Sequence([*before, *_normalizers(model)])
    tokenizer.pre_tokenizer = _pre_tokenizer(model)
    scheme = "always" if model.add_dummy_prefix else "never"
    metaspace = decoders.Metaspace(replacement=BLANK, prepend_scheme=scheme)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), metaspace]) if model.byte_fallback else metaspace
    return tokenizer


def _normalizers(model: SentencePieceModel) -> list[Any]:
    steps: list[Any] = []
    # The library applies the compiled table to a letter and its marks at a time, which loses marks where SentencePiece
    # keeps them, and loses count of characters that the table drops. Text in which the invisible characters are dealt
    # with, and which is in NFKC where that is what the table does, has nothing of the kind to lose.
    if model.charsmap:
        steps += _invisible(normalizers.Precompiled(model.charsmap))
    if "nfkc" in model.normalization:
        kept = _kept(normalizers.Precompiled(model.charsmap)) if model.charsmap else {}
        steps += [normalizers.Replace(char, stand_in) for char, stand_in in kept.items()]
        steps.append(normalizers.NFKC())
        steps += [normalizers.Replace(stand_in, char) for char, stand_in in kept.items()]
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    if model.add_dummy_prefix and not model.remove_extra_whitespaces:
        steps.append(normalizers.Prepend(" "))
    if model.remove_extra_whitespaces and not _words_are_apart(model):
        steps += [normalizers.Replace(Regex(OUTER_BLANKS), ""), normalizers.Replace(Regex(EXTRA_BLANKS), " ")]
    return steps


def _kept(table: Any) -> dict[str, str]:
    """Characters that a table leaves alone and NFKC does not (the wide ～), with codes that stand for no character."""
    changed = [char for char in map(chr, range(0x80, 0x10000)) if unicodedata.normalize("NFKC", char) != char]
    kept = [char for char in changed if unicodedata.category(char) != "Cs" and table.normalize_str(char) == char]
    return {char: chr(NOT_CHARACTERS + number) for number, char in enumerate(kept[:32])}


def _invisible(table: Any) -> list[Any]:
    """What a table does to characters that show nothing, one by one: it drops some and makes blanks of others."""
    kinds = ("Cc", "Cf", "Zl", "Zp", "Zs")
    becomes: dict[str, list[int]] = {"": [], " ": []}
    for char in map(chr, range(0x10000)):
        if (unicodedata.category(char) in kinds and char != " ") or char in (BLANK, "\ufffd"):
            becomes.get(table.normalize_str(char), []).append(ord(char))
    return [
        normalizers.Replace(Regex("[" + "".join(f"\\x{{{code:x}}}" for code in codes) + "]"), new)
        for new, codes in becomes.items()
        if codes
    ]


def _pre_tokenizer(model: SentencePieceModel) -> Any:
    """Where words are apart, each gets its ▁ as its own, so that it counts as part of the word and not of a blank."""
    scheme = "always" if model.add_dummy_prefix and model.remove_extra_whitespaces else "never"
    if _words_are_apart(model):
        apart = pre_tokenizers.Split(" ", behavior="removed")
        return pre_tokenizers.Sequence([apart, pre_tokenizers.Metaspace(replacement=BLANK, prepend_scheme=scheme)])
    return pre_tokenizers.Metaspace(replacement=BLANK, prepend_scheme=scheme, split=not _has_phrases(model))


def _words_are_apart(model: SentencePieceModel) -> bool:
    return model.add_dummy_prefix and model.remove_extra_whitespaces and not _has_phrases(model)


def _has_phrases(model: SentencePieceModel) -> bool:
    """Whether some piece has a blank anywhere but at its start, so that it may go beyond a word."""
    return any(BLANK in piece.text[1:] for piece in model.pieces)


def _unigram(model: SentencePieceModel) -> models.Unigram:
    lowest = min((piece.score for piece in model.pieces if piece.kind == Kind.NORMAL), default=0.0)
    out_of_reach = {Kind.UNUSED, Kind.BYTE}
    vocabulary = [(text, lowest - 1000 if kind in out_of_reach else score) for text, score, kind in model.pieces]
    return models.Unigram(vocabulary, unk_id=_unknown(model), byte_fallback=model.byte_fallback)


def _bpe(model: SentencePieceModel) -> models.BPE:
    """Pieces with scores as pieces with merges: whichever two pieces make up a third, best scores first."""
    if any(piece.kind == Kind.USER_DEFINED for piece in model.pieces):
        raise ModelError("SentencePiece models of kind BPE that have user-defined pieces cannot be read.")
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
        unk_token=model.pieces[_unknown(model)].text,
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
    )


def _unknown(model: SentencePieceModel) -> int:
    return next(id for id, piece in enumerate(model.pieces) if piece.kind == Kind.UNKNOWN)


# --- the wire format -------------------------------------------------------------------------------------------------


class _DamagedError(Exception):
    """The bytes are not what they should be."""


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
    algorithms = {1: "unigram", 2: "bpe"}
    algorithm = trainer.get(3, 1)
    if algorithm not in algorithms:
        raise _DamagedError(f"its algorithm has the number {algorithm}, which is neither unigram (1) nor BPE (2)")
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
            raise _DamagedError(f"a field of {length} bytes goes beyond the end")
        yield number, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """An integer of seven bits a byte, lowest first, and where it ends."""
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
        raise _DamagedError("a number stands where a text or message should")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise _DamagedError("a text or message stands where a number should")
    return value

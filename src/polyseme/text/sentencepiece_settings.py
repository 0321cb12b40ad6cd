"""Settings of a SentencePiece model in tokenizer_config.json, so that a saved model encodes as its `.model` file does.

Everything else is in tokenizer.json: the pieces, the table of characters, the normalizers before it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers

from polyseme.errors import ModelError
from polyseme.text.cut_points import steps
from polyseme.text.sentencepiece import Kind, Piece, SentencePieceModel
from polyseme.text.sentencepiece_encoding import SentencePieceEncoder

SETTING = "sentencepiece"
"""The name of the setting."""
_CLEANING = {
    "NFKD": normalizers.NFKD,
    "StripAccents": normalizers.StripAccents,
    "Lowercase": normalizers.Lowercase,
}
_FLAGS = ("byte_fallback", "add_dummy_prefix", "remove_extra_whitespaces")


def settings_of(encoder: SentencePieceEncoder) -> dict[str, Any]:
    """The setting that `encoder_from` reads."""
    model = encoder.model
    kinds: dict[Kind, list[int]] = {kind: [] for kind in Kind}
    for id, piece in enumerate(model.pieces):
        kinds[piece.kind].append(id)
    return {
        **{name: getattr(model, name) for name in _FLAGS},
        "normalization": model.normalization,
        "cleaning_steps": len(steps(encoder.cleaning)),
        "user_defined": kinds[Kind.USER_DEFINED],
        "bytes": kinds[Kind.BYTE],
        "unmatched": sorted(kinds[Kind.CONTROL] + kinds[Kind.UNUSED]),
    }


def encoder_from(backend: Tokenizer, settings: Mapping[str, Any], path: Path) -> SentencePieceEncoder | None:
    """The encoder of a saved SentencePiece model; None for other tokenizers. `path` is its tokenizer.json."""
    setting = settings.get(SETTING)
    if setting is None:
        return None
    try:
        return _encoder(json.loads(backend.to_str()), steps(backend.normalizer), setting)
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise ModelError(
            f"The setting {SETTING!r} in {path.parent / 'tokenizer_config.json'} does not belong to {path} "
            f"({' '.join(str(error).split())[:100]!r}). Save the model again, or take the setting out: texts are then "
            "read as tokenizer.json describes."
        ) from None


def _encoder(
    content: Mapping[str, Any], normalizing: Sequence[Mapping[str, Any]], setting: Mapping[str, Any]
) -> SentencePieceEncoder:
    described = content["model"]
    algorithm = {"Unigram": "unigram", "BPE": "bpe"}[described["type"]]
    scored = _scored(described)
    kinds = dict.fromkeys(range(len(scored)), Kind.NORMAL)
    kinds |= dict.fromkeys(setting["user_defined"], Kind.USER_DEFINED)
    kinds |= dict.fromkeys(setting["bytes"], Kind.BYTE)
    kinds |= dict.fromkeys(setting["unmatched"], Kind.CONTROL)
    texts = [text for text, _ in scored]
    unknown = texts.index(described["unk_token"]) if algorithm == "bpe" else described["unk_id"]
    kinds[unknown] = Kind.UNKNOWN
    if len(kinds) > len(scored) or not all(isinstance(setting[name], bool) for name in _FLAGS):
        raise ValueError("the id of a piece that does not exist")
    n_cleaning = int(setting["cleaning_steps"])
    tables = [step["precompiled_charsmap"] for step in normalizing if step["type"] == "Precompiled"]
    model = SentencePieceModel(
        pieces=[Piece(text, score, kinds[id]) for id, (text, score) in enumerate(scored)],
        algorithm=algorithm,
        normalization=str(setting["normalization"]),
        charsmap=base64.b64decode(tables[0]) if tables else b"",
        **{name: setting[name] for name in _FLAGS},
    )
    return SentencePieceEncoder(model, _cleaning(normalizing[:n_cleaning]))


def _scored(described: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The pieces with their scores; those of merges are in their order."""
    if described["type"] == "Unigram":
        return [(text, score) for text, score in described["vocab"]]
    places: dict[str, float] = {}
    for place, merge in enumerate(described["merges"]):
        left, right = merge if isinstance(merge, list) else merge.split(" ")
        places.setdefault(left + right, -float(place))
    by_id = sorted(described["vocab"].items(), key=lambda entry: entry[1])
    if [id for _, id in by_id] != list(range(len(by_id))):
        raise ValueError("ids with gaps")
    return [(text, places.get(text, -math.inf)) for text, _ in by_id]


def _cleaning(described: Sequence[Mapping[str, Any]]) -> Any:
    """The normalizers that come before the table, as the `tokenizers` library has them."""
    cleaning: list[Any] = []
    for step in described:
        if step["type"] == "Replace":
            cleaning.append(normalizers.Replace(step["pattern"]["String"], step["content"]))
        else:
            cleaning.append(_CLEANING[step["type"]]())
    return normalizers.Sequence(cleaning) if cleaning else None

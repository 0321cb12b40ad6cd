"""A tokenizer as files: what other libraries load, and what a fingerprint is taken of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from polyseme.text.framing import Frame
from polyseme.text.specials import THEIR_NAMES

_GIVES_PIECES = ("added_tokens", "normalizer", "pre_tokenizer", "model")


def behavior(backend: Tokenizer) -> dict[str, Any]:
    """All that decides which pieces a text comes out as; not what is done to rows, or back to text, afterwards."""
    settings = json.loads(backend.to_str(), parse_float=_rounded)
    return {name: settings[name] for name in _GIVES_PIECES}


def _rounded(number: str) -> str:
    """A score to as many digits as it has; the library does not read the last ones back as it wrote them."""
    return f"{float(number):.8g}"


def write(backend: Tokenizer, frame: Frame, folder: str) -> None:
    """Write the files from which this library and others can load the tokenizer."""
    settings: dict[str, Any] = json.loads(backend.to_str())
    settings["post_processor"] = _post_processor(backend, frame)
    specials = {name: piece for role, piece in frame.specials.items() for name in THEIR_NAMES[role]}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", *(["token_type_ids"] if frame.n_segments > 1 else []), "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **specials,
    }
    place = Path(folder)
    _write_json(place / "tokenizer.json", settings)
    _write_json(place / "tokenizer_config.json", config)
    _write_json(place / "special_tokens_map.json", specials)


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

"""A tokenizer as files: what other libraries load, and what a fingerprint is taken of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from polyseme.text.framing import Frame
from polyseme.text.specials import THEIR_NAMES



def behaviour(backend: Tokenizer) -> dict[str, Any]:
    """All that decides which pieces a text comes out as; not what is done to rows afterwards."""
    settings: dict[str, Any] = json.loads(backend.to_str())
    return {name: value for name, value in settings.items() if name not in ("post_processor", "padding", "truncation")}


def write(backend: Tokenizer, frame: Frame, folder: str) -> None:
    """Write the files from which this library and others can load the tokenizer."""
    settings: dict[str, Any] = json.loads(backend.to_str())
    settings["post_processor"] = _post_processor(backend, frame)
    specials = {name: frame.specials[role] for role, names in THEIR_NAMES.items() if role in frame.specials for name in names}
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
    templates = [
        [f"${slot.name.upper()}:{slot.segment}" if slot.name in ("a", "b") else f"{frame.specials[slot.name]}:{slot.segment}"
         for slot in frame.slots(n)]
        for n in (1, 2)
    ]  # fmt: skip
    special_tokens = [(piece, backend.token_to_id(piece)) for piece in {frame.specials[role] for role in frame.needed}]
    processor = TemplateProcessing(single=templates[0], pair=templates[1], special_tokens=special_tokens)
    settings: dict[str, Any] = json.loads(processor.__getstate__())
    return settings


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

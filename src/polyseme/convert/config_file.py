"""What several families ask of a model folder before they take it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from polyseme.errors import ModelError


def by_model_type(*names: str) -> Callable[[Path], bool]:
    """A test for a folder whose config.json names one of these as its `model_type`."""

    def detect(path: Path) -> bool:
        return (path / "config.json").is_file() and model_type(read_json(path / "config.json")) in names

    return detect


def model_type(theirs: Mapping[str, Any]) -> Any:
    """What a config says it is. The first years' name no type, and were all BERT's (SpanBERT's is one)."""
    untyped_bert = "model_type" not in theirs and not theirs.get("architectures") and "type_vocab_size" in theirs
    return "bert" if untyped_bert else theirs.get("model_type")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of a model folder."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"The file {path} cannot be read as JSON: {error}. Is the model folder whole?") from None
    if not isinstance(content, dict):
        raise ModelError(f"The file {path} must hold a JSON object. Got a {type(content).__name__} instead.")
    return content


def refuse_unknown_positions(theirs: Mapping[str, Any], where: str) -> None:
    """Refuse what no published checkpoint of the line uses, instead of computing something else."""
    kind = theirs.get("position_embedding_type", "absolute")
    if kind not in (None, "absolute"):
        raise ModelError(f"{where} asks for positions of kind {kind!r}; polyseme knows only 'absolute' here.")
    for option in ("is_decoder", "add_cross_attention"):
        if theirs.get(option):
            raise ModelError(f"{where} sets {option!r}: a decoder of this family is not among what polyseme loads.")

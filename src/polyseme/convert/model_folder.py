"""How a model folder is laid out: which files hold the settings, the weights and the tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from polyseme.config import EncoderConfig
from polyseme.convert.weight_files import read_weights, write_weights
from polyseme.errors import ModelError
from polyseme.text.tokenizer_files import load_tokenizer
from polyseme.types import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Folder:
    """The files of a model folder, and how each is read and written."""

    settings: Callable[[Path], Path]
    """Folder → the file of settings, a JSON object."""
    described: bool
    """Whether the settings also say what class, output, precision and special pieces go with them."""
    read_weights: Callable[[Path], Mapping[str, Tensor]]
    write_weights: Callable[[Path, Mapping[str, Tensor], int | None], None]
    """Folder, tensors by name, and the most bytes a file may have, or None."""
    tokenizer: Callable[[Path, str, EncoderConfig], Tokenizer]
    """Folder, the family's frame and the config → the tokenizer."""

    def write_settings(self, folder: Path, content: Mapping[str, Any]) -> None:
        write_json(self.settings(folder), content)


HUGGING_FACE = Folder(
    settings=lambda folder: folder / "config.json",
    described=True,
    read_weights=read_weights,
    write_weights=lambda folder, tensors, shard_size: write_weights(folder, tensors, shard_size=shard_size),
    tokenizer=lambda folder, frame, config: load_tokenizer(folder, frame=frame),
)
"""config.json, model.safetensors and tokenizer.json, as most have them."""


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """A JSON object as a file of a model folder."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# MERGED: What several families ask of a model folder before they take it.


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

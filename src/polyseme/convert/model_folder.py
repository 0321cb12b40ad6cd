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

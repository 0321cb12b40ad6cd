"""The golden files of ELMo, made by the original TensorFlow code and by AllenNLP; what is in them says their README."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.model_folder import load_bundle

GOLDEN = Path(__file__).parent / "golden" / "elmo"
WITHIN = 5e-6
"""Absolute, of any golden number."""


@cache
def arrays(name: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / f"{name}.safetensors")


@cache
def content(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


@cache
def golden_bundle(folder: str) -> Bundle:
    """The model of one of the folders of golden files; do not change it."""
    return load_bundle(GOLDEN / folder)

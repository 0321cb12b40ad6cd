"""fastai's AWD-LSTM: tiny models with random weights, their outputs, and a training step with its masks; its README
says what is in which file.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.awd_lstm import FAMILY
from polyseme.convert.conversion_table import read
from polyseme.model_folder import put_weights

GOLDEN = Path(__file__).parent / "golden" / "awd_lstm"
WITHIN = 1e-5
"""Absolute, of any golden number."""


@cache
def arrays(name: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / f"{name}.safetensors")


def expected(name: str) -> dict[str, Tensor]:
    return arrays(f"{name}.expected")


def settings(**changes: Any) -> dict[str, Any]:
    return {**json.loads((GOLDEN / "config.json").read_text(encoding="utf-8")), **changes}


def golden_bundle(name: str, **changes: Any) -> Bundle:
    """One of the golden models, with weights of its own; `changes` are of its settings."""
    config = FAMILY.read_config(settings(**changes), "config.json")
    found = read(FAMILY.table(config, True), arrays(name), name)
    bundle = new_bundle(FAMILY, config, found.outputs)
    copies = {name: each.clone() for name, each in found.tensors.items()}
    put_weights(bundle, copies, GOLDEN, torch.float32, "cpu")
    return bundle.eval()

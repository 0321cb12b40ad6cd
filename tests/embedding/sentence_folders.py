"""Folders of sentence-transformers, written by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

MODES = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


def sentence_folder(tiny: Path, folder: Path, modes: Any, *, further: bool = False) -> Path:
    """A folder of sentence-transformers over the tiny model, with modules after the pooling on request."""
    shutil.copytree(tiny, folder)
    torch.manual_seed(3)
    width = 32 * (1 if isinstance(modes, str) else len(modes))
    dense = {"linear.weight": torch.randn(8, width), "linear.bias": torch.randn(8)}
    norm = {"norm.weight": torch.randn(8), "norm.bias": torch.randn(8)}
    activation = "torch.nn.modules.activation.Tanh"
    listed: list[tuple[str, dict[str, Any], dict[str, torch.Tensor]]] = [
        ("Pooling", {"embedding_dimension": 32, "pooling_mode": modes}, {}),
        ("Dense", {"in_features": width, "out_features": 8, "bias": True, "activation_function": activation}, dense),
        ("LayerNorm", {"dimension": 8}, norm),
        ("Dropout", {"dropout": 0.5}, {}),
        ("Normalize", {}, {}),
    ]
    entries = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, (kind, settings, weights) in enumerate(listed if further else listed[:1], start=1):
        path, name = folder / f"{number}_{kind}", f"sentence_transformers.models.{kind}"
        entries.append({"idx": number, "name": str(number), "path": path.name, "type": name})
        path.mkdir()
        (path / "config.json").write_text(json.dumps(settings))
        if weights:
            save_file(weights, path / "model.safetensors")
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 40, "do_lower_case": false}')
    (folder / "README.md").write_text("# A card\n")
    return folder

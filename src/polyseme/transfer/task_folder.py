"""A task model as a folder: the encoder as any model folder has it, the head beside it.

| file | |
|---|---|
| config.json, model.safetensors, tokenizer.json … | the encoder and its outputs; `polyseme.load` reads it |
| head.safetensors | the head, the mix, and what other inputs it learned |
| inputs/0, inputs/1 … | frozen models whose vectors are inputs of the head, too |
| polyseme.json | what `bundle` keeps there, and under `task` how the model reads, its head and its labels |
| report.json, report.html, curve.svg | the results of the training; the last is of a learning curve |
| README.md | the model card |
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from polyseme.bundle import Bundle
from polyseme.convert.config_file import read_json
from polyseme.convert.weight_files import read_safetensors, refuse_no_weights, write_safetensors
from polyseme.errors import ModelError
from polyseme.files.atomic import AnyPath, whole_folder
from polyseme.heads.head_config import HeadConfig
from polyseme.heads.word_inputs import WordInputs, WordInputsConfig
from polyseme.model_folder import CARD, load_bundle, model_folder, save_bundle
from polyseme.tasks.kinds import build_head
from polyseme.transfer.stacked_inputs import InputModel
from polyseme.transfer.task_model import TaskConfig, TaskModel

HEAD = "head.safetensors"
INPUTS = "inputs"
REPORT = "report.json"
PAGE = "report.html"
CURVE = "curve.svg"


def save_task_model(
    model: TaskModel,
    path: AnyPath,
    *,
    card: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
    force: bool = False,
    shard_size: int | None = None,
    dtype: torch.dtype | None = None,
    int8: bool = False,
) -> None:
    """Write a task model, whole or not at all.

    `card` is what its card says of the task besides, `files` are written beside it. The encoder is stored as `dtype`
    or in `int8`, as `save_bundle` does; head and frozen inputs as they are.
    """
    with whole_folder(Path(path), force=force) as folder:
        if model.bundle is not None:
            save_bundle(model.bundle, folder / "model", shard_size=shard_size, dtype=dtype, int8=int8)
            for each in (folder / "model").iterdir():
                each.rename(folder / each.name)
            (folder / "model").rmdir()
        for number, member in enumerate(model.frozen_inputs):
            save_bundle(member.bundle, folder / INPUTS / str(number), shard_size=shard_size)
        written: dict[str, Any] = read_json(folder / CARD) if model.bundle is not None else {"format": 1}
        written["task"] = {
            "reading": model.config.to_json(),
            "head": model.head.config.to_json(),
            "inputs": None if model.inputs is None else model.inputs.config.to_json(),
            "stacked": [
                {"name": each.name, "layer": each.layer, "standardized": each.standardized}
                for each in model.frozen_inputs
            ],
            **(card or {}),
        }
        (folder / CARD).write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        weights = {name: each.detach().cpu().contiguous() for name, each in _own_modules(model).state_dict().items()}
        write_safetensors(folder / HEAD, weights)
        for name, content in (files or {}).items():
            (folder / name).write_text(content, encoding="utf-8")


def load_task_model(
    path: AnyPath, *, device: str = "cpu", bundle: Bundle | None = None, dtype: str = "auto"
) -> TaskModel:
    """Load a model that `finetune` wrote: encoder, head and labels.

    Args:
        path: Its folder.
        device: cpu, cuda or cuda:N.
        bundle: Its encoder, if that is loaded already.
        dtype: int8, to predict in int8 on a CPU; auto does so if the weights are stored in int8. Otherwise fp32.
    """
    folder = model_folder(Path(path))
    task = task_card(folder)
    if task is None:
        raise ModelError(
            f"{folder} is a model without a head, so it cannot predict anything. Train one: polyseme finetune … "
            f"-m {folder}"
        )
    try:
        config = TaskConfig.from_json(task["reading"])
        head = build_head(HeadConfig.from_json(task["head"]))
        inputs = None if task.get("inputs") is None else WordInputs(WordInputsConfig.from_json(task["inputs"]))
        stacked = [
            InputModel(
                each["name"],
                each["layer"],
                load_bundle(folder / INPUTS / str(number), device=device),
                each.get("standardized", False),
            )
            for number, each in enumerate(task.get("stacked") or ())
        ]
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ModelError(f"{folder / CARD} does not say what the head is ({error!r}).") from None
    if bundle is None and ("family" in read_json(folder / CARD) or not (inputs is not None or stacked)):
        bundle = load_bundle(folder, device=device)
    model = TaskModel(bundle, config, head, inputs, stacked)
    if not (folder / HEAD).is_file():
        raise ModelError(f"{folder} has no {HEAD}, which its {CARD} describes. Copy the whole folder again.")
    weights = read_safetensors(folder / HEAD)
    expected = _own_modules(model).state_dict()
    for name, tensor in weights.items():
        counted = name in expected and not expected[name].is_floating_point()
        if not counted or tensor.is_complex() or tensor.is_floating_point():
            refuse_no_weights(name, tensor, folder / HEAD)
    try:
        _own_modules(model).load_state_dict(weights)
    except RuntimeError as error:
        raise ModelError(f"{folder / HEAD} does not fit its card: {' '.join(str(error).split())[:300]}") from None
    model = model.to(torch.device(device)).eval()
    stored = bundle is not None and bundle.from_int8 and model.device.type == "cpu"
    if dtype == "int8" or (dtype == "auto" and stored):
        model.run_in_int8()
    return model


def task_card(path: AnyPath) -> dict[str, Any] | None:
    """What a model folder says of its task; None where it has none."""
    card = Path(path) / CARD
    if not card.is_file():
        return None
    task: dict[str, Any] | None = read_json(card).get("task")
    return task


def weights_digest(model: TaskModel) -> str:
    """Equal for task models that predict alike: a hash of every number, and of how they read."""
    digest = hashlib.sha256(json.dumps([model.config.to_json(), model.head.config.to_json()]).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _own_modules(model: TaskModel) -> nn.ModuleDict:
    """What is not the encoder's."""
    parts: dict[str, nn.Module] = {"head": model.head}
    if model.mix is not None:
        parts["mix"] = model.mix
    if model.inputs is not None:
        parts["inputs"] = model.inputs
    parts |= {f"stacked_mix_{number}": each.mix for number, each in enumerate(model.frozen_inputs) if each.mix}
    return nn.ModuleDict(parts)

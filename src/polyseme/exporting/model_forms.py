"""The forms of a task model: as it is, in bf16, in int8, in ONNX; each written as a user would have it, and loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from polyseme.exporting.onnx_file import need_packages, write_onnx
from polyseme.exporting.onnx_graphs import TaskScores
from polyseme.exporting.onnx_task_model import OnnxTaskModel
from polyseme.transfer.predict_files import Predictor
from polyseme.transfer.task_folder import CURVE, PAGE, REPORT, load_task_model, save_task_model

NOT_NEEDED = (REPORT, PAGE, CURVE, "README.md")
"""Files of a folder that predictions do not need."""


@dataclass(frozen=True)
class Form:
    """A task model that is ready to predict, and what it takes on the disk."""

    name: str
    predictor: Predictor
    n_bytes: int


def load_form(name: str, folder: Path, *, bf16: bool = False) -> Form:
    """The task model of a folder, on a CPU."""
    return Form(name, Predictor(load_task_model(folder), bf16=bf16), bytes_of(folder))


def _in_bf16(folder: Path, scratch: Path) -> Form:
    save_task_model(load_task_model(folder), scratch / "bf16", dtype=torch.bfloat16)
    return load_form("bf16", scratch / "bf16", bf16=True)


def _in_int8(folder: Path, scratch: Path) -> Form:
    save_task_model(load_task_model(folder, dtype="int8"), scratch / "int8", int8=True)
    return load_form("int8", scratch / "int8")


def _in_onnx(folder: Path, scratch: Path) -> Form:
    need_packages()
    (scratch / "onnx").mkdir()
    model = load_task_model(folder, dtype="fp32")
    graph = TaskScores(model)
    write_onnx(graph, scratch / "onnx" / "model.onnx", {"labels": model.head.config.labels})
    graph.bundle.text_tokenizer.save(str(scratch / "onnx"))
    predictor = Predictor(OnnxTaskModel(scratch / "onnx" / "model.onnx", model))
    return Form("onnx", predictor, bytes_of(scratch / "onnx"))


FORMS: Mapping[str, Callable[[Path, Path], Form]] = {
    "full": lambda folder, scratch: load_form("full", folder),
    "bf16": _in_bf16,
    "int8": _in_int8,
    "onnx": _in_onnx,
}
"""Name → what makes it of the folder of a task model, in an empty folder for what it writes."""


def bytes_of(folder: Path) -> int:
    """What the files of a model take that predictions need."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name not in NOT_NEEDED)

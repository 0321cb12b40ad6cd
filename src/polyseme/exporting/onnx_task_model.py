"""A task model whose scores onnxruntime computes: its rows, labels and answers are those of the model in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from polyseme.errors import ModelError
from polyseme.exporting.onnx_file import Session
from polyseme.heads.tag_head import TagHead
from polyseme.heads.whole_text import ClassifyHead
from polyseme.transfer.task_model import TaskModel
from polyseme.transfer.unit_batches import ReadRows, TaskBatch
from polyseme.types import Predictions


class OnnxTaskModel(TaskModel):
    """Predicts as the task model that a file was written from."""

    def __init__(self, path: Path, model: TaskModel) -> None:
        super().__init__(model.bundle, model.config.replace(frozen=False), model.head)  # rows are read, never stored
        self.session = Session(path, threads=torch.get_num_threads())

    def predict(self, batch: TaskBatch) -> Predictions:
        if batch.rows is None or not isinstance(self.head, (ClassifyHead, TagHead)):
            raise ModelError("A file of ONNX scores rows, for classify, pair and tag.")
        inputs = inputs_of(batch.rows)
        scores = self.session({name: inputs[name] for name in self.session.inputs})
        return self.head.answers(torch.from_numpy(scores), batch.rows.mask)


def inputs_of(rows: ReadRows) -> dict[str, NDArray[Any]]:
    """Everything that files of ours read, of the rows of a batch."""
    n_rows, n_pieces = rows.pieces.shape
    lengths = np.full(n_rows, n_pieces) if rows.lengths is None else rows.lengths.numpy()
    word_ids = np.full(n_rows * n_pieces, -1)
    mask, begins, ends = rows.mask.numpy(), rows.begins.numpy(), rows.ends.numpy()
    counts = (ends - begins + 1)[mask]
    starts = np.repeat(begins[mask] - np.cumsum(counts) + counts, counts)
    word_ids[starts + np.arange(len(starts))] = np.repeat(np.nonzero(mask)[1], counts)
    return {
        "input_ids": rows.pieces.numpy(),
        "attention_mask": (np.arange(n_pieces) < lengths[:, None]).astype(np.int64),
        "word_ids": word_ids.reshape(n_rows, n_pieces),
        "token_type_ids": np.zeros_like(rows.pieces.numpy()) if rows.segments is None else rows.segments.numpy(),
    }

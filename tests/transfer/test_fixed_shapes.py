"""Batches for recorded steps: the room that is left beside the words of a batch changes nothing, and the shapes of two
batches of one length are the same, whatever is in them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import FinetuneRun, finetune_task
from polyseme.transfer.prepare_items import prepare
from polyseme.transfer.stacked_inputs import InputModel
from polyseme.transfer.task_model import TaskModel
from tiny_models import tiny_model
from transfer.small_tasks import MAKERS, small_task

WAYS: dict[str, dict[str, Any]] = {
    "tuned": {"pool": "first"},
    "frozen": {"frozen": True, "layer": "mix"},
    "frozen bilstm": {"frozen": True, "head": "bilstm", "inner_width": 8},
    "frozen and learned": {"frozen": True, "inputs": "char-cnn", "inner_width": 8},
    "learned alone": {"inputs": "char-cnn", "inner_width": 8},
}
HEADS = ("tuned", "frozen")
"""What every kind is tried with; the others, which change what a head reads, are tried with one label and with many."""
CASES = [
    *((kind, way) for kind in MAKERS for way in WAYS if way in HEADS or kind in ("classify", "tag")),
    ("tag", "tuned and stacked"),
    ("pair", "stacked alone"),
]


def fitted(kind: str, way: str) -> TaskModel:
    bundle = None if way.endswith("alone") else tiny_model("bert").bundle
    settings = FinetuneSettings(epochs=1, learning_rate=1e-3, **WAYS.get(way, {"inner_width": 8}))
    stacked = [InputModel("nnlm", "mix", tiny_model("nnlm").bundle)] if "stacked" in way else []
    return finetune_task(small_task(kind, n_train=16, n_dev=8), bundle, settings, FinetuneRun(stacked=stacked)).model


@pytest.mark.parametrize(("kind", "way"), [*CASES, ("tag", "crf")])
def test_room_to_spare_changes_nothing(kind: str, way: str) -> None:
    WAYS.setdefault("crf", {"frozen": True, "head": "bilstm-crf", "inner_width": 8})
    model = fitted(kind, way).eval()
    items = small_task(kind, n_train=16, n_dev=8).splits["train"]
    source = prepare(model, items, learning=True).source
    shapes = []
    for numbers in ([0, 1, 2], [3, 4, 5], [6, 7, 8]):
        plain, roomy = source.batch(numbers), source.batch(numbers, 32)
        torch.testing.assert_close(model(roomy), model(plain), rtol=1e-5, atol=1e-6)
        n_rows = 0 if roomy.groups is None else len(roomy.groups)  # items differ in how many choices they have
        shapes.append((n_rows, [tuple(each.shape) for each in roomy.tensors()]))
    assert all(other == shapes[0] for other in shapes[1:] if other[0] == shapes[0][0])

"""Fine-tuning changes the layers near the task most."""

from __future__ import annotations

from pathlib import Path

import torch

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Figures, Lab
from polyseme.claims.rule import Rule, above
from polyseme.convert.hub import find_model
from polyseme.encoders.encoder import Encoder
from polyseme.model_folder import load_bundle, model_folder
from polyseme.sweeps.sweep_report import Figure, RunResult
from polyseme.transfer.task_folder import load_task_model
from polyseme.verbs.finetune import finetune

MODEL, TASK = "minilm", "mrpc"
MOVED = "relative change of the weights"
LOWER, UPPER = "lower half", "upper half"


def run(lab: Lab) -> list[RunResult]:
    """Fine-tuned with each seed, and compared with what it was, layer by layer."""

    def change_of_half(row: str, seed: int) -> Figures:
        folder = lab.folder / f"{TASK}-seed{seed}"
        if not (folder / "report.json").is_file():
            finetune(TASK, model=MODEL, data=lab.tasks, seeds=[seed], device=lab.device, output=folder, epochs=2)
        before = load_bundle(model_folder(find_model(MODEL))).encoder.layer_groups()[1:]
        after = _encoder(folder).layer_groups()[1:]
        changes = [_change(*pair) for pair in zip(before, after, strict=True)]
        middle = len(changes) // 2
        chosen = changes[middle:] if row == UPPER else changes[:middle]
        return {MOVED: Figure(value=sum(chosen) / len(chosen))}

    return lab.measure_rows((LOWER, UPPER), change_of_half)


def _encoder(folder: Path) -> Encoder:
    bundle = load_task_model(folder).bundle
    assert bundle is not None  # the task was fitted to a model
    return bundle.encoder


def _change(before: list[torch.nn.Parameter], after: list[torch.nn.Parameter]) -> float:
    """How far the matrices of a layer moved, in units of their length."""
    old, new = (torch.cat([each.detach().flatten() for each in group if each.dim() > 1]) for group in (before, after))
    return float((new - old).norm() / old.norm())


CLAIM = Claim(
    name="top-layers-move-most",
    text="In fine-tuning the upper layers of an encoder move more than the lower ones.",
    source="Kovaleva et al. 2019; Merchant et al. 2020",
    runs="MiniLM fine-tuned to MRPC for two epochs; the change of each layer's matrices, relative to their length.",
    rule=Rule(conditions=(above(UPPER, LOWER, MOVED),)),
    run=run,
    data=("tasks/mrpc",),
    device="cpu",
    minutes=20,
    scales=False,
    observed="docs/geometry.md: states of the packaged models before and after SST-2.",
)

"""A small trainer over rows of chance, on one process or on several."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.corpus.random_keys import row_keys, uniform
from polyseme.objectives.objective_table import objective_from
from polyseme.training.device_group import Devices, devices_for
from polyseme.training.loader import Loader
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.trainer import Trainer
from polyseme.training.training_settings import Phase, Plan, TrainingSettings
from polyseme.types import Rows
from tiny_models import tiny_config, tiny_tokenizer

FAMILY_OF = {"masked": "bert", "causal": "gpt2", "replaced": "electra"}
LENGTH = 16
DECAY = 0.8
"""Of the average of weights."""


@dataclass(frozen=True)
class ChanceRows:
    """Rows drawn from their index, framed as BERT's; some have an end in the middle."""

    family: str
    length: int = LENGTH
    n_rows: int = 64

    def rows(self, indices: Any) -> Rows:
        tokenizer = tiny_tokenizer(self.family)
        keys = row_keys(0, 0, np.asarray(indices) % self.n_rows)
        ordinary = np.setdiff1d(np.arange(tokenizer.n_pieces), list(tokenizer.specials.values()))
        drawn = uniform(keys, "pieces", self.length)
        pieces = ordinary[(drawn * len(ordinary)).astype(np.int64)]
        special = uniform(keys, "ends", self.length) < 0.1
        pieces[special] = tokenizer.specials["end"]
        return Rows(pieces=pieces, starts=~special, special=special, keys=keys)


def settings(**changes: Any) -> TrainingSettings:
    """Settings under which numbers can be compared: no clipping surprises, a rate that moves weights."""
    made: TrainingSettings = TrainingSettings(
        phases=(Phase(share=0.5, length=LENGTH, batch_size=8), Phase(share=0.5, length=LENGTH + 8, batch_size=8)),
        optimizer=OptimizerSettings(lr=1e-2),
        schedule=Schedule(kind="linear", warmup=0.2),
    ).replace(**changes)
    return made


def trainer_for(name: str, training: TrainingSettings, devices: Devices | None = None, **shape: Any) -> Trainer:
    """A small model of the objective's family, without dropout unless `shape` says so."""
    family = FAMILY_OF[name]
    objective = objective_from(name, {}).for_tokenizer(tiny_tokenizer(family))
    without = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0, "embedding_dropout_rate": 0.0}
    torch.manual_seed(training.seed)
    bundle = new_bundle(
        FAMILIES[family], tiny_config(family, **{**without, **shape}), objective.needs.outputs, tiny_tokenizer(family)
    )
    return Trainer(objective, objective.nets(bundle), training, devices or Devices(torch.device("cpu")))


def loader_for(trainer: Trainer, plan: Plan, micro_batch_size: int = 4) -> Loader:
    """Rows for the trainer, in passes."""
    family = FAMILY_OF[trainer.objective.name]  # type: ignore[attr-defined]
    layouts = [ChanceRows(family, phase.length) for phase in trainer.settings.phases]
    return Loader(layouts, trainer.objective, plan, trainer.devices, [micro_batch_size] * len(layouts))


def losses_of(trainer: Trainer, plan: Plan, first: int, last: int, *, workers: int = 0) -> list[dict[str, float]]:
    """Take steps; what each lost. The average of the weights follows, where there is one."""
    losses = []
    for rows in loader_for(trainer, plan).steps(first, last, workers=workers):
        losses.append({name: float(mean) for name, mean in trainer.step(rows, plan).items()})
        if trainer.average is not None:
            trainer.average.update(rows.step + 1)
    return losses


def twenty_steps(name: str, training: TrainingSettings, devices: Devices, output: Path) -> None:
    """What one of several processes does; nothing of it is left when the processes part."""
    trainer = trainer_for(name, training, devices)
    trainer.average_weights(DECAY)
    losses = losses_of(trainer, Plan(training, 20), 0, 20)
    tensors = trainer.tensors()
    held = trainer.evaluate([loader_for(trainer, Plan(training, 20)).make(0)])
    with trainer.averaged():
        averaged = trainer.evaluate([loader_for(trainer, Plan(training, 20)).make(0)])
    if devices.leads:
        torch.save({"losses": losses, "tensors": tensors, "held": held, "averaged": averaged}, output)


def main() -> None:
    """One of several processes: 20 steps of each run named, and what came of them into a file each."""
    folder, *runs = sys.argv[1:]
    with devices_for("cpu") as devices:
        for run in runs:
            name, parallel, dtype = run.split("-")
            twenty_steps(name, settings(dtype=dtype, parallel=parallel), devices, Path(folder) / f"{run}.pt")


if __name__ == "__main__":
    main()

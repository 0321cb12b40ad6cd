"""Checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from polyseme.training.checkpoint import write_checkpoint
from polyseme.training.effects.base import Moment
from polyseme.training.trainer import Trainer

CHECKPOINTS = "checkpoints"


About = Callable[[int, float], dict[str, Any]]
"""Steps done and seconds trained → what is kept beside the tensors."""


class Keep:
    """Writes a checkpoint every so many steps, and at the end; weights that are no numbers are not kept."""

    def __init__(
        self,
        folder: Path,
        every: int,
        about: Callable[[int, float], dict[str, Any]],
        *,
        keep: int,
        shard_size: int | None,
    ) -> None:
        self.folder = folder / CHECKPOINTS
        self.every = every
        self.about = about
        self.keep = keep
        self.shard_size = shard_size

    def __call__(self, moment: Moment) -> None:
        if moment.done % self.every == 0 or moment.last:
            self.now(moment.trainer, moment.done, moment.seconds)

    def now(self, trainer: Trainer, done: int, seconds: float) -> None:
        """Write one, if the weights are in order."""
        if not trainer.finite():
            return
        tensors = trainer.tensors()
        if trainer.devices.leads:
            write_checkpoint(
                self.folder, done, tensors, self.about(done, seconds), keep=self.keep, shard_size=self.shard_size
            )
        trainer.devices.wait()

"""The log: a line of JSON a logged step, and TensorBoard's events where asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyseme.extras import require
from polyseme.files.atomic import whole_file
from polyseme.training.effects.base import Moment, due

LOG = "log.jsonl"


class Log:
    """Appends to `log.jsonl`: step, loss, its parts, pieces, seconds, lr; evaluated steps also `held_out`."""

    def __init__(self, folder: Path, every: int) -> None:
        self.path = folder / LOG
        self.every = every

    def __call__(self, moment: Moment) -> None:
        if not moment.trainer.devices.leads or not (due(moment, self.every) or moment.held_out):
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line_of(moment)) + "\n")


def line_of(moment: Moment) -> dict[str, Any]:
    """What the log says of a step."""
    line: dict[str, Any] = {
        "step": moment.done,
        "loss": moment.loss,
        **moment.losses,
        "pieces": moment.pieces,
        "seconds": round(moment.seconds, 3),
        "lr": moment.rate,
        "wait": round(moment.wait_share, 4),
    }
    if moment.held_out:
        line["held_out"] = moment.held_out
    return line


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log; one that was cut short when the run was stopped is left out."""
    path = folder / LOG
    lines: list[dict[str, Any]] = []
    if path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                continue
    return lines


def forget_after(folder: Path, step: int) -> None:
    """Take out of the log what a run that goes on from `step` will log again."""
    kept = [line for line in read_log(folder) if line["step"] <= step]
    with whole_file(folder / LOG, force=True) as path:
        path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")


class TensorBoard:
    """The same figures as events that TensorBoard shows."""

    def __init__(self, folder: Path, every: int) -> None:
        require("tensorboard", extra="tensorboard")
        board = require("torch.utils.tensorboard", extra="tensorboard")
        self.every = every
        self.writer = board.SummaryWriter(str(folder / "tensorboard"))

    def __call__(self, moment: Moment) -> None:
        if due(moment, self.every) or moment.held_out:
            self._add("train", {**moment.losses, "total": moment.loss, "lr": moment.rate}, moment.done)
            self._add("held_out", moment.held_out, moment.done)
            self.writer.flush()

    def _add(self, group: str, figures: Mapping[str, float], step: int) -> None:
        for name, value in figures.items():
            self.writer.add_scalar(f"{group}/{name}", value, step)

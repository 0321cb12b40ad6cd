"""How training is fitted to a budget: length, batch, learning rate, schedule and dropout, by written rules.

A recipe says what is trained (architecture, objective, tokenizer) and how its training scales (`Scaling`). Given the
budget, the device, the size of the text and of the model, the rules here decide the rest:

| what | rule |
|---|---|
| pieces D of the whole run | the budget; of time, by a share (`UTILIZATION`) of the device's speed of products |
| length of rows | 128 pieces, on a CPU 64, unless the recipe has its own; at most what the model reads |
| batch | 65,536 pieces · (D / 6e8)^0.8, as a power of two of rows |
| … at least | 65,536 pieces on a GPU, to keep it busy; 2,048 on a CPU (AWD-LSTM: 5,600 and 512) |
| … at most | 2 s of work on a CPU; an eighth of the text |
| learning rate | 0.04 / √width for AdamW, 2.5 times that for the matrices, which Muon moves; T5 has its own |
| schedule | a warmup of 200 steps, at most a twentieth; constant; linear to zero over the second half |
| dropout | none up to 4 epochs of the text, then 0.1 |
| … of AWD-LSTM | the published rates, in proportion to the logarithm of the epochs, all of it from 64 on |
| first weights | with learned positions, as in BERT, attention begins near (`encoders.local_start`) |

They were fitted to runs of 2 to 7 minutes on an H200 (12 × 384) and on two CPU cores (2 × 128). Every option of the
user's replaces what a rule gives, and `as_published` replaces all of them by the paper's settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from polyseme.config import Config, EncoderConfig
from polyseme.training.budget import Budget
from polyseme.training.optimizers import OptimizerKind, OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

UTILIZATION = {"cuda": 0.25, "cpu": 0.4}
"""The share of the speed of large products that training is taken to reach before it is measured."""
BATCH, BATCH_AT, BATCH_POWER = 65_536, 6e8, 0.8
"""Pieces of a step where the whole run reads `BATCH_AT`, and the power of the run's pieces that it grows with."""
SMALLEST = {"cuda": 65_536, "cpu": 2_048}
LARGEST = 1 << 20
STEP_SECONDS = 2.0
"""A step on a CPU takes at most about as long."""
SHARE_OF_TEXT = 1 / 8
WARMUP_STEPS, WARMUP_SHARE = 200, 0.05
FEW_EPOCHS = 4.0
"""A text teaches almost as much as new text when it is read up to this often (Muennighoff et al. 2023)."""
FULL_DROPOUT_EPOCHS = 64.0
"""From so many passes on AWD-LSTM has all of its dropout."""
MANY_EPOCHS = 200.0
"""More passes over a text teach nothing new, which is warned of."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """What a recipe says of how its training scales."""

    length: int = 128
    cpu_length: int = 64
    batch: float = 1.0
    """Times what the rule gives, and times the smallest batch of a GPU."""
    gpu_utilization: float = UTILIZATION["cuda"]
    """The share of a GPU's speed of products that a run is taken to reach; recurrent layers wait for each step."""
    cpu_batch: int = SMALLEST["cpu"]
    """Pieces of the smallest batch of a CPU."""
    optimizer: OptimizerKind = "muon"
    rate: float = 0.04
    """The learning rate times the root of the width."""
    matrix_factor: float = 2.5
    """The rate of the matrices that Muon moves, against that of the rest."""
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.98)
    max_grad_norm: float = 1.0
    dropout: float = 0.1
    """Where the text is read more than a few times."""
    one_dropout: bool = False
    """The family's config has one rate for all places."""
    dropouts: Mapping[str, float] = field(default_factory=dict)
    """The rate at each place where the text is read `FULL_DROPOUT_EPOCHS` times or more, and in proportion where it is
    read less often; `dropout` is the one that is reported. None: the one rate at all places."""
    varied: bool = False
    """Whether rows of streams vary in length."""
    objective: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the objective that suit a small budget better than the published ones."""
    cpu_objective: Mapping[str, Any] = field(default_factory=dict)
    """Those that differ on a CPU, where a softmax over all words may take most of the time."""
    shape: Mapping[str, Any] = field(default_factory=dict)
    """The same of the encoder."""
    sentence_starts: bool = True
    local_start: bool = False
    """For stacks with learned positions, which otherwise take long to find out what is near."""


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What the rules look at beside the recipe."""

    budget: Budget
    device: str
    """cuda or cpu."""
    world: int
    flops_per_second: Callable[[], float]
    """The device's speed of large products; measured only if it is needed."""
    flops_per_piece: Callable[[int], float]
    """Forwards and backwards, in rows of a length."""
    text_pieces: int | None
    """Pieces of the text that is trained on; None: not known yet."""


@dataclass(frozen=True, kw_only=True)
class Fit(Config):
    """What the rules gave, kept in run.json."""

    length: int
    batch_size: int
    learning_rate: float
    matrix_learning_rate: float | None
    optimizer: str
    warmup: float
    dropout: float
    pieces: float
    """That the whole run is expected to read."""
    epochs: float | None
    """How often it reads the text; None: the size of the text was not known."""

    def lines(self, budget: Budget) -> list[str]:
        """The same in words, for the terminal."""
        rate = f"learning rate {self.learning_rate:.2g}"
        if self.matrix_learning_rate is not None:
            rate += f" ({self.matrix_learning_rate:.2g} for matrices)"
        times = "" if self.epochs is None else f", {self.epochs:,.1f} epochs of this text"
        steps = max(1, round(self.pieces / (self.batch_size * self.length)))
        return [
            f"fitted to {budget}: about {self.pieces:,.0f} pieces{times}",
            f"about {steps:,} steps of {self.batch_size:,} rows of {self.length:,} pieces; {self.optimizer}, {rate}, "
            f"dropout {self.dropout:g}",
        ]


def fit(scaling: Scaling, config: EncoderConfig, circumstances: Circumstances, chosen: Mapping[str, Any]) -> Fit:
    """What the rules give; `chosen` are the user's own options, which are kept."""
    on_gpu = circumstances.device == "cuda"
    length = chosen.get("length") or min(scaling.length if on_gpu else scaling.cpu_length, config.window or LARGEST)
    pieces, speed = _pieces(scaling, circumstances, length)
    batch_size = chosen.get("batch_size") or _rows(scaling, circumstances, pieces, length, speed)
    if circumstances.budget.unit == "steps":
        pieces = circumstances.budget.amount * batch_size * length
    epochs = None if not circumstances.text_pieces else pieces / circumstances.text_pieces
    n_steps = max(1.0, pieces / (batch_size * length))
    optimizer = chosen.get("optimizer") or scaling.optimizer
    slower = 1.0 if optimizer == "muon" else min(1.0, scaling.matrix_factor)  # one rate for all must suit the matrices
    rate = chosen.get("learning_rate") or slower * scaling.rate / math.sqrt(max(config.widths))
    return Fit(
        length=length,
        batch_size=batch_size,
        learning_rate=rate,
        matrix_learning_rate=scaling.matrix_factor * rate if optimizer == "muon" else None,
        optimizer=optimizer,
        warmup=WARMUP_STEPS if n_steps * WARMUP_SHARE > WARMUP_STEPS else WARMUP_SHARE,
        dropout=_dropout(scaling, epochs),
        pieces=pieces,
        epochs=epochs,
    )


def fitted_training(scaling: Scaling, fitted: Fit) -> TrainingSettings:
    """The settings of training that follow from what the rules gave."""
    return TrainingSettings(
        phases=(Phase(length=fitted.length, batch_size=fitted.batch_size),),
        optimizer=OptimizerSettings(
            kind=fitted.optimizer,  # type: ignore[arg-type]
            lr=fitted.learning_rate,
            matrix_lr=fitted.matrix_learning_rate,
            betas=scaling.betas,
            epsilon=1e-8,
            weight_decay=scaling.weight_decay,
        ),
        schedule=Schedule(kind="warmup-stable-decay", warmup=fitted.warmup, decay=0.5),
        max_grad_norm=scaling.max_grad_norm,
        sentence_starts=scaling.sentence_starts,
        local_start=scaling.local_start,
        varied=scaling.varied,
    )


def fitted_dropout(scaling: Scaling, config: EncoderConfig, rate: float) -> dict[str, float]:
    """The dropout rates of a config, where they are set: of what is added and of the token layer, and of nothing else
    unless the family has one rate for all, or the recipe its own for each place.
    """
    if scaling.dropouts:
        return {name: value * rate / scaling.dropout for name, value in scaling.dropouts.items()}
    rates = dict.fromkeys(("dropout_rate", "embedding_dropout_rate", "attention_output_dropout_rate"), rate)
    rates |= dict.fromkeys(("attention_dropout_rate", "inner_dropout_rate"), rate if scaling.one_dropout else 0.0)
    return {name: value for name, value in rates.items() if getattr(config, name, None) is not None}


def _dropout(scaling: Scaling, epochs: float | None) -> float:
    if epochs is None:
        return 0.0
    if not scaling.dropouts:
        return 0.0 if epochs <= FEW_EPOCHS else scaling.dropout
    share = math.log(max(epochs, 1.0)) / math.log(FULL_DROPOUT_EPOCHS)
    return scaling.dropout * min(share, 1.0)


def _pieces(scaling: Scaling, circumstances: Circumstances, length: int) -> tuple[float, float | None]:
    """Pieces that the run can read, and the pieces per second that are assumed, for a budget of time."""
    budget, each = circumstances.budget, circumstances.flops_per_piece(length)
    if budget.unit == "steps":  # of a batch that itself goes by the pieces of the run
        batch = scaling.batch * BATCH
        return (budget.amount * batch * BATCH_AT**-BATCH_POWER) ** (1 / (1 - BATCH_POWER)), None
    if budget.unit == "pieces":
        return budget.amount, None
    if budget.unit == "epochs":
        return budget.amount * (circumstances.text_pieces or BATCH_AT), None
    if budget.unit == "flops":
        return budget.amount / each, None
    utilization = scaling.gpu_utilization if circumstances.device == "cuda" else UTILIZATION[circumstances.device]
    speed = circumstances.world * utilization * circumstances.flops_per_second() / each
    return budget.amount * speed, speed


def _rows(scaling: Scaling, circumstances: Circumstances, pieces: float, length: int, speed: float | None) -> int:
    """Rows of a step: a power of two that the processes share evenly."""
    batch = scaling.batch * BATCH * (pieces / BATCH_AT) ** BATCH_POWER
    if circumstances.device == "cpu" and speed is not None:
        batch = min(batch, STEP_SECONDS * speed)
    smallest = SMALLEST["cuda"] * scaling.batch if circumstances.device == "cuda" else scaling.cpu_batch
    batch = min(max(batch, smallest), LARGEST)
    if circumstances.text_pieces:
        batch = min(batch, SHARE_OF_TEXT * circumstances.text_pieces)
    rows = 1 << max(0, round(math.log2(max(batch / length, 1))))
    return max(rows // circumstances.world, 1) * circumstances.world

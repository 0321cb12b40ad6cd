"""How a run trains: everything that decides its numbers but the model, the objective and the corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from polyseme.config import Config
from polyseme.corpus.layout import VariedBy
from polyseme.errors import OptionError, nearest
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule

TrainingDtype = Literal["fp32", "bf16", "fp64"]
Parallel = Literal["ddp", "fsdp"]


@dataclass(frozen=True, kw_only=True)
class Phase(Config):
    """A part of a run with rows of one length (BERT: nine tenths of the steps at 128 pieces, one tenth at 512)."""

    share: float = 1.0
    """Of the steps."""
    length: int
    """Pieces of a row, specials included."""
    batch_size: int
    """Rows of a step, over all devices and passes."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise OptionError(f"The share of a phase must be above 0 and at most 1. Got {self.share} instead.")
        if self.length < 4 or self.batch_size < 1:
            raise OptionError(
                f"A step needs at least 1 row of at least 4 pieces. Got {self.batch_size} of {self.length} instead."
            )

    @property
    def pieces(self) -> int:
        """Pieces of a step."""
        return self.batch_size * self.length


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Config):
    """Phases, optimizer, schedule and precision."""

    phases: tuple[Phase, ...]
    optimizer: OptimizerSettings
    schedule: Schedule
    summed: bool = False
    """Whether a step follows the gradient of the sum over its targets, and not of their mean (word2vec, GloVe)."""
    layer_decay: float = 1.0
    """The factor of the learning rate from each layer to the one below, from the outputs down."""
    max_grad_norm: float | None = 1.0
    """The largest norm of all gradients together; None: as they are."""
    micro_batch_size: int | None = None
    """Rows that a device runs at once; a step's rows take as many passes as they need. None: what suits the device."""
    mask_documents: bool = False
    """Whether the documents that share a row are hidden from each other."""
    reset_positions: bool = False
    """Whether positions restart with each document of a row."""
    sentence_starts: bool = False
    """Whether packed rows begin with a sentence."""
    local_start: bool = False
    """Whether a new model with learned positions begins with attention to what is near (`encoders.local_start`)."""
    varied: bool = False
    """Whether rows of streams have lengths around that of their phase, from step to step another one …"""
    varied_by: VariedBy = "quarters"
    """… of five, which recorded steps need, or drawn as in AWD-LSTM."""
    rate_by_length: bool = False
    """Whether the learning rate of a step is in proportion to the pieces that it predicts, where lengths vary."""
    dtype: TrainingDtype = "fp32"
    compile: bool = False
    record: bool = True
    """Whether steps are recorded as CUDA graphs and replayed, where there is one GPU and the optimizer allows it."""
    parallel: Parallel = "ddp"
    threads: int | None = None
    """Threads of a CPU that steps run with, where products are so small that more wait for each other; None: all."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.phases or abs(sum(phase.share for phase in self.phases) - 1) > 1e-6:
            raise OptionError("The shares of a run's phases must add up to 1.")
        choices = (("dtype", TrainingDtype), ("parallel", Parallel), ("varied_by", VariedBy))
        for name, known in ((name, get_args(kind)) for name, kind in choices):
            value = getattr(self, name)
            if value not in known:
                raise OptionError(f"There is no {name} {value!r} for training. {nearest(str(value), known)}")
        if not 0 < self.layer_decay <= 1:
            raise OptionError(f"The layer_decay must be above 0 and at most 1. Got {self.layer_decay} instead.")
        if self.micro_batch_size is not None and self.micro_batch_size < 1:
            raise OptionError(f"A pass needs at least 1 row. Got {self.micro_batch_size} instead.")

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> TrainingSettings:
        """The settings of `to_json`, the records in them included."""
        settings = dict(settings)
        settings["phases"] = tuple(Phase.from_json(each) for each in settings["phases"])
        settings["optimizer"] = OptimizerSettings.from_json(settings["optimizer"])
        settings["schedule"] = Schedule.from_json(settings["schedule"])
        return super().from_json(settings)

    @property
    def longest(self) -> int:
        """The longest row of any phase."""
        return max(phase.length for phase in self.phases)

    def mean_over_phases(self, of_phase: Sequence[float]) -> float:
        """What a step costs on average, given what a step of each phase costs."""
        return sum(phase.share * value for phase, value in zip(self.phases, of_phase, strict=True))


@dataclass(frozen=True)
class Plan:
    """Which phase a step belongs to, once the number of steps is known."""

    settings: TrainingSettings
    n_steps: int
    pieces_per_step: tuple[float, ...] = ()
    """Of each phase, the pieces that a step reads on average; none: its rows are full."""
    starts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        starts, done = [], 0.0
        for phase in self.settings.phases:
            starts.append(round(done * self.n_steps))
            done += phase.share
        object.__setattr__(self, "starts", tuple(starts))

    def at(self, step: int) -> tuple[int, int]:
        """The number of a step's phase, and of the step in it."""
        number = max(index for index, start in enumerate(self.starts) if start <= step)
        return number, step - self.starts[number]

    def steps_until(self, step: int) -> list[int]:
        """Of each phase, how many steps come before this one."""
        ends = [*self.starts[1:], self.n_steps]
        return [max(0, min(step, end) - start) for start, end in zip(self.starts, ends, strict=True)]

    def pieces_until(self, step: int) -> int:
        """Pieces that all steps before this one read."""
        pieces = self.pieces_per_step or [phase.pieces for phase in self.settings.phases]
        return round(sum(each * n_steps for each, n_steps in zip(pieces, self.steps_until(step), strict=True)))

"""How a task model is trained: everything that decides its numbers but the model and the data.

What a user does not set is None here, and chosen in `default_settings.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from polyseme.embedding.decoder_stack import Stack
from polyseme.errors import OptionError
from polyseme.heads.head_config import NAMES as HEAD_NAMES
from polyseme.options import check_choice
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.transfer.stacked_inputs import CHARACTERS, input_names
from polyseme.verb_options.task_options import FinetuneOptions, TransferDtype, VectorsAt

Readout = Literal["first", "pooled", "last", "mean", "max", "concat"]

STEPS = {
    "layer_decay": (1.0, 1 / 2.6),
    "schedule": ("linear", "slanted-triangular"),
    "betas": ((0.9, 0.999), (0.7, 0.99)),
    "gradual_unfreezing": (False, True),
}
"""Options of which None is decided by ULMFiT alone: what they are without it, and with it."""
LATE_HEADS = ("bilstm", "bilstm-crf")
"""Heads that can read a model's vectors later than at their input."""
OF_STATES = ("layer", "stack", "pool", "readout", "inner_width", "reread_inputs", "inputs", "dropout", "head_layers")
"""Settings of heads that read vectors, which mean nothing for one that writes."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(FinetuneOptions):
    """The checked options of a fine-tuning; None is what suits the encoder (`fill_settings`)."""

    layer: str | None = None
    layer_decay: float = 1.0
    schedule: str = "linear"
    betas: tuple[float, float] = (0.9, 0.999)
    gradual_unfreezing: bool = False
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        Schedule(kind=self.schedule, warmup=self.warmup)  # type: ignore[arg-type]
        object.__setattr__(self, "betas", tuple(self.betas))
        check_choice("dtype", self.dtype, get_args(TransferDtype))
        choices = {"readout": get_args(Readout), "head": tuple(HEAD_NAMES), "stack": get_args(Stack)}
        for name, names in choices.items():
            if getattr(self, name) is not None:
                check_choice(name, getattr(self, name), names)
        object.__setattr__(self, "inputs", input_names(self.inputs))
        self._place_vectors()
        bounds = {"epochs": 1, "batch_size": 1, "max_pieces": 8, "evaluations": 1, "inner_width": 1, "head_layers": 1}
        bounds |= {"chunk_length": 1, "read_last": 1}
        for name, least in bounds.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise OptionError(f"The {name} of a fine-tuning must be at least {least}. Got {value} instead.")
        for name in ("learning_rate", "head_learning_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise OptionError(f"The {name} of a fine-tuning must be above 0. Got {value} instead.")
        if not 0 < self.layer_decay <= 1:
            raise OptionError(f"The layer_decay must be above 0 and at most 1. Got {self.layer_decay} instead.")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise OptionError(f"The dropout must be from 0 to below 1. Got {self.dropout} instead.")
        OptimizerSettings(betas=self.betas)
        if self.reinit_layers < 0 or self.stride < 0 or self.weight_decay < 0:
            raise OptionError("The settings reinit_layers, stride and weight_decay must be 0 or more.")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise OptionError(
                f"The seeds must be different whole numbers from 0 on, one at least. Got {list(self.seeds)} instead."
            )
        if self.head == "text":
            self._check_text()
        if self.ulmfit and self.frozen:
            raise OptionError("ULMFiT fine-tunes a language model, and a frozen one does not learn. Leave one out.")
        if self.frozen:
            useless = {"gradual_unfreezing": False, "reinit_layers": 0, "layer_decay": 1.0, "chunk_length": None}
            for name, default in useless.items():
                if getattr(self, name) != default:
                    raise OptionError(f"A frozen encoder does not learn, so {name} means nothing. Leave it out.")

    def _place_vectors(self) -> None:
        """Where the model's vectors are read late, the model is frozen, and the BiLSTM reads something else first."""
        check_choice("at", self.at, get_args(VectorsAt))
        if self.between and self.at == "output":
            raise OptionError(
                "between (--between) is short for at='between', and at is 'output'. Leave one of both out."
            )
        if self.between:
            object.__setattr__(self, "at", "between")
        if self.at == "input":
            return
        if self.head is not None:
            check_late_head(self.at, self.head)
        if self.at == "between" and self.head_layers == 1:
            raise OptionError(
                "The model's vectors are to be read between the first layer of the head's BiLSTM and the second "
                "(--between), and it has one layer. Give it two (--head-layers 2), or leave the number of layers out."
            )
        if self.reread_inputs:
            raise OptionError(
                f"The model's vectors are read in one place, {self.at!r}; reread_inputs has them read at the input and "
                "at the output. Leave one of both out."
            )
        object.__setattr__(self, "frozen", True)
        object.__setattr__(self, "inputs", self.inputs or (CHARACTERS,))

    def _check_text(self) -> None:
        if self.frozen:
            raise OptionError(
                "The head 'text' has nothing of its own to learn, so the model cannot stay frozen with it."
            )
        for name in OF_STATES:
            if getattr(self, name):
                raise OptionError(
                    f"The head 'text' writes the label with the model's decoder and reads no vectors, so {name} means "
                    "nothing. Leave it out, or take another head."
                )

    @property
    def optimizer(self) -> OptimizerSettings:
        """The update rule: AdamW."""
        rate = float(self.learning_rate or 1e-4)
        return OptimizerSettings(lr=rate, betas=self.betas, weight_decay=self.weight_decay)

    @property
    def learning_rates(self) -> Schedule:
        """How the learning rate moves."""
        return Schedule(kind=self.schedule, warmup=self.warmup)  # type: ignore[arg-type]


def check_late_head(at: str, head: str) -> None:
    """Refuse a head without a BiLSTM that could read vectors later than at its input."""
    if head not in LATE_HEADS:
        raise OptionError(
            f"Vectors can be read at {at!r} by a BiLSTM over words, the heads {' and '.join(LATE_HEADS)}. Got the head "
            f"{head!r}; name another (--head), or leave the place out (--at, --between)."
        )


def settings_of(options: FinetuneOptions) -> FinetuneSettings:
    """The settings among a verb's options.

    >>> settings_of(FinetuneOptions(layer=-1, seeds=2)).seeds
    (0, 1)
    """
    values = options.values(FinetuneOptions)
    for name, (usual, of_ulmfit) in STEPS.items():
        if values[name] is None:
            values[name] = of_ulmfit if options.ulmfit else usual
    layer = None if options.layer is None else str(options.layer)
    if isinstance(options.seeds, int) and options.seeds < 1:
        raise OptionError(f"There must be one seed at least. Got {options.seeds} instead.")
    seeds = tuple(range(options.seeds) if isinstance(options.seeds, int) else options.seeds)
    return FinetuneSettings(**{**values, "layer": layer, "seeds": seeds})

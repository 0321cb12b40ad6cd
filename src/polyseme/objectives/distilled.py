"""Distillation on raw text (Sanh et al. 2019, DistilBERT): a student learns what a frozen teacher predicts.

The loss has three parts: the teacher's distribution over pieces at a temperature (soft targets), the pieces themselves
(as in the objective without a teacher), and the cosine of the last states. The teacher belongs to the objective: it is
named by its folder, loaded before training, and neither trained nor saved.

Shapes: R rows, T pieces of a row, K targets of a row, N positions, D width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.config import EncoderConfig
from polyseme.cost import forward_flops
from polyseme.errors import OptionError
from polyseme.model_folder import load_bundle
from polyseme.objectives.causal import Causal
from polyseme.objectives.masked import Masked
from polyseme.objectives.objective import Arrays, BaseObjective, Nets, Parts, batch_of, output_flops, pick
from polyseme.objectives.target_selection import most
from polyseme.outputs.output import Output
from polyseme.outputs.pieces import PieceOutput, piece_losses
from polyseme.parts.distillation_losses import cosine_losses, soft_target_losses
from polyseme.parts.memory_and_cache import Memory
from polyseme.types import Example, Rows

SOFT, COSINE = "soft", "cosine"


@dataclass(frozen=True, kw_only=True)
class WithTeacher(BaseObjective, ABC):
    """What both kinds of language models have in common; weights and temperature are those of DistilBERT's code."""

    output: ClassVar[str]
    """What predicts pieces, in student and teacher; also the part of the loss without a teacher."""
    needs_teacher: ClassVar[bool] = True

    teacher: str = ""
    """The teacher's folder."""
    temperature: float = 2.0
    soft_weight: float = 5.0
    """Of the teacher's distributions."""
    piece_weight: float = 2.0
    """Of the pieces themselves."""
    cosine_weight: float = 1.0
    """Of the last states. A narrower student's go through a map that is learned and left behind."""

    known_teacher: Bundle | None = field(default=None, repr=False, compare=False)
    """The teacher, once it is loaded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature > 0:
            raise OptionError(f"The temperature must be above 0. Got {self.temperature} instead.")
        weights = (self.soft_weight, self.piece_weight, self.cosine_weight)
        if min(weights) < 0 or not self.soft_weight + self.cosine_weight > 0:
            raise OptionError(
                "The soft_weight, piece_weight and cosine_weight must be 0 or more, and that of soft targets or of "
                f"the cosine above 0, or nothing is learned from the teacher. Got {', '.join(map(str, weights))}."
            )

    @property
    def weights(self) -> Mapping[str, float]:
        weights = {SOFT: self.soft_weight, self.output: self.piece_weight, COSINE: self.cosine_weight}
        return {name: weight for name, weight in weights.items() if weight or name == self.output}

    @property
    def prediction_parts(self) -> tuple[str, ...]:
        return (self.output,)

    def with_models(self) -> Any:
        if self.known_teacher is not None:
            return self
        if not self.teacher:
            raise OptionError(f"The objective {self.name!r} needs a teacher. Name its folder: teacher=….")
        return self.replace(known_teacher=load_bundle(self.teacher))

    @property
    def taught_by(self) -> Bundle:
        """The teacher, which must have been loaded."""
        teacher = self.known_teacher
        if teacher is None:
            raise OptionError(f"The objective {self.name!r} has not loaded its teacher yet. Call with_models() first.")
        return teacher

    def refuse(self, bundle: Bundle) -> None:
        super().refuse(bundle)
        check_teacher(self.taught_by, bundle, self.output if self.soft_weight else None, self.teacher)

    def corrupt(self, rows: Rows) -> Example:
        example = super().corrupt(rows)  # type: ignore[safe-super]
        n_targets = example.counts[self.output]
        counts = {self.output: n_targets, SOFT: self.n_soft(rows, n_targets), COSINE: self.n_compared(rows)}
        return Example(example.arrays, {name: counts[name] for name in self.weights})

    def n_soft(self, rows: Rows, n_targets: float) -> float:
        """How many positions have the teacher's distribution as a target."""
        return n_targets

    @abstractmethod
    def n_compared(self, rows: Rows) -> float:
        """How many positions' last states are compared."""

    def nets(self, bundle: Bundle) -> nn.Module:
        return self.student_nets(bundle)(bundle, self)

    @abstractmethod
    def student_nets(self, bundle: Bundle) -> Callable[[Bundle, WithTeacher], StudentNets]:
        """The class of the networks."""

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        """The student's forwards and backwards, and the teacher's forwards."""
        teacher = self.taught_by
        own = super().flops(nets, n_rows, length)  # type: ignore[safe-super]
        taught = forward_flops(teacher.config, [length] * n_rows)
        if self.soft_weight:
            taught += output_flops(teacher.outputs[self.output], self.n_predicted(n_rows, length))
        return own + taught

    @abstractmethod
    def n_predicted(self, n_rows: int, length: int) -> int:
        """Positions at which the teacher predicts pieces."""


@dataclass(frozen=True, kw_only=True)
class Distilled(WithTeacher, Masked):
    """A masked language model learns from another; masks and targets are those of the objective `masked`."""

    name: ClassVar[str] = "distilled"
    output = "masked"

    soft_at: Literal["targets", "all"] = "targets"
    """Where distributions are compared: at the targets (`restrict_ce_to_mask` in DistilBERT's code), or at all pieces,
    as in the published run, for several times the cost."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.soft_at not in ("targets", "all"):
            raise OptionError(f"The setting soft_at must be targets or all. Got {self.soft_at!r} instead.")
        if self.next is not None:
            raise OptionError("A student learns to predict pieces, and nothing of next sentences. Leave out next.")
        if self.boundary:
            raise OptionError("A student's teacher does not predict spans from their boundaries. Leave out boundary.")

    def n_soft(self, rows: Rows, n_targets: float) -> float:
        return self.n_compared(rows) if self.soft_at == "all" else n_targets

    def n_compared(self, rows: Rows) -> float:
        return float(rows.pieces.size if rows.lengths is None else rows.lengths.sum())

    def student_nets(self, bundle: Bundle) -> Callable[[Bundle, WithTeacher], StudentNets]:
        return MaskedStudent

    def n_predicted(self, n_rows: int, length: int) -> int:
        return n_rows * (length if self.soft_at == "all" else most(length, self.rate_at(0.5)))


@dataclass(frozen=True, kw_only=True)
class DistilledCausal(WithTeacher, Causal):
    """A causal language model learns from another, at every piece but a row's first; padding counts for nothing."""

    name: ClassVar[str] = "distilled-causal"
    output = "causal"

    def n_compared(self, rows: Rows) -> float:
        pad = self.vocabulary.pad
        return float(rows.pieces.size if pad is None else (rows.pieces != pad).sum())

    def student_nets(self, bundle: Bundle) -> Callable[[Bundle, WithTeacher], StudentNets]:
        return CausalStudent

    def n_predicted(self, n_rows: int, length: int) -> int:
        return n_rows * (length - 1)


class StudentNets(Nets):
    """The student, and the teacher beside it, which moves with it to its device and is neither trained nor saved."""

    compiled_methods = ("compared", "cosines")

    def __init__(self, bundle: Bundle, objective: WithTeacher) -> None:
        super().__init__(bundle, objective.output)
        teacher = objective.taught_by
        self.objective = objective
        self.pad = None if objective.known_vocabulary is None else objective.known_vocabulary.pad
        self.map: nn.Module = nn.Identity()
        mine, theirs = bundle.config.widths[-1], teacher.config.widths[-1]
        if mine != theirs and objective.cosine_weight:
            self.map = nn.Linear(mine, theirs, bias=False)
        self._teacher = (teacher.eval().requires_grad_(False),)  # in a tuple, so that it is no submodule

    @property
    def teacher(self) -> Bundle:
        return self._teacher[0]

    def frozen_models(self) -> Iterator[nn.Module]:
        yield self.teacher.encoder

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> StudentNets:
        self.teacher._apply(fn)  # type: ignore[no-untyped-call]
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]

    def states_of_both(self, arrays: Arrays, pieces: Tensor) -> tuple[Tensor, Tensor]:
        """[R, T, D] and [R, T, E]: the last states of student and teacher."""
        batch = batch_of(arrays, pieces)
        mine = self.encoder(batch, layers=[-1])[-1]
        with torch.no_grad():
            theirs = self.teacher.encoder(batch, layers=[-1])[-1]
        return mine, theirs

    def compared(self, mine: Tensor, theirs: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
        """[N, D], [N, E] and perhaps [N] → the losses of soft targets [N], and of the targets themselves [N]."""
        logits = logits_of(self.output, mine)
        nothing = logits.new_zeros(())
        hard = nothing if targets is None else piece_losses(logits, targets)
        if not self.objective.soft_weight:
            return nothing, hard
        with torch.no_grad():
            taught = logits_of(cast(Output, self.teacher.outputs[self.objective.output]), theirs)
        return soft_target_losses(logits, taught, self.objective.temperature), hard

    def cosines(self, mine: Tensor, theirs: Tensor) -> Tensor:
        """[R, T, D] and [R, T, E] → [R, T]"""
        return cosine_losses(self.map(mine), theirs)

    def parts(self, soft: Tensor, hard: Tensor, cosine: Callable[[], Tensor]) -> dict[str, Tensor]:
        """The sums of those parts that have a weight."""
        weights = self.objective.weights
        parts = {SOFT: soft, self.objective.output: hard}
        if COSINE in weights:
            parts[COSINE] = cosine()
        return {name: parts[name].sum() for name in weights}


class MaskedStudent(StudentNets):
    """Of masked pieces; only the targets' states reach the vocabulary, unless distributions are compared everywhere."""

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: pieces [R, T], and places, targets and weights [R, K]."""
        pieces = arrays["pieces"].long()
        mine, theirs = self.states_of_both(arrays, pieces)
        places, weights = arrays["places"].long(), arrays["weights"].flatten()
        soft, hard = self.compared(pick(mine, places), pick(theirs, places), arrays["targets"].long().flatten())
        soft = soft * weights
        real = torch.ones_like(pieces, dtype=torch.bool)
        if "lengths" in arrays:
            real = torch.arange(pieces.shape[1], device=pieces.device) < arrays["lengths"].long()[:, None]
        if cast(Distilled, self.objective).soft_at == "all":
            soft, _ = self.compared(mine.flatten(0, 1), theirs.flatten(0, 1), None)
            soft = soft * real.flatten()
        return self.parts(soft, hard * weights, lambda: self.cosines(mine, theirs) * real), None


class CausalStudent(StudentNets):
    """Of the next piece; the states of all pieces but the last predict the piece after them."""

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: pieces [R, T]."""
        pieces = arrays["pieces"].long()
        mine, theirs = self.states_of_both(arrays, pieces)
        targets = pieces[:, 1:].flatten()
        soft, hard = self.compared(mine[:, :-1].flatten(0, 1), theirs[:, :-1].flatten(0, 1), targets)
        real = torch.ones_like(pieces, dtype=torch.bool) if self.pad is None else pieces != self.pad
        counts = real[:, 1:].flatten()
        return self.parts(soft * counts, hard * counts, lambda: self.cosines(mine, theirs) * real), None


def logits_of(output: Output, states: Tensor) -> Tensor:
    """[N, D] → [N, V]: log-probabilities, perhaps up to a constant, which a softmax removes."""
    return output.logits(states) if isinstance(output, PieceOutput) else output.log_probs(states)


def check_teacher(teacher: Bundle, student: Bundle, output: str | None, name: str) -> None:
    """Refuse a teacher that the student cannot learn from: without `output`, of another vocabulary, or smaller."""
    if output is not None:
        check_predicts(teacher, output, name)
    theirs, mine = teacher.tokenizer, student.tokenizer
    if theirs is not None and mine is not None and theirs.fingerprint != mine.fingerprint:
        raise OptionError(
            f"The teacher {name} has another vocabulary ({theirs.n_pieces:,} pieces) than the student "
            f"({mine.n_pieces:,}), so that their pieces do not stand for the same. Take a student with the teacher's "
            "tokenizer, and texts or a corpus of that tokenizer."
        )
    check_size(teacher.config, student.config, name)


def check_predicts(teacher: Bundle, output: str, name: str) -> None:
    """Refuse a teacher that predicts no pieces."""
    if output not in teacher.outputs:
        raise OptionError(
            f"The teacher {name} has no output {output!r} (it has: {', '.join(teacher.outputs) or 'none'}), so it "
            "predicts no pieces that a student could learn from. Take a model that was saved with its language "
            "model, or learn from its states alone (--objective soft_weight=0)."
        )


def check_size(teacher: EncoderConfig, student: EncoderConfig, name: str) -> None:
    """Refuse a student that is larger than its teacher."""
    sizes = (("layers", student.depth, teacher.depth), ("wide", max(student.widths), max(teacher.widths)))
    for unit, mine, theirs in sizes:
        if mine > theirs:
            raise OptionError(
                f"The student would be larger than its teacher: {mine} {unit} against the {theirs} of {name}. Take a "
                "student with at most as many layers, and at most as wide; a larger model is pretrained by itself."
            )

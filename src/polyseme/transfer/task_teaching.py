"""A task model as a teacher: the student that reads as it does, and the loss that brings the two together.

The teacher runs beside the student in every step, over the same rows, and its head's scores are the student's targets:
distributions at a temperature, numbers, or tags by word, as each head says (`Head.soft_loss`). What else is compared
(`match`) are states of the layers (Jiao et al. 2020, TinyBERT) or relations between the queries, keys and values of the
last layer (Wang et al. 2021, MiniLM).

Shapes: R rows, T pieces, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.embedding.layer_selection import parse_layers
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_layer import TransformerLayer
from polyseme.errors import OptionError
from polyseme.heads.head import N_VECTORS
from polyseme.options import check_choice
from polyseme.parts.distillation_losses import relation_losses, square_losses
from polyseme.tasks.kinds import build_head
from polyseme.transfer.task_model import TaskModel, pooler_of
from polyseme.transfer.train_step import can_record
from polyseme.transfer.unit_batches import TaskBatch
from polyseme.types import States

Match = Literal["states", "relations"]
LAYERS_OF_ANY = ("-1", "mix")
"""Choices of layers that mean the same in a model with fewer layers."""


@dataclass(frozen=True, kw_only=True)
class TaskTeaching:
    """A teacher, and how its student learns."""

    teacher: TaskModel = field(repr=False, compare=False)
    name: str
    """The teacher's folder."""
    temperature: float = 2.0
    gold_weight: float = 0.5
    """Of the loss on gold labels; that of the teacher's scores is the rest of 1."""
    match: str | None = None
    match_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.match is not None:
            check_choice("match", self.match, get_args(Match))
        if not self.temperature > 0:
            raise OptionError(f"The temperature must be above 0. Got {self.temperature} instead.")
        if not 0 <= self.gold_weight < 1:
            raise OptionError(
                f"The gold_weight must be from 0 to below 1, or nothing is learned from the teacher. Got "
                f"{self.gold_weight} instead."
            )
        if not self.match_weight > 0:
            raise OptionError(f"The match_weight must be above 0. Got {self.match_weight} instead.")
        teacher = self.teacher
        if teacher.bundle is None or teacher.inputs is not None or len(teacher.stacked):
            raise OptionError(
                f"The teacher {self.name} reads other inputs beside its encoder, or has none, so no student reads as "
                "it does. Take a task model of one encoder."
            )
        if teacher.config.writes or teacher.runs_decoder:
            raise OptionError(
                f"The teacher {self.name} reads or writes with a decoder. Take a task model of one stack."
            )
        teacher.eval().requires_grad_(False)

    @property
    def bundle(self) -> Bundle:
        """The teacher's."""
        return cast(Bundle, self.teacher.bundle)

    @property
    def can_record(self) -> bool:
        """Whether the teacher's part of a step can be recorded."""
        return can_record(self.teacher)

    # --- the student --------------------------------------------------------------------------------------------------

    def new_student(self, bundle: Bundle) -> TaskModel:
        """A student around a bundle, which is taken over: it reads as the teacher does, with a head like the teacher's.

        Where the head fits, it begins with the teacher's weights; else they are drawn from torch's present seed.
        """
        teacher, read = self.teacher, bundle.config
        no_pooler = teacher.config.readout == "pooled" and pooler_of(bundle) is None
        config = teacher.config.replace(
            frozen=False,
            layer=teacher.config.layer if teacher.config.layer in LAYERS_OF_ANY else "-1",
            readout="first" if no_pooler else teacher.config.readout,
            max_pieces=min(teacher.config.max_pieces, read.window or teacher.config.max_pieces),
            chunk_length=None,
        )
        width = parse_layers(config.layer, read).width(read)
        head = teacher.head.config.replace(
            width=width, whole_width=width * N_VECTORS.get(config.readout, 1) if config.whole else None
        )
        student = TaskModel(bundle, config, build_head(head))
        if head == teacher.head.config:
            student.head.load_state_dict(teacher.head.state_dict())
        mine, theirs = read.widths[-1], self.bundle.config.widths[-1]
        if self.match is not None:
            self._check_match(bundle)
        if self.match == "states" and mine != theirs:
            student.maps = nn.Linear(mine, theirs)
        return student

    def _check_match(self, bundle: Bundle) -> None:
        for each, role in ((self.bundle, "teacher"), (bundle, "student")):
            if self.match == "relations" and not isinstance(each.encoder, Transformer):
                raise OptionError(
                    f"Relations are between queries, keys and values, and the {role} is no Transformer. Take "
                    "--match states, or leave it out."
                )
            if len(set(each.config.widths)) > 1:
                raise OptionError(
                    f"The layers of the {role} differ in width, so they cannot be matched. Leave out --match."
                )
        if self.teacher.config.chunk_length is not None:
            raise OptionError(
                "The teacher reads texts in chunks, so that its states cannot be matched. Leave out match."
            )

    # --- the loss -----------------------------------------------------------------------------------------------------

    def loss_of(self, student: TaskModel) -> Callable[[TaskBatch], Tensor]:
        """What a step of this student minimizes."""

        def loss(batch: TaskBatch) -> Tensor:
            with torch.no_grad(), _watch(self.teacher, self.match is not None) as theirs:
                taught = self.teacher.head.teaching_scores(self.teacher.features(batch))
            with _watch(student, self.match is not None) as mine:
                features = student.features(batch)
            total = (1 - self.gold_weight) * student.head.soft_loss(features, taught, self.temperature)
            if self.gold_weight and batch.gold is not None:
                total = total + self.gold_weight * student.head.mean_loss(features, batch.gold)
            if self.match is not None:
                compare = self.states_loss if self.match == "states" else self.relations_loss
                losses = [compare(student, *pair) for pair in zip(mine, theirs, strict=True)]
                total = total + self.match_weight * torch.stack(losses).mean()
            return total

        return loss

    def states_loss(self, student: TaskModel, mine: States, theirs: States) -> Tensor:
        """The mean squared difference of the student's layers, the token layer first, from evenly spread layers of the
        teacher's, top from top.
        """
        losses = []
        for layer in range(mine.depth + 1):
            states = mine[layer] if student.maps is None else student.maps(mine[layer])
            losses.append(square_losses(states, theirs[matched_layer(layer, mine.depth, theirs.depth)]))
        return _mean(torch.stack(losses).mean(dim=0), mine)

    def relations_loss(self, student: TaskModel, mine: States, theirs: States) -> Tensor:
        """MiniLM's, of the last layer of both; in as many heads as the teacher has, where these divide both widths."""
        projected, heads = [], []
        for model, states in ((student, mine), (self.teacher, theirs)):
            encoder = cast(Transformer, cast(Bundle, model.bundle).encoder)
            top = cast(TransformerLayer, encoder.layers[encoder.config.weight_sets[-1]])
            projected.append(top.queries_keys_values(states[-2]))
            heads.append(top.attention.n_heads)
        widths = [each[0].shape[-1] for each in projected]
        n_heads = heads[1] if all(width % heads[1] == 0 for width in widths) else math.gcd(*heads)
        return _mean(relation_losses(projected[0], projected[1], n_heads, _real(mine)), mine)


def matched_layer(layer: int, depth: int, teacher_depth: int) -> int:
    """The layer of the teacher that a layer of the student is compared with.

    >>> [matched_layer(layer, 4, 12) for layer in range(5)], [matched_layer(layer, 2, 3) for layer in range(3)]
    ([0, 3, 6, 9, 12], [0, 2, 3])
    """
    return (2 * layer * teacher_depth + depth) // (2 * depth)


@contextmanager
def _watch(model: TaskModel, watch: bool) -> Iterator[list[States]]:
    """The states of all layers that a model computes in here."""
    states: list[States] = []
    model.on_states = states.append if watch else None
    try:
        yield states
    finally:
        model.on_states = None


def _real(states: States) -> Tensor | None:
    """[R, T]: which pieces are no padding; None: all."""
    if states.lengths is None:
        return None
    return torch.arange(states[-1].shape[1], device=states.lengths.device) < states.lengths[:, None]


def _mean(losses: Tensor, states: States) -> Tensor:
    """The mean over pieces that are no padding."""
    real = _real(states)
    return losses.mean() if real is None else (losses * real).sum() / real.sum()

"""What a model is pruned by: losses on held-out data, by which heads are judged, and the figures that are to stay high.

A task model has its own loss and metrics; a pretrained model predicts pieces of texts. Both are computed for any bundle
of the same tokenizer: the whole one, one with gates, one without some heads.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.cost import Tally, forward_flops
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.heads.text_head import TextHead
from polyseme.metrics.task_metrics import measure
from polyseme.objectives.causal import Causal
from polyseme.objectives.denoising import Denoising
from polyseme.objectives.masked import Masked
from polyseme.objectives.objective import BaseObjective
from polyseme.objectives.objective_table import check_needs
from polyseme.objectives.permuted import Permuted
from polyseme.objectives.spans import Spans
from polyseme.pruning.head_removal import Part, attentions_of
from polyseme.pruning.text_rows import RowBatch
from polyseme.tasks.items import Item
from polyseme.tasks.kinds import KINDS
from polyseme.transfer.predict_files import Predictor
from polyseme.transfer.prepare_items import prepare
from polyseme.transfer.task_model import TaskModel
from polyseme.transfer.text_labels import writer_of
from polyseme.transfer.unit_batches import Source, by_length

BATCH_PIECES = {"cuda": 16384, "cpu": 4096}
"""Padded pieces whose gradients are computed together."""


class SummedLoss(NamedTuple):
    """The losses of a batch, summed."""

    total: Tensor
    n_examples: int
    n_targets: float
    """Labels or pieces that are predicted."""
    groups: Tensor | None = None
    """[R]: the example that each row is of; None: rows are examples."""


class Subject(Protocol):
    """A model's data and measures."""

    metric: str
    """The figure that the curve shows."""
    higher_is_better: bool
    tally: Tally

    @property
    def parts(self) -> Sequence[Part]:
        """The parts of the model that run, and whose heads can be judged."""

    @property
    def description(self) -> str:
        """What figures are of, in words."""

    def batches(self, split: str) -> Sequence[Any]:
        """`dev` or `train`, in batches that `loss` takes."""

    def loss(self, bundle: Bundle, batch: Any) -> SummedLoss:
        """The loss of a model on a batch, without dropout."""

    def figures(self, bundle: Bundle) -> Mapping[str, float]:
        """What a model scores."""


@dataclass
class TaskSubject:
    """A task model, by its head's loss and its task's metrics."""

    model: TaskModel
    items: Mapping[str, Sequence[Item]]
    """Those of `dev`, and perhaps of `test` and `train`."""
    metrics: Sequence[str]
    tally: Tally = field(default_factory=Tally)
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        model = self.model
        if model.bundle is not None:
            attentions_of(model.bundle)
        maker = model.row_maker
        if model.config.frozen and model.config.separate_rows and maker is not None and maker.frames_pairs:
            raise OptionError(
                "The head reads two texts separately over a frozen encoder, for which there are no gradients of heads. "
                "Prune the model that it was fitted to, and fit a head to the pruned one."
            )
        self.metric = self.metrics[0]

    @property
    def parts(self) -> Sequence[Part]:
        return ("encoder", "decoder", "cross") if self.model.runs_decoder else ("encoder",)

    @property
    def description(self) -> str:
        split = "test" if "test" in self.items else "dev"
        return f"{self.metric} on {len(self.items[split]):,} items of {split}"

    def batches(self, split: str) -> Sequence[tuple[Source, Sequence[int]]]:
        with self._with_gradients():
            source = prepare(self.model, self.items[split], learning=True).source
        budget = BATCH_PIECES.get(self.model.device.type, 4096)
        return [(source, numbers.tolist()) for numbers in by_length(source.lengths, budget, most=64)]

    def loss(self, bundle: Bundle, batch: tuple[Source, Sequence[int]]) -> SummedLoss:
        source, numbers = batch
        units = source.batch(numbers).to(self.model.device)
        with self._with_gradients(), self._with_encoder(bundle):
            self.model.eval()
            assert units.gold is not None
            head = self.model.head
            total, n_gold = head.loss(self.model.features(units), units.gold).sum(), head.n_gold(units.gold).sum()
            lengths = [len(row.text) for number in numbers for row in source.units[number].rows]
            self.tally.pieces += units.n_pieces
            self.tally.flops += 3 * self.model.forward_flops(lengths, learning=True)
        return SummedLoss(total, len(numbers), max(float(n_gold), 1.0), units.groups)

    def figures(self, bundle: Bundle) -> Mapping[str, float]:
        items = self.items.get("test", self.items["dev"])
        head = self.model.head.config
        with self._with_encoder(bundle):
            answers = [each.label for each in Predictor(self.model, tally=self.tally).in_chunks(items)]
        golds = [KINDS[head.kind].comparable_gold(head, item) for item in items]
        return measure(tuple(self.metrics), golds, answers, labels=head.labels)

    @contextlib.contextmanager
    def _with_encoder(self, bundle: Bundle) -> Iterator[None]:
        """The task model with another encoder."""
        model, own = self.model, self.model.bundle
        assert own is not None
        try:
            self._put(bundle)
            yield
        finally:
            model.bundle = own
            self._put(own)

    def _put(self, bundle: Bundle) -> None:
        self.model.bundle = bundle
        if isinstance(self.model.head, TextHead):
            self.model.head.writer = writer_of(bundle)

    @contextlib.contextmanager
    def _with_gradients(self) -> Iterator[None]:
        """The task model reading rows with gradients, where its encoder is frozen."""
        config = self.model.config
        try:
            self.model.config = config.replace(frozen=False)
            yield
        finally:
            self.model.config = config


@dataclass
class TextSubject:
    """A pretrained model, by how well it predicts the pieces of texts."""

    bundle: Bundle
    rows: Mapping[str, Sequence[RowBatch]]
    """Those of `dev`, and perhaps of `test` and `train`."""
    objective: BaseObjective
    tally: Tally = field(default_factory=Tally)
    metric: str = "loss"
    higher_is_better: bool = False

    @property
    def parts(self) -> Sequence[Part]:
        return ("encoder",) if self.bundle.decoder is None else ("encoder", "decoder", "cross")

    @property
    def description(self) -> str:
        split = "test" if "test" in self.rows else "dev"
        n_rows = sum(len(each) for each in self.rows[split])
        return f"loss per predicted piece ({self.objective.name}) on {n_rows:,} rows of {split}"

    def batches(self, split: str) -> Sequence[RowBatch]:
        return self.rows[split]

    def loss(self, bundle: Bundle, batch: RowBatch) -> SummedLoss:
        arrays = {name: torch.from_numpy(each).to(bundle.device) for name, each in batch.example.arrays.items()}
        parts, _ = self.objective.nets(bundle).eval()(arrays, None)
        n_rows, length = batch.shape
        self.tally.pieces += n_rows * length
        self.tally.flops += 3 * forward_flops(bundle.config, [length] * n_rows)
        return SummedLoss(parts[self.objective.name], n_rows, batch.example.counts[self.objective.name])

    @torch.no_grad()
    def figures(self, bundle: Bundle) -> Mapping[str, float]:
        batches = self.rows.get("test", self.rows["dev"])
        losses = [self.loss(bundle, batch) for batch in batches]
        loss = sum(float(each.total) for each in losses) / sum(each.n_targets for each in losses)
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}


def objective_of(bundle: Bundle) -> BaseObjective:
    """How a pretrained model predicts pieces of plain text; refused where it does not."""
    attentions_of(bundle)
    tokenizer = bundle.text_tokenizer
    refusals: list[str] = []
    for objective in (Masked(), Causal(), Permuted(memory=False), Spans(), Denoising(permute=False)):
        needs = objective.needs
        fits = set(needs.outputs) <= set(bundle.outputs) and bundle.config.direction in needs.directions
        if fits and needs.two_stacks == (bundle.decoder is not None):
            bound: BaseObjective = objective.for_tokenizer(tokenizer)
            try:
                check_needs(bound, bundle, tokenizer)
            except OptionError as error:
                refusals.append(str(error))
            else:
                return bound
    reason = refusals[0] if refusals else f"It has {', '.join(bundle.outputs) or 'no'} output."
    raise ModelError(
        f"The model does not predict the pieces of plain text, so there is no loss by which its heads could be judged. "
        f"{reason} Fit it to a task (polyseme finetune), and prune the task model."
    )


def check_labels(model: TaskModel, items: Sequence[Item], where: str) -> None:
    """Refuse data without labels, or with one that the model does not know."""
    if not items:
        raise InputError(f"{where} has no labels, so there is nothing to judge heads by.")
    known = set(model.head.config.labels)
    for item in items if known else ():
        for label in item.gold if isinstance(item.gold, tuple) else (item.gold,):
            if label not in known:
                names = ", ".join(map(repr, sorted(known)[:5]))
                raise InputError(
                    f"{item.place or where}: the label {label!r} is none of the model's ({names}"
                    f"{' …' if len(known) > 5 else ''}). Take data of the task that the model was fitted to."
                )


def finite(figures: Mapping[str, float]) -> dict[str, float]:
    """Figures as plain numbers."""
    return {name: float(value) for name, value in figures.items() if np.isfinite(value)}

"""Masked language modeling (Devlin et al. 2018): some pieces are masked, and predicted from all the others.

Masked are pieces, whole words, or spans of words (SpanBERT); newly each time a row is seen (RoBERTa's dynamic masking),
or in one of a few copies that are fixed for a row (BERT's static masking). Rows are packed, or have one of RoBERTa's
four formats. In those of pairs the model may also predict whether the second part follows the first (BERT's next
sentence), or whether both have changed places (ALBERT's sentence order).

Shapes: R rows, T pieces of a row, K targets of a row, P pairs of a row, D width.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.bundle import NEXT_OBJECTIVE, Bundle
from polyseme.corpus.layout import Layout
from polyseme.corpus.packed_rows import Packed
from polyseme.corpus.random_keys import row_keys, uniform
from polyseme.corpus.sentence_pair_rows import SentencePairs
from polyseme.corpus.whole_sentence_rows import WholeSentences
from polyseme.cost import forward_flops
from polyseme.errors import OptionError, nearest
from polyseme.objectives.objective import (
    Arrays,
    BaseObjective,
    Nets,
    Parts,
    batch_of,
    output_flops,
    pick,
    shared_arrays,
)
from polyseme.objectives.span_boundary import boundary_arrays, boundary_loss, new_boundary_output
from polyseme.objectives.target_selection import choose_pieces, choose_spans, choose_words, count_targets, most
from polyseme.outputs.boundary import BoundaryOutput
from polyseme.outputs.output import Output
from polyseme.parts.memory_and_cache import Memory
from polyseme.types import Example, Needs, Rows

OF_PAIRS = ("segment-pair", "sentence-pair")
LAYOUTS = (*OF_PAIRS, "full-sentences", "doc-sentences")


@dataclass(frozen=True, kw_only=True)
class WithMaskRate(BaseObjective, ABC):
    """An objective that chooses a share of each row's pieces, which may change in the course of a run."""

    mask_rate: float = 0.15
    """The share of a row's ordinary pieces that is chosen."""
    final_mask_rate: float | None = None
    """What the rate falls (or rises) to in a straight line over the run, and what is evaluated with; None: it stays."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for rate in (self.rate_at(0.0), self.rate_at(1.0)):
            check_rate(rate)

    def rate_at(self, progress: float) -> float:
        """The mask rate when so much of the run is done, 0 to 1."""
        final = self.mask_rate if self.final_mask_rate is None else self.final_mask_rate
        return (1 - progress) * self.mask_rate + progress * final

    @property
    def largest_rate(self) -> float:
        """What the number of slots for targets follows from, so that it is the same in every step."""
        return max(self.rate_at(0.0), self.rate_at(1.0))


@dataclass(frozen=True, kw_only=True)
class Masked(WithMaskRate):
    """Of the pieces chosen most become the mask, some a random piece, and the rest stay; all of them are targets."""

    name: ClassVar[str] = "masked"

    mask_share: float = 0.8
    random_share: float = 0.1
    unit: Literal["piece", "word", "span"] = "piece"
    """What is chosen as a whole. Of a span, all pieces are treated alike; of a word, each by itself."""
    span_shape: float = 0.2
    """Of the geometric distribution of spans' lengths in words."""
    longest_span: int = 10
    boundary: bool = False
    """Whether each piece of a span is also predicted from the boundaries of the span (SpanBERT)."""
    static_copies: int | None = None
    """None: masks are drawn each time; k: a row comes in one of k copies, which follow from its content."""
    next: Literal["nsp", "sop"] | None = None
    """A second part of the loss, over rows of pairs: nsp, whether the second part follows the first or is random text;
    sop, whether both are in order or have changed places."""
    layout: Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"] | None = None
    """RoBERTa's formats of rows; None: packed rows, and with `next` pairs of segments."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.mask_share, self.random_share) < 0 or self.mask_share + self.random_share > 1 + 1e-9:
            raise OptionError(
                "Of the pieces chosen, the shares that become the mask and a random piece must be 0 to 1 together. "
                f"Got mask_share {self.mask_share} and random_share {self.random_share} instead."
            )
        if self.unit not in ("piece", "word", "span"):
            raise OptionError(f"The unit of masking must be piece, word or span. Got {self.unit!r} instead.")
        if not 0 < self.span_shape <= 1 or self.longest_span < 1:
            raise OptionError(
                "Spans need a span_shape over 0 and up to 1, and a longest_span of at least 1. "
                f"Got {self.span_shape} and {self.longest_span} instead."
            )
        if self.boundary and self.unit != "span":
            raise OptionError(
                f"The boundary objective is of spans, and the unit of masking is {self.unit!r}. Choose unit=span, or "
                "leave out boundary=true."
            )
        if self.static_copies is not None and self.static_copies < 1:
            raise OptionError(f"static_copies must be at least 1, or None. Got {self.static_copies} instead.")
        if self.next not in (None, "nsp", "sop"):
            raise OptionError(
                "The setting next must be nsp (next sentence), sop (sentence order), or left out. "
                f"Got {self.next!r} instead."
            )
        if self.layout is not None and self.layout not in LAYOUTS:
            raise OptionError(f"There is no layout {self.layout!r}. {nearest(self.layout, LAYOUTS)}")
        if self.next is not None and self.layout is not None and self.layout not in OF_PAIRS:
            raise OptionError(
                f"The part next={self.next} of the loss judges pairs, and rows of the layout {self.layout!r} are of "
                f"one segment. Choose {' or '.join(OF_PAIRS)}, or leave next out (next=null)."
            )

    @property
    def needs(self) -> Needs:
        outputs = ("masked",) if self.next is None else ("masked", "pooled", "next")
        return Needs(directions=("both",), outputs=outputs, layout=self._layout)

    @property
    def _layout(self) -> Layout:
        static = self.static_copies is not None
        if self.layout in ("full-sentences", "doc-sentences"):
            return WholeSentences(across_documents=self.layout == "full-sentences")
        if self.layout is None and self.next is None:
            return Packed(same_cuts=static)
        return SentencePairs(
            same_cuts=static,
            unit="sentence" if self.layout == "sentence-pair" else "segment",
            others="swapped" if self.next == "sop" else "random",
        )

    def refuse(self, bundle: Bundle) -> None:
        """Pairs whose parts have segments of their own need a model that has two."""
        n_segments = getattr(bundle.config, "n_segments", 0)
        tokenizer = bundle.tokenizer
        if tokenizer is None or not n_segments or not isinstance(self._layout, SentencePairs):
            return
        one = np.zeros(1, np.int64)
        n_needed = int(tokenizer.frame(one, one).segments.max()) + 1
        if n_segments < n_needed:
            raise OptionError(
                f"Rows of pairs have {n_needed} segments with this tokenizer, and the model has {n_segments} "
                "(n_segments). Give it as many, or choose another layout."
            )

    @property
    def weights(self) -> Mapping[str, float]:
        chosen = {"boundary": self.boundary, "next": self.next is not None}
        return {"masked": 1.0, **{name: 1.0 for name, is_chosen in chosen.items() if is_chosen}}

    @property
    def prediction_parts(self) -> tuple[str, ...]:
        return ("masked",)

    def label_entropies(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        return {} if self.next is None else {"next": math.log(2)}

    def corrupt(self, rows: Rows) -> Example:
        keys = rows.keys if self.static_copies is None else static_keys(rows, self.static_copies)
        allowed = ~rows.special
        n_targets = count_targets(allowed, self.rate_at(rows.progress))
        width = most(allowed.shape[1], self.largest_rate)
        boundaries: dict[str, NDArray[np.generic]] = {}
        if self.unit == "span":
            chosen, group = choose_spans(
                allowed, rows.starts, n_targets, keys, shape=self.span_shape, longest=self.longest_span
            )
            places, real = places_of(chosen, width)
            spans = np.take_along_axis(group, places, axis=1)
            treatment = np.take_along_axis(uniform(keys, "treatment", allowed.shape[1]), spans, axis=1)
            if self.boundary:
                boundaries = boundary_arrays(places, real, spans, allowed.shape[1])
        else:
            if self.unit == "word":
                chosen = choose_words(allowed, rows.starts, n_targets, keys)
            else:
                chosen = choose_pieces(allowed, n_targets, keys)
            places, real = places_of(chosen, width)
            treatment = uniform(keys, "treatment", width)
        arrays = {
            **shared_arrays(rows, self._treat(rows.pieces, places, real, treatment, keys)),
            **target_arrays(rows.pieces, places, real),
            **boundaries,
        }
        counts = {"masked": float(real.sum())}
        if self.boundary:
            counts["boundary"] = float(boundaries["boundary_weights"].sum())
        if self.next is not None:
            if rows.next_labels is None or rows.next_places is None:
                raise ValueError("Next-sentence prediction needs rows that tell whether their segments follow.")
            is_pair = rows.next_labels >= 0
            arrays["next_labels"] = np.maximum(rows.next_labels, 0).astype(np.int32)
            arrays["next_places"] = rows.next_places.astype(np.int32)
            arrays["next_weights"] = is_pair.astype(np.float32)
            counts["next"] = float(is_pair.sum())
        return Example(arrays, counts)

    def _treat(
        self,
        pieces: NDArray[np.int64],
        places: NDArray[np.int64],
        real: NDArray[np.bool_],
        treatment: NDArray[np.float64],
        keys: NDArray[np.uint64],
    ) -> NDArray[np.int64]:
        """The rows with masks and random pieces put in."""
        ordinary = self.vocabulary.ordinary
        drawn = ordinary[(uniform(keys, "random pieces", places.shape[1]) * len(ordinary)).astype(np.int64)]
        instead = np.where(treatment < self.mask_share, self.vocabulary.mask, drawn)
        changed = real & (treatment < self.mask_share + self.random_share)
        treated: NDArray[np.int64] = pieces.copy()
        at, slot = np.nonzero(changed)
        treated[at, places[at, slot]] = instead[at, slot]
        return treated

    def nets(self, bundle: Bundle) -> nn.Module:
        boundary = new_boundary_output(bundle) if self.boundary else None
        return MaskedNets(bundle, boundary) if self.next is None else MaskedAndNextNets(bundle, boundary)

    def result(self, nets: nn.Module) -> dict[str, Bundle]:
        results = super().result(nets)
        foreign = results["model"].foreign
        foreign.pop(NEXT_OBJECTIVE, None)
        if self.next is not None:
            foreign[NEXT_OBJECTIVE] = self.next
        return results

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        nets = cast(MaskedNets, nets)
        forward = forward_flops(nets.encoder.config, [length] * n_rows)
        for output in (nets.output, nets.boundary) if self.boundary else (nets.output,):
            forward += output_flops(cast(nn.Module, output), n_rows * most(length, self.rate_at(0.5)))
        if isinstance(nets, MaskedAndNextNets):
            forward += output_flops(nets.pooled, n_rows) + output_flops(nets.next, n_rows)
        return 3.0 * forward


class MaskedNets(Nets):
    """Encoder and output; only the targets' states reach the vocabulary. The boundary output is left behind."""

    def __init__(self, bundle: Bundle, boundary: BoundaryOutput | None = None) -> None:
        super().__init__(bundle, "masked")
        self.boundary = boundary

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: pieces [R, T], and places, targets and weights [R, K]."""
        states = self.encoder(batch_of(arrays, arrays["pieces"].long()), layers=[-1], memory=memory)
        return self.losses(states[-1], arrays), states.memory

    def losses(self, states: Tensor, arrays: Arrays) -> dict[str, Tensor]:
        """The parts of the loss, from the states of all pieces [R, T, D]."""
        losses = self.output.loss(pick(states, arrays["places"].long()), arrays["targets"].long().flatten())
        parts = {"masked": (losses * arrays["weights"].flatten()).sum()}
        if self.boundary is not None:
            parts["boundary"] = boundary_loss(self.boundary, states, arrays)
        return parts


class MaskedAndNextNets(MaskedNets):
    """Also the pooled state of each pair's first piece, which predicts whether the second segment follows the first."""

    def __init__(self, bundle: Bundle, boundary: BoundaryOutput | None = None) -> None:
        super().__init__(bundle, boundary)
        self.pooled = bundle.outputs["pooled"]
        self.next = cast(Output, bundle.outputs["next"])

    def losses(self, states: Tensor, arrays: Arrays) -> dict[str, Tensor]:
        """`arrays` also has next_labels, next_places and next_weights [R, P]."""
        pooled = self.pooled(pick(states, arrays["next_places"].long()))
        losses = self.next.loss(pooled, arrays["next_labels"].long().flatten())
        return {**super().losses(states, arrays), "next": (losses * arrays["next_weights"].flatten()).sum()}


def check_rate(rate: float) -> None:
    """Refuse a share of pieces that cannot be chosen."""
    if not 0 < rate <= 1:
        raise OptionError(f"The mask_rate, the share of pieces that is chosen, must be over 0 and up to 1. Got {rate}.")


def static_keys(rows: Rows, copies: int) -> NDArray[np.uint64]:
    """Random keys that follow from the content of a row, and from which of its copies is seen this time."""
    copy = (uniform(rows.keys, "copy", 1)[:, 0] * copies).astype(np.int64)
    powers = np.cumprod(np.full(rows.pieces.shape[1], 0x9E3779B97F4A7C15, dtype=np.uint64))
    content = ((rows.pieces.astype(np.uint64) + np.uint64(1)) * powers).sum(axis=1, dtype=np.uint64)
    return row_keys(0, copy, content.view(np.int64))


def places_of(chosen: NDArray[np.bool_], width: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The chosen places of each row in order, [R, width], and which of these are real; the rest is place 0."""
    counts = chosen.sum(axis=1)
    real = np.arange(width)[None] < counts[:, None]
    places = np.zeros(real.shape, dtype=np.int64)
    places[real] = np.nonzero(chosen)[1]
    return places, real


def target_arrays(
    pieces: NDArray[np.int64], places: NDArray[np.int64], real: NDArray[np.bool_]
) -> dict[str, NDArray[np.generic]]:
    """The places of the targets, what they are, and how much each counts: 1, or 0 where there is none."""
    return {
        "places": places.astype(np.int32),
        "targets": np.take_along_axis(pieces, places, axis=1).astype(np.int32),
        "weights": real.astype(np.float32),
    }

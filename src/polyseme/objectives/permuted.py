"""Permutation language modeling (XLNet; Yang et al. 2019): pieces are predicted in a random order.

A piece that was predicted is seen by those that come later in the order, so targets are not predicted independently of
each other, as masked ones are. A second stream predicts it, which knows its place but not the piece itself.
Only the last pieces of an order, one in six, are targets: the first ones have too little to go by.

Which pieces these are is drawn as in the original program: a row is cut into windows, each `one_in` times as long as a
span that is drawn for it, the span lies anywhere in its window, and random pieces make the number of targets exact.
Unlike there, the row is then turned by a random number of places: its end would have fewer targets. What is no target
sees all others that are none.

Shapes: R rows, T pieces of a row, K targets of a row, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
from torch import nn

from polyseme.bundle import Bundle
from polyseme.corpus.layout import Layout
from polyseme.corpus.packed_rows import Packed
from polyseme.corpus.random_keys import Bools, Ints, Keys, uniform
from polyseme.corpus.stream_rows import Streams
from polyseme.cost import forward_flops
from polyseme.errors import OptionError
from polyseme.objectives.masked import places_of, target_arrays
from polyseme.objectives.objective import Arrays, BaseObjective, Nets, Parts, memory_flops, output_flops
from polyseme.objectives.target_selection import LAST, choose_pieces, count_targets, most
from polyseme.parts.masks import FactorizationOrder
from polyseme.parts.memory_and_cache import Memory
from polyseme.types import Batch, Example, Needs, Rows


@dataclass(frozen=True, kw_only=True)
class Permuted(BaseObjective):
    """Targets in a random order, each predicted from what is no target and from the targets before it."""

    name: ClassVar[str] = "permuted"

    one_in: int = 6
    """One in so many pieces is a target (the paper's K)."""
    unit: Literal["span", "piece"] = "span"
    longest_span: int = 5
    memory: bool = False
    """Whether rows are of streams, and see what was read before them; else they are packed, each by itself."""

    def __post_init__(self) -> None:
        if self.one_in < 1 or self.longest_span < 1:
            raise OptionError(
                f"one_in and longest_span must be at least 1. Got {self.one_in} and {self.longest_span} instead."
            )
        if self.unit not in ("span", "piece"):
            raise OptionError(f"The unit of targets must be span or piece. Got {self.unit!r} instead.")

    @property
    def needs(self) -> Needs:
        layout: Layout = Streams(ahead=0) if self.memory else Packed(separates_documents=False)
        return Needs(directions=("any-order",), outputs=("permuted",), layout=layout)

    def refuse(self, bundle: Bundle) -> None:
        if self.memory and bundle.config.memory_length is None:
            raise OptionError(
                "The objective 'permuted' is to carry a memory, and the encoder would keep all that was ever read. Set "
                "how much it keeps ('memory_length')."
            )

    def corrupt(self, rows: Rows) -> Example:
        allowed = ~rows.special
        width, n_chosen = most(allowed.shape[1], 1 / self.one_in), count_targets(allowed, 1 / self.one_in)
        if self.unit == "span":
            in_spans = choose_in_windows(allowed.shape, self.one_in, self.longest_span, rows.keys)
            chosen = with_number(allowed & turned(in_spans, rows.keys), allowed, n_chosen, rows.keys)
        else:
            chosen = choose_pieces(allowed, n_chosen, rows.keys)
        places, real = places_of(chosen, width)
        arrays = {
            "pieces": rows.pieces.astype(np.int32),
            "segments": self._segments(rows.pieces.shape).astype(np.int32),
            "ranks": turns(chosen, rows.keys).astype(np.int32),
            **target_arrays(rows.pieces, places, real),
        }
        arrays["places"] = np.where(real, places, -1).astype(np.int32)
        return Example(arrays, {self.name: float(real.sum())})

    def _segments(self, shape: tuple[int, ...]) -> Ints:
        """Rows of streams have no frame."""
        segments = np.zeros(shape, np.int64)
        if not self.memory:
            before, after = self.vocabulary.before, self.vocabulary.after
            segments[:, : len(before)] = before
            segments[:, shape[1] - len(after) :] = after
        return segments

    def nets(self, bundle: Bundle) -> nn.Module:
        return PermutedNets(bundle, self.name)

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        """Both streams; targets make no keys of their own. The terms of distances are not counted."""
        nets = cast(PermutedNets, nets)
        config, width = nets.encoder.config, most(length, 1 / self.one_in)
        forward = forward_flops(config, [length] * n_rows)
        made_by_content = 4.0 * config.widths[-1] * config.attention_widths
        queries = 2.0 * config.matrix_weights - made_by_content + 4.0 * length * config.attention_widths
        forward += n_rows * width * queries
        if self.memory:
            forward += n_rows * memory_flops(config, length + width)
        return 3.0 * (forward + output_flops(nets.output, n_rows * width))


class PermutedNets(Nets):
    """Encoder and output; only the second stream reaches the vocabulary."""

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: pieces, segments and ranks [R, T]; places (-1 where there is none), targets and weights [R, K]."""
        batch = Batch(
            arrays["pieces"].long(),
            segments=arrays["segments"].long(),
            mask=FactorizationOrder(arrays["ranks"].long()),
            targets=arrays["places"].long(),
        )
        states = self.encoder(batch, layers=[-1], memory=memory)
        queries = states.queries[states.depth].flatten(0, 1)
        losses = self.output.loss(queries, arrays["targets"].long().flatten())
        return {"permuted": (losses * arrays["weights"].flatten()).sum()}, states.memory


def choose_in_windows(shape: tuple[int, ...], one_in: int, longest: int, keys: Keys) -> Bools:
    """[R, T]: a span in each of the windows that a row is cut into.

    A span of n pieces, 1 to `longest`, comes with a probability in proportion to 1/n, and its window has `one_in` · n.
    """
    n_windows = -(-shape[1] // one_in)
    weights = np.cumsum(1 / np.arange(1, longest + 1))
    lengths = 1 + np.searchsorted(weights[:-1] / weights[-1], uniform(keys, "span lengths", n_windows), side="right")
    ends = np.cumsum(one_in * lengths, axis=1)
    within = uniform(keys, "span places", n_windows) * (one_in * lengths - lengths + 1)
    begins = ends - one_in * lengths + within.astype(np.int64)
    edges = np.zeros((shape[0], shape[1] + 1), np.int64)
    rows = np.broadcast_to(np.arange(shape[0])[:, None], begins.shape)
    for places, change in ((begins, 1), (begins + lengths, -1)):
        np.add.at(edges, (rows, np.minimum(places, shape[1])), change)
    chosen: Bools = np.cumsum(edges, axis=1)[:, :-1] > 0
    return chosen


def turned(chosen: Bools, keys: Keys) -> Bools:
    """Every row turned by a random number of places, so that no place is chosen more often than another."""
    n_places = chosen.shape[1]
    by = (uniform(keys, "turn", 1) * n_places).astype(np.int64)  # [R, 1]
    return np.take_along_axis(chosen, (np.arange(n_places) + by) % n_places, axis=1)


def with_number(chosen: Bools, allowed: Bools, n_chosen: Ints, keys: Keys) -> Bools:
    """Exactly so many places [R]: random ones dropped where there are more, or added as in XLNet's own programs."""
    numbers = uniform(keys, "places", allowed.shape[1]) + np.where(chosen, 0, np.where(allowed, 1, 2))
    ranks = np.argsort(np.argsort(numbers, axis=1), axis=1)
    exact: Bools = ranks < n_chosen[:, None]
    return exact


def turns(chosen: Bools, keys: Keys) -> Ints:
    """[R, T]: the turn of each piece: 0 for all that are no targets, from 1 on in random order for those that are."""
    numbers = np.where(chosen, uniform(keys, "order", chosen.shape[1]), LAST)
    turn = np.empty(chosen.shape, np.int64)
    np.put_along_axis(turn, np.argsort(numbers, axis=1), np.arange(1, chosen.shape[1] + 1)[None], axis=1)
    return np.where(chosen, turn, 0)

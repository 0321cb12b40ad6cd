"""Span corruption (T5; Raffel et al. 2020): spans are replaced by sentinels, and the decoder writes them.

    Thank you <A> inviting me to your party <B> week. </s>      <A> for <B> last </s>

Which pieces go is drawn as T5's own program draws it: so many noise pieces and spans to a row, cut into spans and the
stretches between them at random. All rows of a length have equally many of both, so that no padding is needed; rows
are as much longer than what the encoder reads as the spans take away.

Shapes: R rows, n pieces of text, N of them noise, K spans.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import numpy as np
from torch import nn

from polyseme.bundle import Bundle
from polyseme.corpus.packed_rows import Packed
from polyseme.corpus.random_keys import Bools, Floats, Ints, Keys, uniform
from polyseme.errors import OptionError
from polyseme.objectives.objective import BaseObjective, TwoStackNets, Vocabulary, refuse_no_first, training_flops
from polyseme.types import Example, Needs, Rows, Tokenizer

_SENTINEL = re.compile(r"<extra_id_(\d+)>")


@dataclass(frozen=True, kw_only=True)
class WithSentinels(Vocabulary):
    """A vocabulary that has pieces to stand for spans."""

    sentinels: Sequence[int]
    """The one of the first span first."""


class Noise(NamedTuple):
    """How much of a stretch is taken out."""

    pieces: int
    spans: int


@dataclass(frozen=True, kw_only=True)
class Spans(BaseObjective):
    """The encoder reads what is left, with a sentinel for each span; the decoder writes sentinels and spans."""

    name: ClassVar[str] = "spans"

    corruption_rate: float = 0.15
    """The share of pieces that is taken out."""
    mean_length: float = 3.0
    """Of a span."""

    def __post_init__(self) -> None:
        if not 0 < self.corruption_rate < 1 or not self.mean_length >= 1:
            raise OptionError(
                "Spans need a corruption_rate between 0 and 1 and a mean_length of at least 1. "
                f"Got {self.corruption_rate} and {self.mean_length} instead."
            )

    @property
    def needs(self) -> Needs:
        layout = Packed(separates_documents=False)
        return Needs(directions=("both",), outputs=("causal",), layout=layout, two_stacks=True)

    def read_vocabulary(self, tokenizer: Tokenizer) -> WithSentinels:
        pieces = tokenizer.pieces(range(tokenizer.n_pieces))
        ids = {int(match[1]): id for id, piece in enumerate(pieces) if (match := _SENTINEL.fullmatch(piece))}
        return WithSentinels.of(tokenizer, sentinels=tuple(ids[n] for n in range(len(ids)) if n in ids))

    @property
    def sentinels(self) -> Sequence[int]:
        """The pieces that stand for spans, the first span's first."""
        return cast(WithSentinels, self.vocabulary).sentinels

    def refuse(self, bundle: Bundle) -> None:
        refuse_no_first(bundle, self.name, self.vocabulary)
        if not self.sentinels:
            raise OptionError(
                "The objective 'spans' needs sentinels, pieces that stand for spans (<extra_id_0>, <extra_id_1> …), "
                "and the tokenizer has none. Train one with the frame 't5', or take a T5's own."
            )
        end = self.vocabulary.specials.get("end")
        if end is None:
            raise OptionError("The objective 'spans' needs a piece that ends a text, and the tokenizer has none.")

    # --- lengths -----------------------------------------------------------------------------------------------------

    def noise(self, n_pieces: int) -> Noise:
        """How many of so many pieces are taken out, and in how many spans: T5's arithmetic."""
        taken = min(max(round(n_pieces * self.corruption_rate), 1), n_pieces - 1)
        return Noise(taken, min(max(round(taken / self.mean_length), 1), n_pieces - taken))

    def read_length(self, n_pieces: int) -> int:
        """What the encoder reads of so many pieces of text: what is left, one sentinel per span, and an end."""
        noise = self.noise(n_pieces)
        return n_pieces - noise.pieces + noise.spans + 1

    def target_length(self, n_pieces: int) -> int:
        """What the decoder writes: the spans, a sentinel before each, and an end."""
        noise = self.noise(n_pieces)
        return noise.pieces + noise.spans + 1

    def text_length(self, length: int) -> int:
        """The longest text of which the encoder reads no more than `length` pieces.

        >>> Spans().text_length(512), Spans().target_length(568)
        (568, 114)
        """
        n_pieces = max(length - 1, 2)
        while self.read_length(n_pieces + 1) <= length:
            n_pieces += 1
        return n_pieces

    def row_length(self, length: int, n_specials: int) -> int:
        n_pieces = self.text_length(length)
        noise = self.noise(n_pieces)
        if self.known_vocabulary is not None and noise.spans > len(self.sentinels):
            raise OptionError(
                f"Rows of {length:,} pieces lose {noise.spans:,} spans, and the tokenizer has only "
                f"{len(self.sentinels):,} sentinels to stand for them. Choose shorter rows (--length), longer spans "
                "(mean_length) or fewer (corruption_rate)."
            )
        return n_pieces + n_specials

    # --- corruption --------------------------------------------------------------------------------------------------

    def corrupt(self, rows: Rows) -> Example:
        before, after = len(self.vocabulary.before), len(self.vocabulary.after)
        text = rows.pieces[:, before : rows.pieces.shape[1] - after]
        noise = self.noise(text.shape[1])
        taken = noise_mask(rows.keys, text.shape[1], noise)
        sentinels = np.array(self.sentinels[: noise.spans], np.int64)
        pieces = self._append_end(_with_sentinels(text, taken, sentinels))
        targets = self._append_end(_with_sentinels(text, ~taken, sentinels))
        arrays = {"pieces": pieces.astype(np.int32), "targets": targets.astype(np.int32)}
        return Example(arrays, {self.name: float(targets.size)})

    def _append_end(self, pieces: Ints) -> Ints:
        return np.pad(pieces, ((0, 0), (0, 1)), constant_values=self.vocabulary.specials["end"])

    def nets(self, bundle: Bundle) -> nn.Module:
        return TwoStackNets(bundle, self.known_vocabulary, self.name)

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        n_target = self.target_length(self.text_length(length))
        return training_flops(cast(TwoStackNets, nets), n_rows, length, n_target)


def noise_mask(keys: Keys, n_pieces: int, noise: Noise) -> Bools:
    """[R, n]: which pieces are taken out; a row begins with a stretch that stays and ends with one that goes."""
    n_left = n_pieces - noise.pieces
    stays = _cut(uniform(keys, "stretches that stay", max(n_left - 1, 1)), noise.spans, n_left)
    goes = _cut(uniform(keys, "spans that go", max(noise.pieces - 1, 1)), noise.spans, noise.pieces)
    lengths = np.stack([stays, goes], axis=2).reshape(len(keys), -1)  # [R, 2K], in turn
    ends = np.cumsum(lengths, axis=1)
    number = np.zeros((len(keys), n_pieces + 1), np.int64)
    np.put_along_axis(number, ends[:, :-1], 1, axis=1)
    mask: Bools = np.cumsum(number[:, :-1], axis=1) % 2 == 1
    return mask


def _cut(numbers: Floats, n_parts: int, n_items: int) -> Ints:
    """[R, parts]: `n_items` items cut into parts of at least one, all divisions equally likely."""
    bounds = np.sort(np.argsort(numbers, axis=1)[:, : n_parts - 1], axis=1) + 1  # [R, parts - 1], of 1 … n - 1
    n_rows = len(numbers)
    edges = np.concatenate([np.zeros((n_rows, 1), np.int64), bounds, np.full((n_rows, 1), n_items)], axis=1)
    return np.diff(edges, axis=1)


def _with_sentinels(text: Ints, removed: Bools, sentinels: Ints) -> Ints:
    """The pieces that are not removed, and a sentinel for each run of those that are; as many in every row."""
    before = np.pad(removed[:, :-1], ((0, 0), (1, 0)))
    first = removed & ~before
    number = np.cumsum(first, axis=1) - 1
    filled = np.where(first, sentinels[np.maximum(number, 0)], text)
    return filled[first | ~removed].reshape(len(text), -1)

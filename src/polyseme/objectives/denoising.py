"""Denoising (BART; Lewis et al. 2020): a text is corrupted, and the decoder writes the original.

Five corruptions, in any combination, one after the other:

| setting | |
|---|---|
| permute | sentences come in a random order |
| rotate | the text begins at a random piece, and the part before it comes last |
| infill_rate | a share of pieces is replaced, in spans of Poisson lengths, by one mask each; empty spans add one |
| mask_rate | pieces become masks |
| delete_rate | pieces are deleted |

A row is the text, as it was packed. What is left of it may be shorter, never longer; the rest of its row is padding.

Shapes: R rows, T pieces of a row, n of them of its text, M spans that are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from torch import nn

from polyseme.bundle import Bundle
from polyseme.corpus.packed_rows import Packed
from polyseme.corpus.random_keys import Bools, Floats, Ints, Keys, uniform
from polyseme.errors import OptionError
from polyseme.objectives.objective import BaseObjective, TwoStackNets, refuse_no_first, training_flops
from polyseme.objectives.target_selection import LAST
from polyseme.types import Example, Needs, Rows

LONGEST_MEAN = 10_000
"""Of spans; no row is as long."""


class Text(NamedTuple):
    """Texts as far as they are corrupted: `pieces` [R, n], of which the first `lengths` [R] are there."""

    pieces: Ints
    lengths: Ints

    @property
    def there(self) -> Bools:
        """[R, n]"""
        return np.arange(self.pieces.shape[1])[None] < self.lengths[:, None]


@dataclass(frozen=True, kw_only=True)
class Denoising(BaseObjective):
    """The encoder reads the corrupted text, the decoder writes the original row, frame included."""

    name: ClassVar[str] = "denoising"

    permute: bool = True
    rotate: bool = False
    infill_rate: float = 0.3
    mean_length: float = 3.0
    """Of the spans that are infilled."""
    mask_rate: float = 0.0
    delete_rate: float = 0.0

    def __post_init__(self) -> None:
        for name in ("infill_rate", "mask_rate", "delete_rate"):
            if not 0 <= getattr(self, name) < 1:
                raise OptionError(f"The {name} of a text must be from 0 to below 1. Got {getattr(self, name)} instead.")
        if not 1 <= self.mean_length <= LONGEST_MEAN:
            raise OptionError(
                f"The mean_length of spans must be from 1 to {LONGEST_MEAN:,}: with shorter ones, more masks would be "
                f"put in than pieces are taken out. Got {self.mean_length} instead."
            )
        if not (self.permute or self.rotate or self.infill_rate or self.mask_rate or self.delete_rate):
            raise OptionError(
                "Nothing would be done to the text: set at least one of permute, rotate, infill_rate, mask_rate and "
                "delete_rate."
            )

    @property
    def needs(self) -> Needs:
        layout = Packed(sentences=self.permute, separates_documents=False)
        return Needs(directions=("both",), outputs=("causal",), layout=layout, two_stacks=True)

    def refuse(self, bundle: Bundle) -> None:
        refuse_no_first(bundle, self.name, self.vocabulary)
        needed: Mapping[str, Any] = {"mask": self.infill_rate or self.mask_rate, "pad": True}
        for role, is_needed in needed.items():
            if is_needed and role not in self.vocabulary.specials:
                raise OptionError(
                    f"The objective 'denoising' needs a {role} piece, and the tokenizer has none. It has: "
                    f"{', '.join(self.vocabulary.specials) or 'no special pieces'}. Train one with the frame 'bart'."
                )

    def corrupt(self, rows: Rows) -> Example:
        before, after = len(self.vocabulary.before), len(self.vocabulary.after)
        within = slice(before, rows.pieces.shape[1] - after)
        text = Text(rows.pieces[:, within], np.full(len(rows.pieces), within.stop - within.start))
        if self.permute:
            sentences = np.zeros_like(rows.special) if rows.sentences is None else rows.sentences
            text = permute_sentences(text, sentences[:, within], rows.keys)
        if self.rotate:
            text = rotate_texts(text, rows.keys)
        if self.infill_rate:
            text = infill_spans(text, self.infill_rate, self.mean_length, self.vocabulary.mask, rows.keys)
        if self.mask_rate:
            text = mask_pieces(text, self.mask_rate, self.vocabulary.mask, rows.keys)
        if self.delete_rate:
            text = delete_pieces(text, self.delete_rate, rows.keys)
        pieces = np.full(rows.pieces.shape, self.vocabulary.specials["pad"], np.int64)
        pieces[:, :before] = rows.pieces[:, :before]
        pieces[:, within] = np.where(text.there, text.pieces, pieces[:, within])
        for number in range(after):
            place = before + text.lengths + number
            np.put_along_axis(pieces, place[:, None], rows.pieces[:, within.stop + number][:, None], axis=1)
        arrays = {
            "pieces": pieces.astype(np.int32),
            "lengths": (before + text.lengths + after).astype(np.int32),
            "targets": rows.pieces.astype(np.int32),
        }
        return Example(arrays, {self.name: float(rows.pieces.size)})

    def nets(self, bundle: Bundle) -> nn.Module:
        return TwoStackNets(bundle, self.known_vocabulary, self.name)

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        """As if nothing had gone: the padding of what has is read too."""
        return training_flops(cast(TwoStackNets, nets), n_rows, length, length)


# --- the five corruptions --------------------------------------------------------------------------------------------


def permute_sentences(text: Text, sentences: Bools, keys: Keys) -> Text:
    """Sentences in a random order; a row begins with what is left of one. `sentences` is true where one begins."""
    number = np.cumsum(sentences, axis=1, dtype=np.int64)
    numbers = uniform(keys, "sentences", text.pieces.shape[1] + 1)
    order = np.argsort(np.take_along_axis(numbers, number, axis=1), axis=1, kind="stable")
    return Text(np.take_along_axis(text.pieces, order, axis=1), text.lengths)


def rotate_texts(text: Text, keys: Keys) -> Text:
    """Each text from one of its pieces on, and then from its beginning to there."""
    n_pieces = text.pieces.shape[1]
    first = (uniform(keys, "rotation", 1) * text.lengths[:, None]).astype(np.int64)
    order = (first + np.arange(n_pieces)) % np.maximum(text.lengths[:, None], 1)
    return Text(np.take_along_axis(text.pieces, order, axis=1), text.lengths)


def infill_spans(text: Text, rate: float, mean_length: float, mask: int, keys: Keys) -> Text:
    """A mask for each of some spans, which together are a share of the text.

    What stays and the spans are put in a random order, so that spans stand anywhere, and neither overlap nor leave the
    text. The last span is as much shorter as it must be; masks put in are so many that the text does not grow.
    """
    n_pieces = text.pieces.shape[1]
    n_removed = np.rint(rate * text.lengths).astype(np.int64)
    lengths = span_lengths(n_removed, mean_length, keys)  # [R, M], -1 where there is no span
    n_spans = (lengths >= 0).sum(axis=1)
    n_slots = text.lengths - np.maximum(lengths, 0).sum(axis=1) + n_spans
    slots = np.arange(n_pieces)[None]
    numbers = np.where(slots < n_slots[:, None], uniform(keys, "span places", n_pieces), LAST)
    is_span = _ranks(numbers) < n_spans[:, None]
    before = np.cumsum(is_span, axis=1) - is_span  # [R, n]: spans before each slot
    upto = np.cumsum(np.pad(np.maximum(lengths, 0), ((0, 0), (1, 0))), axis=1)  # [R, M + 1]: pieces of that many spans
    places = slots - before + np.take_along_axis(upto, np.minimum(before, upto.shape[1] - 1), axis=1)
    pieces = np.take_along_axis(text.pieces, np.minimum(places, n_pieces - 1), axis=1)
    return Text(np.where(is_span, mask, pieces), n_slots)


def span_lengths(n_pieces: Ints, mean_length: float, keys: Keys) -> Ints:
    """[R, M]: lengths of Poisson spans that sum to `n_pieces` [R]; where there are fewer spans, -1, behind them.

    There are no more spans than pieces in them: of those without any, the last are left out. So many are drawn that
    their sum falls short once in 10¹⁵ rows; the last one then takes the rest.
    """
    n_most = int(n_pieces.max(initial=0))
    n_drawn = math.ceil((n_most + 8 * math.sqrt(n_most) + 32) / mean_length)
    lengths = poisson(uniform(keys, "span lengths", n_drawn), mean_length)
    lengths[:, -1] += np.maximum(n_pieces - lengths.sum(axis=1), 0)
    before = np.cumsum(lengths, axis=1) - lengths
    used = before < n_pieces[:, None]
    lengths = np.minimum(lengths, np.maximum(n_pieces[:, None] - before, 0))
    empty = used & (lengths == 0)
    room = n_pieces - (used & ~empty).sum(axis=1)
    used &= ~empty | (np.cumsum(empty, axis=1) <= room[:, None])
    order = np.argsort(~used, axis=1, kind="stable")
    result: Ints = np.take_along_axis(np.where(used, lengths, -1), order, axis=1)
    return result


def poisson(numbers: Floats, mean: float) -> Ints:
    """Numbers with the Poisson distribution, from even ones between 0 and 1."""
    counts = np.arange(int(mean + 12 * mean**0.5 + 20))
    steps = np.concatenate([np.zeros(1), np.log(np.maximum(counts[1:], 1)).cumsum()])
    below = np.cumsum(np.exp(counts * np.log(mean) - mean - steps))
    return np.searchsorted(below[:-1], numbers, side="right").astype(np.int64)


def mask_pieces(text: Text, rate: float, mask: int, keys: Keys) -> Text:
    """A share of the pieces that are no masks yet becomes masks."""
    return Text(np.where(_choose(text, rate, mask, keys, "masked pieces"), mask, text.pieces), text.lengths)


def delete_pieces(text: Text, rate: float, keys: Keys) -> Text:
    """A share of the pieces goes."""
    removed = _choose(text, rate, None, keys, "deleted pieces")
    order = np.argsort(removed | ~text.there, axis=1, kind="stable")
    return Text(np.take_along_axis(text.pieces, order, axis=1), text.lengths - removed.sum(axis=1))


def _choose(text: Text, rate: float, mask: int | None, keys: Keys, name: str) -> Bools:
    """Some of the pieces that are there and are no masks, as many as the rate says, rounded."""
    allowed = text.there if mask is None else text.there & (text.pieces != mask)
    n_chosen = np.rint(rate * allowed.sum(axis=1)).astype(np.int64)
    numbers = np.where(allowed, uniform(keys, name, text.pieces.shape[1]), LAST)
    chosen: Bools = _ranks(numbers) < n_chosen[:, None]
    return chosen


def _ranks(numbers: Floats) -> Ints:
    """[R, n]: how many numbers of its row are smaller than each."""
    ranks = np.empty(numbers.shape, np.int64)
    np.put_along_axis(ranks, np.argsort(numbers, axis=1), np.arange(numbers.shape[1])[None], axis=1)
    return ranks

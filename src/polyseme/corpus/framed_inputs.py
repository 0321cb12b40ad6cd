"""Rows of framed inputs: one or two stretches of text each with their special pieces, as a model is later used on.

    [CLS] A [SEP]                        one stretch
    [CLS] A [SEP] B [SEP]                two

Where inputs are much shorter than a row, several share it: they are hidden from each other, and positions restart with
each. A step then holds more inputs where they are shorter, and about as many pieces: what a larger batch of shorter
rows would be, with less padding.

Shapes: R rows, T pieces of a row, N inputs, S stretches of an input, P inputs of a row.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import Draw, Ints, RowOptions, WeightedRows, gather
from polyseme.errors import OptionError
from polyseme.text.ragged_arrays import places_within
from polyseme.types import Rows

SAMPLED_ROWS = 512
"""Rows whose lengths say how long rows are on average."""


class Inputs(NamedTuple):
    """Some inputs, in the order that they have in rows."""

    rows: Ints
    """[N]: the number of each input's row, from 0 on."""
    stretches: Ints
    """[N, S, 2]: where each stretch begins and ends in all shards together."""
    labels: Ints | None = None
    """[N]: 1 where the stretches do not follow each other, or not in this order."""


class Frame(NamedTuple):
    """The specials before, between and after the stretches of an input, and the segments of all."""

    specials: list[Ints]
    """[S + 1] arrays of pieces."""
    special_segments: list[Ints]
    segments: list[int]
    """[S]: of the text of each stretch."""

    @property
    def size(self) -> int:
        return sum(map(len, self.specials))

    @classmethod
    def of(cls, corpus: Corpus, n_stretches: int) -> Frame:
        one = np.zeros(1, np.int64)
        framed = corpus.tokenizer.frame(one, one if n_stretches == 2 else None)
        places = [framed.offset, int(framed.pair_offset or 0)][:n_stretches]
        around = [
            slice(first, last) for first, last in zip([0, *(each + 1 for each in places)], [*places, None], strict=True)
        ]
        segments = [int(framed.segments[each]) for each in places]
        return cls([framed.ids[each] for each in around], [framed.segments[each] for each in around], segments)


class InputRows(WeightedRows):
    """Rows of framed inputs; a kind of them says which inputs are in a row."""

    n_stretches: ClassVar[int]
    several: bool = False
    """Whether a row holds several inputs."""

    def __init__(self, corpus: Corpus, options: RowOptions) -> None:
        super().__init__(corpus, options)
        self._frame = Frame.of(corpus, self.n_stretches)
        self.room = self.length - self._frame.size
        """Pieces of an input that are text, at most."""
        if self.room < self.n_stretches:
            content = "two segments" if self.n_stretches == 2 else "text"
            raise OptionError(
                f"Rows of {self.length} pieces have no room for {content}: specials take {self._frame.size}. Choose "
                "longer rows."
            )
        self._pad = corpus.tokenizer.specials.get("pad", 0)
        self._shards = corpus.shards(self.split)

    @abstractmethod
    def inputs(self, draw: Draw) -> Inputs:
        """The inputs of some rows."""

    def rows(self, indices: Ints) -> Rows:
        indices = np.asarray(indices, np.int64)
        if not self.n_rows:
            raise OptionError(f"The split {self.split!r} of {self.corpus.folder} has no text that fills a row.")
        draw = self.draw(indices)
        return self._laid_out(self.inputs(draw), draw.keys)

    @cached_property
    def mean_length(self) -> float:
        """Pieces of a row that are not padding, on average over the first rows."""
        lengths = self.rows(np.arange(min(self.n_rows, SAMPLED_ROWS))).lengths if self.n_rows else None
        return float(self.length) if lengths is None else float(lengths.mean())

    def _numbers(self, draw: Draw) -> Ints:
        """[R]: the number of each row among those of all sources."""
        before: Ints = np.concatenate([[0], np.cumsum(self.rows_by_source)])
        return before[draw.sources] + draw.numbers

    def _laid_out(self, inputs: Inputs, keys: NDArray[np.uint64]) -> Rows:
        """Rows with the specials around the stretches of each input, and padding behind the last."""
        shape, at = (len(keys), self.length), inputs.rows
        pieces, segments = np.full(shape, self._pad, np.int64), np.zeros(shape, np.int64)
        starts, special = np.ones(shape, np.bool_), np.ones(shape, np.bool_)
        sizes = self._frame.size + (inputs.stretches[:, :, 1] - inputs.stretches[:, :, 0]).sum(axis=1)
        ends = np.cumsum(sizes)
        first = np.searchsorted(at, np.arange(len(keys)))  # the first input of each row
        begins = ends - sizes - (ends - sizes)[first][at]  # where each input begins in its row
        place = begins.copy()
        for number, around in enumerate(self._frame.specials):
            for piece, segment in zip(around, self._frame.special_segments[number], strict=True):
                pieces[at, place], segments[at, place] = piece, segment
                place = place + 1
            if number < self.n_stretches:
                from_, to = inputs.stretches[:, number].T
                n = to - from_
                within = places_within(n)
                where = np.repeat(at, n), np.repeat(place, n) + within
                pieces[where], starts[where] = gather(self._shards, np.repeat(from_, n) + within)
                segments[where], special[where] = self._frame.segments[number], False
                place = place + n
        if self.corpus.separator is not None:  # between the documents of a stretch
            special |= pieces == self.corpus.separator
        lengths = np.zeros(len(keys), np.int64)
        np.maximum.at(lengths, at, place)
        numbers = np.arange(len(at)) - first[at]  # of each input in its row
        documents, positions = self._separation(shape, at, numbers, begins, sizes) if self.several else (None, None)
        labels, places = self._labeled(len(keys), inputs.labels, at, numbers, begins)
        return Rows(
            pieces=pieces,
            starts=starts,
            special=special,
            keys=keys,
            segments=segments if self.n_stretches > 1 else None,
            lengths=lengths,
            documents=documents,
            positions=positions,
            next_labels=labels,
            next_places=places,
        )

    @staticmethod
    def _separation(shape: tuple[int, int], at: Ints, numbers: Ints, begins: Ints, sizes: Ints) -> tuple[Ints, Ints]:
        """The number of each piece's input in its row, -1 of padding, and positions that restart with each."""
        documents, positions = np.full(shape, -1, np.int64), np.zeros(shape, np.int64)
        within = places_within(sizes)
        where = np.repeat(at, sizes), np.repeat(begins, sizes) + within
        documents[where], positions[where] = np.repeat(numbers, sizes), within
        return documents, positions

    def _labeled(
        self, n_rows: int, labels: Ints | None, at: Ints, numbers: Ints, begins: Ints
    ) -> tuple[Ints | None, Ints | None]:
        """The label of each input and the place of its first piece, -1 and 0 where a row has no more inputs."""
        if labels is None:
            return None, None
        most = self.length // (self._frame.size + self.n_stretches) if self.several else 1
        of_rows, firsts = np.full((n_rows, most), -1, np.int64), np.zeros((n_rows, most), np.int64)
        of_rows[at, numbers], firsts[at, numbers] = labels, begins
        return of_rows, firsts

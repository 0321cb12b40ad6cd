"""Windows for a causal encoder that guesses every piece once: they move on by a stride.

The first window guesses as much as it can read. Each one after it begins `stride` pieces further on and guesses the
pieces that the one before did not reach, so that each of them has at least the window less the stride before it. The
last window ends with the text, and may begin earlier, which gives its pieces more to go by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.encoders.encoder import Encoder
from polyseme.errors import OptionError
from polyseme.generating.word_softmax import WordTable
from polyseme.scoring.neural_cache import Caches, NeuralCache
from polyseme.scoring.target_rows import Guessed, Guesser, Guesses, Ints, OnBatch, Ran, Way, batches, flat, ran
from polyseme.types import Batch, Pieces, Tokenizer


class Stride(NamedTuple):
    """The pieces `[start, end)` that are read, of which the piece after each one from `first` - 1 on is guessed.

    What is guessed is `[first, end]`, both counted: the last of them is not read.
    """

    start: int
    end: int
    first: int


def strides(n_read: int, room: int | None, stride: int | None = None) -> list[Stride]:
    """The windows over `n_read` pieces, of at most `room` each; without a stride they overlap by half.

    >>> strides(10, 4, 3)
    [Stride(start=0, end=4, first=1), Stride(start=3, end=7, first=5), Stride(start=6, end=10, first=8)]
    """
    if room is not None:
        stride = max(room // 2, 1) if stride is None else stride
        check_stride(stride, room)
    if room is None or stride is None or n_read <= room:
        return [Stride(0, n_read, 1)]
    starts = [*range(0, n_read - room, stride), n_read - room]
    found = [Stride(0, room, 1)]
    for start in starts[1:]:
        found.append(Stride(start, start + room, found[-1].end + 1))
    return found


def check_stride(stride: int, room: int) -> None:
    """Refuse a stride that would skip pieces, or go nowhere."""
    if not 1 <= stride <= room:
        raise OptionError(
            f"The stride must be between 1 and the {room:,} pieces that the model reads at once. Got {stride} instead."
        )


# MERGED: Scoring in one direction: each piece after those before it, or before those after it.


CARRIED = ("state", "segment")
"""The memories that are carried from one stretch of a text to the next; a cache is for one row."""
AT_A_TIME = 512
"""Pieces of a stretch where the encoder's own window does not bound it."""


class _Window(NamedTuple):
    """A row of `length` pieces from `start` on, which guesses the pieces `[first, last]`, both counted."""

    start: int
    length: int
    place: int
    """Of the state that guesses the first, in the row."""
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How an encoder reads a text in one direction, and what it guesses of it."""

    lead: Any
    """What is read before the first piece that is guessed: a piece, or one spelled in characters; None: nothing."""
    lead_always: bool = False
    """Whether every row has begun with it in training, not only every text."""
    room: int | None = None
    """Pieces that are read at once."""
    carries: bool = False
    """Whether the encoder's memory is carried from one stretch of a text to the next."""
    backwards: bool = False
    """Whether texts are read from the end."""
    words: WordTable | None = None
    """The words that are guessed, where those that are read are spelled in characters."""


def manner_of(bundle: Bundle, tokenizer: Tokenizer) -> Manner:
    """How a causal encoder reads."""
    return Manner(
        lead=tokenizer.specials.get("start", tokenizer.specials.get("end")),
        lead_always=tokenizer.frame(np.zeros(1, np.int64)).offset > 0,
        room=bundle.config.window,
        carries=bundle.config.memory in CARRIED,
    )


def manner_of_half(words: WordTable, *, backwards: bool) -> Manner:
    """How a half of a two-way encoder reads: from the marker that begins a text for it."""
    lead = words.characters(np.array(words.end if backwards else words.begin))
    return Manner(lead=lead, backwards=backwards, words=words)


class LeftToRight(Way):
    """Scores of a causal encoder, or of one half of a two-way one."""

    def __init__(
        self,
        encoder: Encoder,
        guesser: Guesser,
        manner: Manner,
        *,
        stride: int | None = None,
        neural_cache: NeuralCache | None = None,
    ) -> None:
        self.neural_cache = neural_cache
        self.cache_flops = 0.0
        """What the cache has cost so far."""
        self.encoder = encoder
        self.guesser = guesser
        self.manner = manner
        self.lead, self.lead_always = manner.lead, manner.lead_always
        self.room, self.carries = manner.room, manner.carries
        self.stride = stride
        if stride is not None:
            self._check_stride(stride)

    @property
    def how(self) -> str:
        """In words, how texts are scored."""
        side = "right to left" if self.manner.backwards else "left to right"
        return side if self.neural_cache is None else f"{side}, {self.neural_cache}"

    @property
    def unscored_first(self) -> str | None:
        if self.lead is not None:
            return None
        return (
            "The model's tokenizer has no piece that starts or ends texts, so the first piece of each text has no "
            "score and is left out of all sums."
        )

    def unknown(self, pieces: Pieces) -> int:
        words = self.manner.words
        return 0 if words is None else int((words.guessed(pieces.ids) == words.unknown).sum())

    def __call__(
        self,
        encoded: Sequence[Pieces],
        *,
        only: Sequence[tuple[int, int]] | None = None,
        best: bool = False,
        on_batch: OnBatch | None = None,
    ) -> tuple[Guessed, Ran]:
        """Log-probabilities of all pieces of all documents, one after another, and what that took."""
        words = self.manner.words
        pieces, ends = flat([each.ids if words is None else words.guessed(each.ids) for each in encoded])
        if self.carries:
            found, lengths = self._with_memory(pieces, ends, best=best, on_batch=on_batch)
        else:
            guesses = self._guesses(encoded, ends, only)
            lengths = guesses.lengths[guesses.stretch].tolist()
            self.guesser.inference.warm_up([guesses.ids])
            if self.neural_cache is not None:
                found = self._with_cache(guesses, pieces, ends, on_batch)
            else:
                found = self.guesser(guesses, pieces, best=best, on_batch=on_batch)
        took = ran(self.encoder.config, lengths, found, self.guesser.output)
        cache_flops, self.cache_flops = self.cache_flops, 0.0
        return found, took._replace(flops=took.flops + cache_flops)

    def _guesses(self, encoded: Sequence[Pieces], ends: Ints, only: Sequence[tuple[int, int]] | None) -> Guesses:
        read: list[Ints] = []
        found: list[tuple[int, int, int, int, int]] = []  # start and length of a row, place, first, count
        at = 0
        for number, each in enumerate(encoded):
            begin, end = (0, len(each)) if only is None else only[number]
            if self.manner.backwards:
                if end > begin:
                    ids = np.concatenate([each.ids[begin + 1 :], self.lead[None]])
                    found.append((at, len(ids), 0, int(ends[number]) + begin, end - begin))
                    read.append(ids)
                    at += len(ids)
                continue
            for ids, windows in self._windows(each.ids[:end]):  # what comes after is not seen
                for window in windows:
                    first = max(window.first, begin)
                    if first <= window.last:
                        place, count = window.place + first - window.first, window.last + 1 - first
                        found.append((at + window.start, window.length, place, int(ends[number]) + first, count))
                read.append(ids)
                at += len(ids)
        starts, lengths, places, firsts, counts = np.array(found, dtype=np.int64).reshape(-1, 5).T
        rows = np.arange(len(found))
        return Guesses(
            flat(read)[0], starts, lengths, rows, np.zeros((len(found), 2), np.int64), places, firsts, counts
        )

    def _windows(self, ids: Ints) -> Iterator[tuple[Ints, list[_Window]]]:
        """What is read of a document, and the windows over it: one run for all of them, which overlap in it.

        Where each begins with the start piece, each is a run by itself.
        """
        if not len(ids):
            return
        if self.lead is not None and self.lead_always:
            room = None if self.room is None else self.room - 1
            for start, end, first in strides(len(ids) - 1, room, self.stride):
                first = first if start else 0
                yield (
                    np.concatenate([[self.lead], ids[start:end]]),
                    [_Window(0, end - start + 1, first - start, first, end)],
                )
            return
        shift = 0 if self.lead is None else 1
        read = ids[:-1] if self.lead is None else np.concatenate([[self.lead], ids[:-1]])
        if len(read):
            yield (
                read,
                [
                    _Window(start, end - start, first - 1 - start, first - shift, end - shift)
                    for start, end, first in strides(len(read), self.room, self.stride)
                ],
            )

    def _check_stride(self, stride: int) -> None:
        if self.carries:
            raise OptionError("The model reads long texts with the memory it carries, and has no use for a stride.")
        if self.room is None:
            raise OptionError("The model reads texts of any length at once, and has no use for a stride.")
        check_stride(stride, self.room - (self.lead is not None and self.lead_always))

    # --- with a cache -------------------------------------------------------------------------------------------------

    def _with_cache(self, guesses: Guesses, pieces: Ints, ends: Ints, on_batch: OnBatch | None) -> Guessed:
        """The windows of each document in order, since what one guesses the next may recall."""
        found = Guessed(np.full(len(pieces), np.nan), np.zeros(len(pieces), np.bool_))
        document = np.searchsorted(ends, guesses.first, side="right") - 1  # [rows]
        lengths = guesses.lengths[guesses.stretch]
        order = np.lexsort((np.arange(len(document)), document, np.diff(ends)[document]))
        caches = self._caches()
        done, total = 0, int(lengths.sum())
        for rows in batches(order, lengths, self.guesser.batch_pieces):
            states, targets, n_read = self.guesser.states(guesses, rows)
            whose = np.repeat(document[rows], guesses.count[rows])
            if self.manner.backwards:  # in the order of reading
                states, targets, whose = states.flip(0), targets[::-1].copy(), whose[::-1].copy()
            found.log_probs[targets] = self._recalled(caches, states, pieces, targets, whose, ends)
            done += n_read
            if on_batch is not None:
                on_batch(done, total)
        return found

    def _caches(self) -> Caches | None:
        return None if self.neural_cache is None else Caches(self.neural_cache)

    @torch.inference_mode()
    def _recalled(
        self, caches: Caches | None, states: Tensor, pieces: Ints, targets: Ints, whose: Ints, ends: Ints
    ) -> NDArray[np.float64]:
        """What is said of the targets [M] of several documents, each one's together and in order."""
        theirs = torch.from_numpy(pieces[targets]).to(self.guesser.device)
        log_probs, _ = self.guesser.guess(states, theirs)
        if caches is not None:
            before = caches.flops
            starts = np.flatnonzero(np.diff(whose, prepend=-1))
            for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(whose)], strict=True):
                number = int(whose[start])
                some = slice(start, end)
                log_probs[some] = caches(number, states[some], theirs[some], log_probs[some])
                last = int(ends[number]) if self.manner.backwards else int(ends[number + 1]) - 1
                if int(targets[end - 1]) == last:
                    caches.forget(number)
            self.cache_flops += caches.flops - before
        return log_probs.double().cpu().numpy()

    # --- with memory --------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def _with_memory(
        self, pieces: Ints, ends: Ints, *, best: bool, on_batch: OnBatch | None
    ) -> tuple[Guessed, list[int]]:
        """Stretch after stretch of several documents side by side; those that have ended drop out."""
        found = Guessed(np.full(len(pieces), np.nan), np.zeros(len(pieces), np.bool_))
        shift = 0 if self.lead is None else 1
        lengths = np.diff(ends) - 1 + shift  # of what is read
        order = [number for number in np.argsort(lengths, kind="stable").tolist() if lengths[number] > 0]
        width = self.room or min(AT_A_TIME, self.guesser.batch_pieces)
        run: list[int] = []
        caches = self._caches()
        done, total = 0, int(lengths[order].sum()) if order else 0
        while order:
            n_rows = _rows_that_fit(lengths[order], width, self.guesser.batch_pieces)
            some, order = np.array(order[:n_rows]), order[n_rows:]
            memory = self.encoder.new_memory(len(some))
            for at in range(0, int(lengths[some].max()), width):
                going = np.flatnonzero(lengths[some] > at)
                if len(going) < len(some):
                    some = some[going]
                    memory = memory.select(torch.from_numpy(going).to(self.guesser.device))
                counts = np.minimum(lengths[some] - at, width)
                rows = np.zeros((len(some), int(counts.max())), np.int64)
                targets: list[Ints] = []
                for row, number, count in zip(rows, some.tolist(), counts.tolist(), strict=True):
                    first = int(ends[number]) + at + 1 - shift  # the first piece that is guessed
                    targets.append(np.arange(first, first + count))
                    row[:count] = pieces[np.maximum(targets[-1] - 1, 0)]
                    if self.lead is not None and at == 0:
                        row[0] = self.lead
                device = self.guesser.device
                level = bool((counts == rows.shape[1]).all())
                batch = Batch(torch.from_numpy(rows).to(device), None if level else torch.from_numpy(counts).to(device))
                states = self.encoder(batch, layers=[-1], memory=memory)
                memory = states.memory
                real = np.arange(rows.shape[1]) < counts[:, None]
                flat_targets = np.concatenate(targets)
                theirs = states[-1][torch.from_numpy(real).to(device)]
                if caches is not None:
                    whose = np.repeat(some, counts)
                    found.log_probs[flat_targets] = self._recalled(caches, theirs, pieces, flat_targets, whose, ends)
                else:
                    log_probs, is_best = self.guesser.guess(
                        theirs, torch.from_numpy(pieces[flat_targets]).to(device), best=best
                    )
                    found.log_probs[flat_targets] = log_probs.double().cpu().numpy()
                    if is_best is not None:
                        found.best[flat_targets] = is_best.cpu().numpy()
                run += counts.tolist()
                done += int(counts.sum())
                if on_batch is not None:
                    on_batch(done, total)
        return found, run


def _rows_that_fit(lengths: Ints, width: int, budget: int) -> int:
    """How many of the rows of these lengths, shortest first, make a padded stretch within the budget; at least one."""
    sizes = np.minimum(lengths, width) * np.arange(1, len(lengths) + 1)
    return max(int(np.searchsorted(sizes, budget, side="right")), 1)

"""Scoring in one direction: each piece after those before it, or before those after it; and in both (ELMo).

A text that is longer than the encoder's window is read in windows that move on by a stride (`target_rows.strides`), or
with the memory that the encoder carries on. Each half of a two-way encoder by itself says how likely a text is. Of both
the mean of the two log-probabilities is returned, word by word: no probability of the text, but what each direction is
trained for, and the perplexity of each is reported beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.cost import Tally
from polyseme.encoders.batch_runner import batches
from polyseme.encoders.encoder import Encoder
from polyseme.errors import ModelError, OptionError
from polyseme.scoring.neural_cache import Caches, NeuralCache
from polyseme.scoring.target_rows import (
    Ints,
    PiecePredictor,
    ScoringMethod,
    ScoringRequest,
    TargetRows,
    TargetScores,
    Usage,
    check_stride,
    strides,
    usage_of,
)
from polyseme.scoring.text_scores import perplexity
from polyseme.text.character_tokenizer import WordTable
from polyseme.text.ragged_arrays import concatenate
from polyseme.types import Batch, Pieces, Tokenizer

CARRIED = ("state", "segment")
"""The memories that are carried from one stretch of a text to the next; a cache is for one row."""
AT_A_TIME = 512
"""Pieces of a stretch where the encoder's own window does not bound it."""


class _Window(NamedTuple):
    """A row of `length` pieces from `start` on, which predicts the pieces `[first, last]`, both counted."""

    start: int
    length: int
    place: int
    """Of the state that predicts the first, in the row."""
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class TextReading:
    """How an encoder reads a text in one direction, and what it predicts of it."""

    lead: Any
    """What is read before the first piece that is predicted: a piece, or one spelled in characters; None: nothing."""
    lead_always: bool = False
    """Whether every row has begun with it in training, not only every text."""
    room: int | None = None
    """Pieces that are read at once."""
    carries: bool = False
    """Whether the encoder's memory is carried from one stretch of a text to the next."""
    backwards: bool = False
    """Whether texts are read from the end."""
    words: WordTable | None = None
    """The words that are predicted, where those that are read are spelled in characters."""


def causal_reading(bundle: Bundle, tokenizer: Tokenizer) -> TextReading:
    """How a causal encoder reads; one that reads from the end begins with the marker of a text's end."""
    if bundle.config.reads_backwards:
        lead = tokenizer.specials.get("end", tokenizer.specials.get("start"))
        if lead is None:
            raise ModelError(
                "The model reads texts from the end, and its tokenizer has no piece that ends or starts texts, with "
                "which it could begin. Name one in special_tokens_map.json (eos_token)."
            )
        return TextReading(lead=np.array(lead), backwards=True)
    return TextReading(
        lead=tokenizer.specials.get("start", tokenizer.specials.get("end")),
        lead_always=tokenizer.frame(np.zeros(1, np.int64)).offset > 0,
        room=bundle.config.window,
        carries=bundle.config.memory in CARRIED,
    )


def half_reading(words: WordTable | None, tokenizer: Tokenizer, *, backwards: bool) -> TextReading:
    """How a half of a two-way encoder reads: from the marker that begins a text for it.

    `words` are those that it predicts, where it reads them by their characters; else it predicts what it reads.
    """
    if words is None:
        lead = np.array(tokenizer.specials["end" if backwards else "start"])
    else:
        lead = words.characters(np.array(words.end if backwards else words.begin))
    return TextReading(lead=lead, backwards=backwards, words=words)


class CausalScoring(ScoringMethod):
    """Scores of a causal encoder, or of one half of a two-way one."""

    def __init__(
        self,
        encoder: Encoder,
        predictor: PiecePredictor,
        reading: TextReading,
        *,
        stride: int | None = None,
        neural_cache: NeuralCache | None = None,
    ) -> None:
        self.neural_cache = neural_cache
        self.cache_flops = 0.0
        """What the cache has cost so far."""
        self.encoder = encoder
        self.predictor = predictor
        self.reading = reading
        self.lead, self.lead_always = reading.lead, reading.lead_always
        self.room, self.carries = reading.room, reading.carries
        self.stride = stride
        if stride is not None:
            self._check_stride(stride)

    @property
    def description(self) -> str:
        side = "right to left" if self.reading.backwards else "left to right"
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
        words = self.reading.words
        return 0 if words is None else int((words.predicted(pieces.ids) == words.unknown).sum())

    def prepare(self) -> None:
        if not self.carries:
            self.predictor.inference.prepare()

    def __call__(self, request: ScoringRequest) -> tuple[TargetScores, Usage]:
        encoded = request.encoded
        words = self.reading.words
        pieces, ends = concatenate([each.ids if words is None else words.predicted(each.ids) for each in encoded])
        if self.carries:
            scores, lengths = self._with_memory(pieces, ends, request)
        else:
            target_rows = self._target_rows(encoded, ends, request.only)
            lengths = target_rows.lengths[target_rows.stretch].tolist()
            self.predictor.inference.warm_up([target_rows.ids])
            if self.neural_cache is not None:
                scores = self._with_cache(target_rows, pieces, ends, request)
            else:
                scores = self.predictor(
                    target_rows, pieces, best=request.best, bounds=request.bounds, on_batch=request.on_batch
                )
        usage = usage_of(self.encoder.config, lengths, scores.n_predicted, self.predictor.output)
        cache_flops, self.cache_flops = self.cache_flops, 0.0
        return scores, usage._replace(flops=usage.flops + cache_flops)

    def _target_rows(self, encoded: Sequence[Pieces], ends: Ints, only: Sequence[tuple[int, int]] | None) -> TargetRows:
        read: list[Ints] = []
        rows: list[tuple[int, int, int, int, int]] = []  # start and length of a row, place, first, count
        at = 0
        for number, each in enumerate(encoded):
            begin, end = (0, len(each)) if only is None else only[number]
            if self.reading.backwards:
                if end > begin:
                    ids = np.concatenate([each.ids[begin + 1 :], self.lead[None]])
                    rows.append((at, len(ids), 0, int(ends[number]) + begin, end - begin))
                    read.append(ids)
                    at += len(ids)
                continue
            for ids, windows in self._windows(each.ids[:end]):  # later pieces are not seen
                for window in windows:
                    first = max(window.first, begin)
                    if first <= window.last:
                        place, count = window.place + first - window.first, window.last + 1 - first
                        rows.append((at + window.start, window.length, place, int(ends[number]) + first, count))
                read.append(ids)
                at += len(ids)
        starts, lengths, places, firsts, counts = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        stretch, hidden = np.arange(len(rows)), np.zeros((len(rows), 2), np.int64)
        return TargetRows(concatenate(read)[0], starts, lengths, stretch, hidden, places, firsts, counts)

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

    def _with_cache(self, target_rows: TargetRows, pieces: Ints, ends: Ints, request: ScoringRequest) -> TargetScores:
        """The windows of each document in order, since each may recall the predictions of those before it."""
        scores = TargetScores.empty(len(pieces))
        document = np.searchsorted(ends, target_rows.first, side="right") - 1  # [rows]
        lengths = target_rows.lengths[target_rows.stretch]
        order = np.lexsort((np.arange(len(document)), document, np.diff(ends)[document]))
        caches = self._caches()
        done, total = 0, int(lengths.sum())
        for rows in batches(order, lengths, self.predictor.batch_pieces):
            states, targets, n_read = self.predictor.states(target_rows, rows)
            documents = np.repeat(document[rows], target_rows.count[rows])
            if self.reading.backwards:  # in the order of reading
                states, targets, documents = states.flip(0), targets[::-1].copy(), documents[::-1].copy()
            scores.log_probs[targets] = self._score_with_cache(caches, states, pieces, targets, documents, ends)
            done += n_read
            request.report(done, total)
        return scores

    def _caches(self) -> Caches | None:
        return None if self.neural_cache is None else Caches(self.neural_cache)

    @torch.inference_mode()
    def _score_with_cache(
        self, caches: Caches | None, states: Tensor, pieces: Ints, targets: Ints, documents: Ints, ends: Ints
    ) -> NDArray[np.float64]:
        """The log-probabilities of the targets [M] of several documents, each one's together and in order."""
        theirs = torch.from_numpy(pieces[targets]).to(self.predictor.device)
        log_probs, _ = self.predictor.log_probs(states, theirs)
        if caches is not None:
            before = caches.flops
            starts = np.flatnonzero(np.diff(documents, prepend=-1))
            for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(documents)], strict=True):
                number = int(documents[start])
                run = slice(start, end)
                log_probs[run] = caches(number, states[run], theirs[run], log_probs[run])
                last = int(ends[number]) if self.reading.backwards else int(ends[number + 1]) - 1
                if int(targets[end - 1]) == last:
                    caches.forget(number)
            self.cache_flops += caches.flops - before
        return log_probs.double().cpu().numpy()

    # --- with memory --------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def _with_memory(self, pieces: Ints, ends: Ints, request: ScoringRequest) -> tuple[TargetScores, list[int]]:
        """Stretch after stretch of several documents side by side; those that have ended drop out."""
        scores = TargetScores.empty(len(pieces), request.bounds)
        shift = 0 if self.lead is None else 1
        lengths = np.diff(ends) - 1 + shift  # of what is read
        order = [number for number in np.argsort(lengths, kind="stable").tolist() if lengths[number] > 0]
        width = self.room or min(AT_A_TIME, self.predictor.batch_pieces)
        run: list[int] = []
        caches = self._caches()
        done, total = 0, int(lengths[order].sum()) if order else 0
        while order:
            n_rows = _rows_that_fit(lengths[order], width, self.predictor.batch_pieces)
            numbers, order = np.array(order[:n_rows]), order[n_rows:]
            memory = self.encoder.new_memory(len(numbers))
            for at in range(0, int(lengths[numbers].max()), width):
                unfinished = np.flatnonzero(lengths[numbers] > at)
                if len(unfinished) < len(numbers):
                    numbers = numbers[unfinished]
                    memory = memory.select(torch.from_numpy(unfinished).to(self.predictor.device))
                counts = np.minimum(lengths[numbers] - at, width)
                rows = np.zeros((len(numbers), int(counts.max())), np.int64)
                targets: list[Ints] = []
                for row, number, count in zip(rows, numbers.tolist(), counts.tolist(), strict=True):
                    first = int(ends[number]) + at + 1 - shift  # the first piece that is predicted
                    targets.append(np.arange(first, first + count))
                    row[:count] = pieces[np.maximum(targets[-1] - 1, 0)]
                    if self.lead is not None and at == 0:
                        row[0] = self.lead
                device = self.predictor.device
                level = bool((counts == rows.shape[1]).all())
                batch = Batch(torch.from_numpy(rows).to(device), None if level else torch.from_numpy(counts).to(device))
                states = self.encoder(batch, layers=[-1], memory=memory)
                memory = states.memory
                real = np.arange(rows.shape[1]) < counts[:, None]
                flat_targets = np.concatenate(targets)
                theirs = states[-1][torch.from_numpy(real).to(device)]
                if caches is not None:
                    documents = np.repeat(numbers, counts)
                    scores.log_probs[flat_targets] = self._score_with_cache(
                        caches, theirs, pieces, flat_targets, documents, ends
                    )
                else:
                    its_pieces = torch.from_numpy(pieces[flat_targets]).to(device)
                    scores.put(flat_targets, *self.predictor.log_probs(theirs, its_pieces, best=request.best))
                    self.predictor.put_bounds(scores, theirs, flat_targets, request.bounds)
                run += counts.tolist()
                done += int(counts.sum())
                request.report(done, total)
        return scores, run


def _rows_that_fit(lengths: Ints, width: int, budget: int) -> int:
    """How many of the rows of these lengths, shortest first, make a padded stretch within the budget; at least one."""
    sizes = np.minimum(lengths, width) * np.arange(1, len(lengths) + 1)
    return max(int(np.searchsorted(sizes, budget, side="right")), 1)


class TwoWayScoring:
    """The mean of what a forward and a backward half say."""

    unscored_first: str | None = None

    def __init__(self, halves: Mapping[str, CausalScoring]) -> None:
        self.halves = halves
        self._n_texts = 0

    @property
    def description(self) -> str:
        return f"{' and '.join(half.description for half in self.halves.values())}, the mean of both"

    def key(self, pieces: Pieces) -> bytes:
        """Every document by itself, since all of them count in the perplexity of each direction."""
        self._n_texts += 1
        return self._n_texts.to_bytes(8, "big")

    def unknown(self, pieces: Pieces) -> int:
        return next(iter(self.halves.values())).unknown(pieces)

    def prepare(self) -> None:
        for half in self.halves.values():
            half.prepare()

    def notes(self, tally: Tally) -> list[str]:
        n_words = tally.sums.get("words", 0.0)
        if not n_words:
            return []
        perplexities = [
            f"{perplexity(tally.sums[name], n_words):,.2f} {half.description}" for name, half in self.halves.items()
        ]
        unit = "piece" if next(iter(self.halves.values())).reading.words is None else "word"
        return [f"The perplexity per {unit} is {', '.join(perplexities)}; log-probabilities are the mean of both."]

    def __call__(self, request: ScoringRequest) -> tuple[TargetScores, Usage]:
        if request.best:
            raise OptionError("Which word is the likeliest is a question to one direction. Choose an order.")
        results = {name: half(request) for name, half in self.halves.items()}
        sums = {name: float(np.nansum(predicted.log_probs)) for name, (predicted, _) in results.items()}
        each = np.stack([predicted.log_probs for predicted, _ in results.values()])
        sums["words"] = float(np.count_nonzero(~np.isnan(each[0])))
        used = [usage for _, usage in results.values()]
        usage = Usage(sum(one.pieces for one in used), sum(one.flops for one in used), sums)
        return TargetScores(each.mean(axis=0), np.zeros(each.shape[1], np.bool_)), usage

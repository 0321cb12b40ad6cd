"""Rows for a network, and the pieces that are predicted from each: what scoring from either side comes down to.

A row is a stretch of a document as the encoder reads it, of which a run of pieces may be hidden behind the mask. Its
targets are a run of the document's pieces, each predicted from one state of the row: its own place where it is hidden,
the place before it in a causal encoder. Everything is kept in flat arrays, since a benchmark has a million rows.

Shapes: S stretches, J rows, P pieces of all documents, N pieces of a batch, M pieces predicted from it, V vocabulary.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.config import EncoderConfig
from polyseme.cost import Tally, forward_flops
from polyseme.encoders.batch_runner import BATCH_PIECES, MemoryLimit, run_batches
from polyseme.encoders.inference import InferenceEncoder, PackedRows
from polyseme.errors import OptionError
from polyseme.outputs.output import Output
from polyseme.text.ragged_arrays import places_within
from polyseme.types import OnBatch, Pieces

Ints = NDArray[np.int64]

NUMBERS_AT_ONCE = defaultdict(lambda: 1 << 23, {"cuda": 1 << 27})
"""How many scores of the vocabulary exist at once: M × V."""


@dataclass(frozen=True)
class TargetRows:
    """Rows over stretches of documents, and what is predicted from each."""

    ids: Ints
    """All stretches, specials included, one after another."""
    starts: Ints
    """[S]: where each stretch begins among them."""
    lengths: Ints
    """[S]"""
    stretch: Ints
    """[J]: the stretch that a row is."""
    hidden: Ints
    """[J, 2]: which run of the row is hidden behind the mask; empty where nothing is."""
    place: Ints
    """[J]: the place in the row of the state from which the first piece is predicted; the others follow."""
    first: Ints
    """[J]: the first piece that is predicted, counted over all documents."""
    count: Ints
    """[J]: how many are."""

    def select(self, rows: NDArray[np.bool_]) -> TargetRows:
        """Only these rows."""
        names = ("stretch", "hidden", "place", "first", "count")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


class WordBounds(NamedTuple):
    """Where words begin among pieces, and which pieces may begin one there (`word_bounds`)."""

    kinds: Ints
    """[P]: the number of a set at each piece that begins a word; -1 elsewhere."""
    sets: NDArray[np.bool_]
    """[K, V]"""


class ScoringRequest(NamedTuple):
    """Documents in pieces, and what to score of them."""

    encoded: Sequence[Pieces]
    sources: Sequence[Pieces] | None = None
    """One source per document, where the model reads one."""
    only: Sequence[tuple[int, int]] | None = None
    """The run `[start, end)` of each document's pieces to score; None: all."""
    best: bool = False
    """Whether to compare each piece with all others."""
    on_batch: OnBatch | None = None
    bounds: WordBounds | None = None
    """Where to say how likely it is that a word begins."""

    def report(self, done: int, total: int) -> None:
        """Report progress, if anyone listens."""
        if self.on_batch is not None:
            self.on_batch(done, total)


class TargetScores(NamedTuple):
    """The model's scores of pieces: NaN, and False, where there is none."""

    log_probs: NDArray[np.float64]
    """[P]"""
    best: NDArray[np.bool_]
    """[P]: whether no other piece was as likely; all False unless requested."""
    bounds: NDArray[np.float64] = np.zeros(0)
    """[P]: the log-probability that a word begins, where that was requested; otherwise empty."""

    @classmethod
    def empty(cls, n_pieces: int, bounds: WordBounds | None = None) -> TargetScores:
        n_bounds = 0 if bounds is None else n_pieces
        return cls(np.full(n_pieces, np.nan), np.zeros(n_pieces, np.bool_), np.full(n_bounds, np.nan))

    @property
    def n_predicted(self) -> int:
        """How many pieces have a score."""
        return int(np.count_nonzero(~np.isnan(self.log_probs)))

    def put(self, targets: Ints, log_probs: Tensor, is_best: Tensor | None) -> None:
        """Fill in the scores of these pieces."""
        self.log_probs[targets] = log_probs.double().cpu().numpy()
        if is_best is not None:
            self.best[targets] = is_best.cpu().numpy()


class Usage(NamedTuple):
    """The work that it took to score documents."""

    pieces: int
    """Pieces that were read."""
    flops: float
    sums: Mapping[str, float] = {}
    """Further numbers that add up over documents, by name."""


def usage_of(config: EncoderConfig, lengths: Sequence[int], n_predicted: int, output: Output) -> Usage:
    """Rows of these lengths through an encoder, and so many predictions through an output."""
    weights = sum(parameter.numel() for parameter in output.parameters())
    return Usage(sum(lengths), forward_flops(config, lengths) + 2.0 * weights * n_predicted)


class ScoringMethod(Protocol):
    """How pieces are predicted: from which side, and with what before them.

    The defaults are for methods that derive from it.
    """

    @property
    def description(self) -> str:
        """In words."""

    @property
    def unscored_first(self) -> str | None:
        """Why one piece of each text has no score, in words; None: all have."""

    def key(self, pieces: Pieces) -> bytes:
        """Equal for documents that have equal scores."""
        return pieces.ids.tobytes()

    def unknown(self, pieces: Pieces) -> int:
        """How many pieces of a document are predicted as the unknown one, where reading knows more than predicting."""
        return 0

    def notes(self, tally: Tally) -> list[str]:
        """What else is to be reported of the scores so far."""
        return []

    def prepare(self) -> None:
        """Lay out the weights before the first batch, so that no score depends on how many batches there are."""
        return None

    def __call__(self, request: ScoringRequest) -> tuple[TargetScores, Usage]:
        """Log-probabilities of all pieces of all documents, one after another, and the work that they took."""


class PiecePredictor:
    """An encoder ready for inference and an output over its states: from rows to log-probabilities.

    The output runs in fp32 at least, since half precision would leave two or three digits of a log-probability.
    """

    def __init__(
        self,
        inference: InferenceEncoder,
        output: Output,
        *,
        device: torch.device,
        batch_pieces: int | None,
        threads: bool = True,
    ) -> None:
        self.inference = inference
        self.output = in_single_precision(output)
        self.dtype = next(self.output.parameters()).dtype
        self.device = device
        self.batch_pieces = batch_pieces or BATCH_PIECES[device.type]
        self.memory_limit = MemoryLimit(device)
        self.threads = threads

    def __call__(
        self,
        target_rows: TargetRows,
        pieces: Ints,
        *,
        mask: int = 0,
        best: bool = False,
        bounds: WordBounds | None = None,
        on_batch: OnBatch | None = None,
    ) -> TargetScores:
        """Log-probabilities of the `pieces` [P] of all documents that the rows predict; `mask` hides pieces."""
        scores = TargetScores.empty(len(pieces), bounds)
        lengths = target_rows.lengths[target_rows.stretch]

        def run(rows: Ints) -> tuple[Ints, Tensor, Tensor | None]:
            states, targets, _ = self.states(target_rows, rows, mask)
            self.put_bounds(scores, states, targets, bounds)
            return targets, *self.log_probs(states, torch.from_numpy(pieces[targets]).to(self.device), best=best)

        results: Iterable[tuple[Ints, Tensor, Tensor | None]] = run_batches(
            run,
            lengths,
            encoder=self.inference,
            limit=self.memory_limit,
            batch_pieces=self.batch_pieces,
            threads=self.threads,
            on_batch=on_batch,
        )
        if self.device.type != "cpu":
            results = list(results)  # on a GPU nothing is fetched before all batches are under way
        for targets, log_probs, is_best in results:
            scores.put(targets, log_probs, is_best)
        return scores

    def states(self, target_rows: TargetRows, rows: Ints, mask: int = 0) -> tuple[Tensor, Ints, int]:
        """The states from which some rows predict [M, D], the pieces that they predict [M], and how many were read."""
        flat, places, targets = _batch(target_rows, rows, mask)
        lengths = target_rows.lengths[target_rows.stretch[rows]].tolist()
        states = next(
            iter(self.inference(PackedRows(torch.from_numpy(flat).to(self.device), None, lengths), [-1]).values())
        )
        return states[torch.from_numpy(places).to(self.device)], targets, len(flat)

    @torch.inference_mode()
    def log_probs(self, states: Tensor, targets: Tensor, *, best: bool = False) -> tuple[Tensor, Tensor | None]:
        """[M, D] and [M] → the log-probability of each target, and whether nothing else was as likely."""
        at_once = max(NUMBERS_AT_ONCE[self.device.type] // self.n_pieces, 1)
        log_probs: list[Tensor] = [states.new_zeros(0, dtype=self.dtype)]
        bests: list[Tensor] = [torch.zeros(0, dtype=torch.bool, device=states.device)]
        for start in range(0, len(targets), at_once):
            part, theirs = states[start : start + at_once].to(self.dtype), targets[start : start + at_once]
            log_probs.append(-self.output.loss(part, theirs))
            if best:
                every = self.output.log_probs(part)
                own = every.gather(1, theirs[:, None])
                bests.append((every >= own).sum(dim=1) == 1)
        return torch.cat(log_probs), torch.cat(bests) if best else None

    @torch.inference_mode()
    def put_bounds(self, scores: TargetScores, states: Tensor, targets: Ints, bounds: WordBounds | None) -> None:
        """Fill in the log-probability that a word begins, at those of the targets [M] where it was requested."""
        if bounds is None:
            return
        selected = np.flatnonzero(bounds.kinds[targets] >= 0)
        at_once = max(NUMBERS_AT_ONCE[self.device.type] // self.n_pieces, 1)
        for start in range(0, len(selected), at_once):
            places = selected[start : start + at_once]
            every = self.output.log_probs(states[torch.from_numpy(places).to(states.device)].to(self.dtype))
            begins = torch.from_numpy(bounds.sets[bounds.kinds[targets[places]]]).to(every.device)
            log_probs = every.masked_fill(~begins, -torch.inf).logsumexp(dim=1)
            scores.bounds[targets[places]] = log_probs.double().cpu().numpy()

    @property
    def n_pieces(self) -> int:
        """V, as near as parameters tell: the most rows that one of the output's has."""
        return max(parameter.shape[0] for parameter in self.output.parameters())


def in_single_precision(output: Output) -> Output:
    """The output itself, or one like it in fp32 where it is in half precision."""
    half = {torch.bfloat16, torch.float16}
    if half.isdisjoint(parameter.dtype for parameter in output.parameters()):
        return output
    return copy.deepcopy(output).float()


def _batch(target_rows: TargetRows, rows: Ints, mask: int) -> tuple[Ints, Ints, Ints]:
    """The pieces of some rows [N], the places of the states that predict [M], and the pieces that they predict [M]."""
    lengths = target_rows.lengths[target_rows.stretch[rows]]
    offsets = np.cumsum(lengths) - lengths
    within = places_within(lengths)
    ids = target_rows.ids[within + np.repeat(target_rows.starts[target_rows.stretch[rows]], lengths)]
    hidden = target_rows.hidden[rows]
    if (hidden[:, 1] > hidden[:, 0]).any():
        ids[(within >= np.repeat(hidden[:, 0], lengths)) & (within < np.repeat(hidden[:, 1], lengths))] = mask
    counts = target_rows.count[rows]
    steps = places_within(counts)
    return (
        ids,
        np.repeat(offsets + target_rows.place[rows], counts) + steps,
        np.repeat(target_rows.first[rows], counts) + steps,
    )


class Stride(NamedTuple):
    """The pieces `[start, end)` that are read, of which the piece after each one from `first` - 1 on is predicted.

    The predicted pieces are `[first, end]`, both counted: the last of them is not read.
    """

    start: int
    end: int
    first: int


def strides(n_read: int, room: int | None, stride: int | None = None) -> list[Stride]:
    """The windows over `n_read` pieces, of at most `room` each; without a stride they overlap by half.

    The first window predicts as much as it can read. Each one after it begins `stride` pieces further on and predicts
    the pieces that the one before did not reach, so that each of them has at least the window less the stride before
    it. The last window ends with the text, and may begin earlier, which gives its pieces more to go by.

    >>> strides(10, 4, 3)
    [Stride(start=0, end=4, first=1), Stride(start=3, end=7, first=5), Stride(start=6, end=10, first=8)]
    """
    if room is not None:
        stride = max(room // 2, 1) if stride is None else stride
        check_stride(stride, room)
    if room is None or stride is None or n_read <= room:
        return [Stride(0, n_read, 1)]
    starts = [*range(0, n_read - room, stride), n_read - room]
    windows = [Stride(0, room, 1)]
    for start in starts[1:]:
        windows.append(Stride(start, start + room, windows[-1].end + 1))
    return windows


def check_stride(stride: int, room: int) -> None:
    """Refuse a stride that would skip pieces, or go nowhere."""
    if not 1 <= stride <= room:
        raise OptionError(
            f"The stride must be between 1 and the {room:,} pieces that the model reads at once. Got {stride} instead."
        )

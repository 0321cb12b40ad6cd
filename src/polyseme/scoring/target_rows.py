"""Rows for a network, and the pieces that are guessed from each: what scoring from either side comes down to.

A row is a stretch of a document as the encoder reads it, of which a run of pieces may be hidden behind the mask. What
is guessed from it is a run of the document's pieces, each from one state of the row: its own place where it is hidden,
the place before it in a causal encoder. Everything is kept in flat arrays, since a benchmark has a million rows.

Shapes: S stretches, J rows, P pieces of all documents, N pieces of a batch, M pieces guessed from it, V vocabulary.
"""

from __future__ import annotations

import contextlib
import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.config import EncoderConfig
from polyseme.cost import forward_flops
from polyseme.encoders.inference import InferenceEncoder, PackedRows
from polyseme.outputs.output import Output
from polyseme.parts.device import even_share, one_core, side_by_side
from polyseme.types import Pieces

Ints = NDArray[np.int64]

BATCH_PIECES = defaultdict(lambda: 2048, {"cuda": 65536})
"""Pieces in a batch unless the user says otherwise."""
NUMBERS_AT_ONCE = defaultdict(lambda: 1 << 23, {"cuda": 1 << 27})
"""How many scores of the vocabulary exist at once: M × V."""
LITTLE_WORK = 64
"""Pieces up to which one core is sooner done than several."""
MUCH_WORK = 4096
"""Pieces from which it pays to lay the weights out first."""

OnBatch = Callable[[int, int], None]
"""Told after each batch how many pieces are done, and how many there are."""


@dataclass(frozen=True)
class Guesses:
    """Rows over stretches of documents, and what is guessed from each."""

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
    """[J]: the place in the row of the state from which the first piece is guessed; the others follow."""
    first: Ints
    """[J]: the first piece that is guessed, counted over all documents."""
    count: Ints
    """[J]: how many are."""

    def select(self, rows: NDArray[np.bool_]) -> Guesses:
        """Only these rows."""
        return Guesses(
            self.ids,
            self.starts,
            self.lengths,
            self.stretch[rows],
            self.hidden[rows],
            self.place[rows],
            self.first[rows],
            self.count[rows],
        )


class Guessed(NamedTuple):
    """What the model says of pieces: NaN, and False, where it was not asked."""

    log_probs: NDArray[np.float64]
    """[P]"""
    best: NDArray[np.bool_]
    """[P]: whether no other piece was as likely; all False unless that was asked for."""


class Ran(NamedTuple):
    """What scoring some documents took."""

    pieces: int
    """That were read."""
    flops: float


def ran(config: EncoderConfig, lengths: Sequence[int], found: Guessed, output: Output) -> Ran:
    """Rows of these lengths through an encoder, and what was guessed through an output."""
    weights = sum(parameter.numel() for parameter in output.parameters())
    guessed = float(np.count_nonzero(~np.isnan(found.log_probs)))
    return Ran(sum(lengths), forward_flops(config, lengths) + 2.0 * weights * guessed)


class Way(Protocol):
    """How pieces are guessed: from which side, and with what before them.

    What most ways have in common stands here, for those that name this as their base.
    """

    @property
    def how(self) -> str:
        """In words."""

    @property
    def unscored_first(self) -> str | None:
        """Why one piece of each text has no score, in words; None: all have."""

    def key(self, pieces: Pieces) -> bytes:
        """Equal for documents that have equal scores."""
        return pieces.ids.tobytes()

    def unknown(self, pieces: Pieces) -> int:
        """How many pieces of a document are guessed as the unknown one, where reading knows more than guessing."""
        return 0

    def notes(self) -> list[str]:
        """What else is to be said of the scores so far."""
        return []

    def __call__(
        self,
        encoded: Sequence[Pieces],
        *,
        only: Sequence[tuple[int, int]] | None = None,
        best: bool = False,
        on_batch: OnBatch | None = None,
    ) -> tuple[Guessed, Ran]:
        """Log-probabilities of all pieces of all documents, one after another; `only` asks for a run of each one's."""


class Guesser:
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
        self.output = in_full(output)
        self.dtype = next(self.output.parameters()).dtype
        self.device = device
        self.batch_pieces = batch_pieces or BATCH_PIECES[device.type]
        self.threads = threads

    def __call__(
        self,
        guesses: Guesses,
        pieces: Ints,
        *,
        mask: int = 0,
        best: bool = False,
        on_batch: OnBatch | None = None,
    ) -> Guessed:
        """Log-probabilities of the `pieces` [P] of all documents that the rows guess; `mask` hides pieces."""
        found = Guessed(np.full(len(pieces), np.nan), np.zeros(len(pieces), np.bool_))
        lengths = guesses.lengths[guesses.stretch]
        order = np.argsort(lengths, kind="stable")
        total = int(lengths.sum())
        if total >= MUCH_WORK:
            self.inference.prepare()

        def run(rows: Ints) -> tuple[Ints, Tensor, Tensor | None, int]:
            states, targets, n_read = self.states(guesses, rows, mask)
            log_probs, is_best = self.guess(states, torch.from_numpy(pieces[targets]).to(self.device), best=best)
            return targets, log_probs, is_best, n_read

        done = 0
        waiting: list[tuple[Ints, Tensor, Tensor | None]] = []
        with _cores(self.device, total, self.threads) as run_all:
            for targets, log_probs, is_best, n_pieces in run_all(
                run, batches(order, lengths, even_share(total, self.batch_pieces) if total else 1)
            ):
                waiting.append((targets, log_probs, is_best))  # on a GPU the next batch is under way meanwhile
                done += n_pieces
                if on_batch is not None:
                    on_batch(done, total)
        for targets, log_probs, is_best in waiting:
            found.log_probs[targets] = log_probs.double().cpu().numpy()
            if is_best is not None:
                found.best[targets] = is_best.cpu().numpy()
        return found

    def states(self, guesses: Guesses, rows: Ints, mask: int = 0) -> tuple[Tensor, Ints, int]:
        """The states from which some rows guess [M, D], the pieces that they guess [M], and how many were read."""
        flat, places, targets = _batch(guesses, rows, mask)
        lengths = guesses.lengths[guesses.stretch[rows]].tolist()
        states = next(
            iter(self.inference(PackedRows(torch.from_numpy(flat).to(self.device), None, lengths), [-1]).values())
        )
        return states[torch.from_numpy(places).to(self.device)], targets, len(flat)

    @torch.inference_mode()
    def guess(self, states: Tensor, targets: Tensor, *, best: bool = False) -> tuple[Tensor, Tensor | None]:
        """[M, D] and [M] → the log-probability of each target, and whether nothing else was as likely."""
        at_once = max(NUMBERS_AT_ONCE[self.device.type] // self.n_pieces, 1)
        log_probs: list[Tensor] = [states.new_zeros(0, dtype=self.dtype)]
        bests: list[Tensor] = [torch.zeros(0, dtype=torch.bool, device=states.device)]
        for start in range(0, len(targets), at_once):
            some, theirs = states[start : start + at_once].to(self.dtype), targets[start : start + at_once]
            log_probs.append(-self.output.loss(some, theirs))
            if best:
                every = self.output.log_probs(some)
                own = every.gather(1, theirs[:, None])
                bests.append((every >= own).sum(dim=1) == 1)
        return torch.cat(log_probs), torch.cat(bests) if best else None

    @property
    def n_pieces(self) -> int:
        """V, as near as parameters tell: the most rows that one of the output's has."""
        return max(parameter.shape[0] for parameter in self.output.parameters())


def in_full(output: Output) -> Output:
    """The output itself, or one like it in fp32 where it is in half precision."""
    half = {torch.bfloat16, torch.float16}
    if half.isdisjoint(parameter.dtype for parameter in output.parameters()):
        return output
    return copy.deepcopy(output).float()


def batches(order: Ints, lengths: Ints, budget: int) -> Iterator[Ints]:
    """Rows in this order, as many as fit the budget of pieces; a longer row is a batch by itself."""
    ends = np.cumsum(lengths[order])
    start = 0
    while start < len(order):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + budget, side="right")), start + 1)
        yield order[start:end]
        start = end


def _batch(guesses: Guesses, rows: Ints, mask: int) -> tuple[Ints, Ints, Ints]:
    """The pieces of some rows [N], the places of the states that guess [M], and the pieces that they guess [M]."""
    lengths = guesses.lengths[guesses.stretch[rows]]
    offsets = np.cumsum(lengths) - lengths
    within = counted(lengths)
    ids = guesses.ids[within + np.repeat(guesses.starts[guesses.stretch[rows]], lengths)]
    hidden = guesses.hidden[rows]
    if (hidden[:, 1] > hidden[:, 0]).any():
        ids[(within >= np.repeat(hidden[:, 0], lengths)) & (within < np.repeat(hidden[:, 1], lengths))] = mask
    counts = guesses.count[rows]
    steps = counted(counts)
    return ids, np.repeat(offsets + guesses.place[rows], counts) + steps, np.repeat(guesses.first[rows], counts) + steps


def counted(counts: Ints) -> Ints:
    """0 … n-1 for each of the counts, one after another.

    >>> counted(np.array([3, 0, 2])).tolist()
    [0, 1, 2, 0, 1]
    """
    total = int(counts.sum())
    return np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)


@contextlib.contextmanager
def _cores(
    device: torch.device, n_pieces: int, threads: bool
) -> Iterator[Callable[..., Iterable[tuple[Ints, Tensor, Tensor | None, int]]]]:
    """A `map` over batches, with as many cores as so many pieces are worth."""
    if device.type == "cpu" and n_pieces <= LITTLE_WORK:
        with one_core():
            yield map
    elif device.type == "cpu" and threads and n_pieces >= MUCH_WORK:
        with side_by_side() as run_all:
            yield run_all
    else:
        yield map


def flat(arrays: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Arrays one after another, and where each begins, with the end of all."""
    ends = np.cumsum([0, *map(len, arrays)])
    return (np.concatenate(arrays) if len(arrays) else np.zeros(0, np.int64)), ends

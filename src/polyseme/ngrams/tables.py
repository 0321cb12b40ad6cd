"""The tables of an n-gram model, and how they are looked up.

The n-grams of each order are a sorted array of keys: the number of an n-gram's prefix among those of the order below,
times the size of the vocabulary, plus its last piece. So an n-gram's number is its place among the keys, its
continuations are a run of the next order's, and every query is a binary search, for all places of a text at once.

Each n-gram has the logarithm of its probability after its prefix and, below the highest order, that of its back-off
weight (Katz 1987), as ARPA files have them:

    log p(w | h) = the n-gram's own, if h w is in the tables, else back-off(h) + log p(w | h without its first piece)

Shapes: N places, R rows, V pieces in the vocabulary, O the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def find(keys: Ints, queries: Ints) -> Ints:
    """Where each queried key is among sorted keys; -1 where it is not. Queries below 0 are nowhere.

    >>> find(np.array([2, 5, 9]), np.array([9, 4, -1])).tolist()
    [2, -1, -1]
    """
    if not len(keys):
        return np.full(queries.shape, -1, np.int64)
    places = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[places] == queries, places, -1)


@dataclass(frozen=True)
class NGramTables:
    """The n-grams of a model with their probabilities and back-off weights."""

    n_pieces: int
    """V"""
    keys: Sequence[Ints]
    """Of the orders 2 to O, sorted."""
    log_probs: Sequence[Floats]
    """Of the orders 1 to O, natural; the unigrams are all pieces, those that never come next at minus infinity."""
    backoffs: Sequence[Floats]
    """Of the orders 1 to O - 1, natural."""

    @property
    def order(self) -> int:
        return len(self.log_probs)

    @property
    def n_ngrams(self) -> tuple[int, ...]:
        """Of each order."""
        return tuple(len(each) for each in self.log_probs)

    @property
    def n_numbers(self) -> int:
        """Probabilities and back-off weights."""
        return sum(self.n_ngrams) + sum(map(len, self.backoffs))

    # --- states: what an n-gram model knows of all that came before ---------------------------------------------------

    def new_states(self, rows: int) -> Ints:
        """[R, O - 1]: the state before anything was read."""
        return np.full((rows, self.order - 1), -1, np.int64)

    def advance(self, states: Ints, pieces: Ints) -> Ints:
        """The states [N, O - 1] after one more piece each [N]: column k is the number of the last k + 1 pieces."""
        advanced = np.empty_like(states)
        for k in range(self.order - 1):
            advanced[:, k] = pieces if k == 0 else self._find(k + 1, states[:, k - 1], pieces)
        return advanced

    def states_of(self, pieces: Ints, begins: NDArray[np.bool_]) -> Ints:
        """[N, O - 1]: the state after each piece [N] of a run; `begins` says where nothing before a piece is seen."""
        states = self.new_states(len(pieces))
        for k in range(self.order - 1):
            if k == 0:
                states[:, 0] = pieces
            else:
                before = np.concatenate([[-1], states[:-1, k - 1]])
                states[:, k] = self._find(k + 1, np.where(begins, -1, before), pieces)
        return states

    def _find(self, order: int, prefixes: Ints, pieces: Ints) -> Ints:
        """The numbers of n-grams of an order, by the numbers of their prefixes and their last pieces."""
        return find(self.keys[order - 2], np.where(prefixes < 0, -1, prefixes * self.n_pieces + pieces))

    # --- probabilities ------------------------------------------------------------------------------------------------

    def log_probs_of(self, states: Ints, pieces: Ints) -> Floats:
        """[N]: how likely each piece [N] is in its state [N, O - 1]."""
        log_probs = self.log_probs[0][pieces]
        for k in range(self.order - 1):
            contexts = states[:, k]
            numbers = self._find(k + 2, contexts, pieces)
            backed_off = log_probs + np.where(contexts < 0, 0.0, self.backoffs[k][contexts])
            log_probs = np.where(numbers < 0, backed_off, self._look_up(k + 2, numbers))
        return log_probs

    def _look_up(self, order: int, numbers: Ints) -> Floats:
        own = self.log_probs[order - 1]
        return own[numbers] if len(own) else np.zeros(len(numbers))

    def all_log_probs(self, states: Ints) -> Floats:
        """[R, V]: how likely every piece is in each state [R, O - 1]."""
        log_probs = np.repeat(self.log_probs[0][None], len(states), axis=0)
        for k in range(self.order - 1):
            known = np.flatnonzero(states[:, k] >= 0)
            contexts = states[known, k]
            log_probs[known] += self.backoffs[k][contexts, None]
            bounds = np.searchsorted(self.keys[k], np.stack([contexts, contexts + 1]) * self.n_pieces)
            for row, context, start, end in zip(known, contexts, *bounds, strict=True):
                log_probs[row, self.keys[k][start:end] - context * self.n_pieces] = self.log_probs[k + 1][start:end]
        return log_probs

    # --- n-grams themselves -------------------------------------------------------------------------------------------

    def pieces_of(self, order: int, numbers: Ints) -> Ints:
        """[N, order]: the pieces of n-grams by their numbers."""
        columns = []
        for above in range(order, 1, -1):
            prefixes, last = np.divmod(self.keys[above - 2][numbers], self.n_pieces)
            columns.append(last)
            numbers = prefixes
        return np.stack([numbers, *reversed(columns)], axis=1)

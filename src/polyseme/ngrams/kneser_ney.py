"""Kneser–Ney smoothing (Kneser and Ney 1995), interpolated and modified (Chen and Goodman 1998).

From every count a discount is taken, and is shared out among all pieces by their probability after one piece less:

    p(w | h) = (c(h w) − D) / Σ_v c(h v) + γ(h) · p(w | h without its first piece)
    γ(h) = (sum of the discounts taken after h) / Σ_v c(h v)

Below the highest order, c counts the different pieces before an n-gram (`counting`). Below the unigrams all pieces are
equally likely. The modified method has a discount for n-grams that occur once, twice, and three times or more; both
derive it from how many n-grams n_k of an order occur k times:

    Y = n1 / (n1 + 2 n2)     D1 = 1 − 2 Y n2 / n1     D2 = 2 − 3 Y n3 / n2     D3 = 3 − 4 Y n4 / n3

and the one discount of the other is Y itself, or what the user says. All is computed in float64.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import OptionError, PolysemeWarning, nearest
from polyseme.ngrams.counting import NGramCounts, blocks
from polyseme.ngrams.tables import Floats, Ints, NGramTables

Smoothing = Literal["modified", "interpolated"]
SMOOTHINGS: tuple[Smoothing, ...] = ("modified", "interpolated")
FALLBACK = (0.5, 1.0, 1.5)
"""Discounts where the counts of a text give none: those of KenLM for the same purpose."""


def estimate(counts: NGramCounts, events: NDArray[np.bool_], discounts: Sequence[Sequence[float]]) -> NGramTables:
    """The tables of a model, mapped from files as the counts are, with the discounts of each order (`discounts_of`).

    `events` [V] are the pieces that may come next: all but those that begin texts, pad rows or mask.
    """
    unigrams = np.asarray(counts.counts[0])
    taken, total = _choose_discounts(unigrams, discounts[0]), unigrams.sum()
    below: Floats = np.where(events, (unigrams - taken) / total + taken.sum() / total / events.sum(), 0.0)
    log_probs, backoffs = [_logarithm(below)], []
    for order in range(2, counts.order + 1):
        own, keys, suffixes = counts.counts[order - 1], counts.keys[order - 2], counts.suffixes[order - 2]
        totals, gammas = (counts.arrays.new(len(below), np.float64) for _ in range(2))
        for block in blocks(len(keys)):
            contexts = keys[block] // counts.n_pieces
            first, last = int(contexts[0]), int(contexts[-1]) + 1
            taken = _choose_discounts(own[block], discounts[order - 1])
            totals[first:last] += np.bincount(contexts - first, own[block])
            gammas[first:last] += np.bincount(contexts - first, taken)
        for block in blocks(len(below)):
            with np.errstate(invalid="ignore"):
                gammas[block] = np.where(totals[block] > 0, gammas[block] / totals[block], 1.0)
        probabilities, theirs = (counts.arrays.new(len(keys), np.float64) for _ in range(2))
        for block in blocks(len(keys)):
            contexts = keys[block] // counts.n_pieces
            discounted = (own[block] - _choose_discounts(own[block], discounts[order - 1])) / totals[contexts]
            probabilities[block] = discounted + gammas[contexts] * below[suffixes[block]]
            theirs[block] = np.log(probabilities[block])
        for block in blocks(len(below)):
            gammas[block] = _logarithm(gammas[block])
        log_probs.append(theirs)
        backoffs.append(gammas)
        below = probabilities
    return NGramTables(counts.n_pieces, counts.keys, log_probs, backoffs)


def _logarithm(numbers: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        logarithms: Floats = np.log(numbers)
    return logarithms


def _choose_discounts(counts: Ints, discounts: Sequence[float]) -> Floats:
    """The discount of each count; nothing is taken of nothing."""
    return np.array([0.0, *discounts])[np.minimum(counts, len(discounts))]


def discounts_of(
    counts: NGramCounts, smoothing: Smoothing = "modified", discount: float | None = None
) -> list[tuple[float, ...]]:
    """The discounts of each order, of counts 1, 2, … and of all above the last."""
    return [_discounts(each, order, smoothing, discount) for order, each in enumerate(counts.counts, start=1)]


def _discounts(counts: Ints, order: int, smoothing: Smoothing, discount: float | None) -> tuple[float, ...]:
    """Those of one order.

    >>> _discounts(np.array([1, 1, 1, 1, 2, 2, 3, 4]), 2, "modified", None)
    (0.5, 1.25, 1.0)
    >>> _discounts(np.array([1, 1, 1, 1, 2, 2, 3, 4]), 2, "interpolated", None)
    (0.5,)
    """
    if discount is not None:
        return (discount,)
    frequencies = np.zeros(5, np.int64)
    for block in blocks(len(counts)):
        frequencies += np.bincount(np.minimum(counts[block], 5), minlength=6)[:5]
    n1, n2, n3, n4 = frequencies[1:].tolist()
    y = n1 / (n1 + 2 * n2) if n1 else math.nan
    if smoothing == "interpolated":
        discounts: tuple[float, ...] = (y,)
    elif n1 and n2 and n3:
        discounts = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    else:
        discounts = (math.nan,)
    if all(0 < each <= k for k, each in enumerate(discounts, start=1)):
        return discounts
    fallback = FALLBACK[: 1 if smoothing == "interpolated" else 3]
    warnings.warn(
        f"The text is too small, or too strange, to derive discounts for n-grams of order {order}: of them {n1:,}, "
        f"{n2:,}, {n3:,} and {n4:,} occur once to four times. {', '.join(map(str, fallback))} were taken instead.",
        PolysemeWarning,
        stacklevel=3,
    )
    return fallback


def check_settings(order: object, smoothing: object, discount: object) -> None:
    """Refuse settings that mean nothing, before there is a corpus."""
    if isinstance(order, bool) or not isinstance(order, int) or order < 1:
        raise OptionError(
            f"The order of an n-gram model is the number of words of its longest n-grams, from 1 on. Got {order!r} "
            "instead."
        )
    if smoothing not in SMOOTHINGS:
        raise OptionError(f"There is no smoothing {smoothing!r}. {nearest(str(smoothing), SMOOTHINGS)}")
    if discount is None:
        return
    if smoothing != "interpolated":
        raise OptionError("One discount for all counts is for interpolated smoothing: give smoothing=interpolated too.")
    if isinstance(discount, bool) or not isinstance(discount, int | float) or not 0 < discount <= 1:
        raise OptionError(f"The discount must be a number above 0 and at most 1. Got {discount!r} instead.")

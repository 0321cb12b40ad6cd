"""Sums over words from which the geometry of layers follows in closed form, added up a few texts at a time.

Nothing here grows with the corpus: a layer has sums of vectors, and a pair of layers one matrix of their products.

Shapes: n words, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Doubles = NDArray[np.float64]

N_BLOCKS = 10
"""Groups of texts that are left out in turn, for the error of a mean over all pairs of words (jackknife)."""


def unit_vectors(vectors: Array) -> Doubles:
    """The vectors at length 1, in float64; zeros stay zeros."""
    doubles = vectors.astype(np.float64)
    lengths = np.linalg.norm(doubles, axis=-1, keepdims=True)
    result: Doubles = doubles / np.where(lengths > 0, lengths, 1)
    return result


def mean_cosine(total: Array, n: float) -> float:
    """The mean cosine of all pairs of n unit vectors, from their sum: (‖Σu‖² − n) / (n(n − 1)); NaN below two.

    >>> mean_cosine(np.array([1.0, 1.0]), 2)
    0.0
    """
    return float((total @ total - n) / (n * (n - 1))) if n > 1 else math.nan


@dataclass(frozen=True)
class Removal:
    """A mean and the first principal components, which are taken out of vectors (all-but-the-top)."""

    mean: Doubles
    components: Doubles
    """[D, K], orthonormal."""

    def __call__(self, vectors: Array) -> Doubles:
        centered = vectors.astype(np.float64) - self.mean
        result: Doubles = centered - (centered @ self.components) @ self.components.T
        return result


class Means:
    """A mean and its standard error."""

    def __init__(self) -> None:
        self.n = 0
        self._sum = self._squares = 0.0

    def add(self, values: Array) -> None:
        finite = values[np.isfinite(values)]
        self.n += len(finite)
        self._sum += float(finite.sum())
        self._squares += float((finite**2).sum())

    @property
    def mean(self) -> float:
        return self._sum / self.n if self.n else math.nan

    @property
    def error(self) -> float:
        """Of the mean; NaN of fewer than two values."""
        if self.n < 2:
            return math.nan
        return math.sqrt(max(self._squares - self.n * self.mean**2, 0.0) / (self.n - 1) / self.n)


class Directions:
    """The directions and lengths of one layer's vectors."""

    def __init__(self, width: int) -> None:
        self._sums = np.zeros((N_BLOCKS, width))
        self._counts = np.zeros(N_BLOCKS)
        self.norm = Means()
        self.intra_sentence = Means()
        """Over texts of two words and more: the mean cosine of a text's words to the mean of their vectors."""
        self.n_zero = 0

    def add(self, vectors: Array, lengths: Sequence[int], first: int) -> None:
        """Vectors of whole texts, [n, D], with the number of words of each, and the number of the first text."""
        units = unit_vectors(vectors)
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        self.norm.add(norms)
        self.n_zero += int((norms == 0).sum())
        start = 0
        cosines = []
        for number, length in enumerate(lengths, start=first):
            words = units[start : start + length]
            block = number % N_BLOCKS
            self._sums[block] += words.sum(axis=0)
            self._counts[block] += np.count_nonzero(norms[start : start + length])
            if length > 1:
                mean = unit_vectors(vectors[start : start + length].astype(np.float64).mean(axis=0))
                cosines.append(float((words @ mean).mean()))
            start += length
        self.intra_sentence.add(np.array(cosines))

    @property
    def anisotropy(self) -> float:
        """The mean cosine of all pairs of words; zero vectors, which have no direction, are left out."""
        return mean_cosine(self._sums.sum(axis=0), self._counts.sum())

    @property
    def anisotropy_error(self) -> float:
        """Its standard error by leaving out one block of texts at a time; NaN of a single text."""
        total, n = self._sums.sum(axis=0), self._counts.sum()
        filled = np.flatnonzero(self._counts)
        if len(filled) < 2:
            return math.nan
        left = np.array([mean_cosine(total - self._sums[each], n - self._counts[each]) for each in filled])
        return math.sqrt((len(left) - 1) / len(left) * float(((left - left.mean()) ** 2).sum()))


class CrossMoments:
    """Means, covariances and cross-covariances of several sets of vectors of the same words: layers, or two models'.

    Products are those of what is left without the mean of the first words, so that a large mean costs no digits.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        self.n = 0
        self._shifts: list[Array] = []
        self._sums = [np.zeros(width) for width in widths]
        self._products = {
            (row, column): np.zeros((widths[row], widths[column]))
            for row in range(len(widths))
            for column in range(row, len(widths))
        }

    def add(self, layers: Sequence[Array]) -> None:
        """[n, D] of each set."""
        if not len(layers[0]):
            return
        if not self._shifts:
            self._shifts = [layer.mean(axis=0, dtype=np.float64).astype(layer.dtype) for layer in layers]
        shifted = [layer - shift for layer, shift in zip(layers, self._shifts, strict=True)]
        self.n += len(layers[0])
        for total, layer in zip(self._sums, shifted, strict=True):
            total += layer.sum(axis=0, dtype=np.float64)
        for (row, column), products in self._products.items():
            products += shifted[row].T @ shifted[column]

    def mean(self, number: int) -> Doubles:
        """[D]"""
        result: Doubles = self._shifts[number] + self._sums[number] / self.n
        return result

    def products(self, row: int, column: int) -> Doubles:
        """[D, D']: the sum over words of the products of centered vectors."""
        low, high = sorted((row, column))
        of_means = np.outer(self._sums[low], self._sums[high]) / self.n
        result: Doubles = self._products[low, high] - of_means
        return result if row == low else result.T

    def cka(self, row: int, column: int) -> float:
        """Linear CKA (Kornblith et al. 2019): ‖XᵀY‖² / (‖XᵀX‖ ‖YᵀY‖) of centered X and Y; NaN where one is constant."""
        sizes = self._size(row, row) * self._size(column, column)
        return self._size(row, column) ** 2 / sizes if sizes > 0 else math.nan

    def _size(self, row: int, column: int) -> float:
        return float(np.linalg.norm(self.products(row, column)))

    def removal(self, number: int, n_components: int) -> Removal:
        """The mean of one set and its first principal components."""
        _, vectors = np.linalg.eigh(self.products(number, number))
        return Removal(self.mean(number), np.ascontiguousarray(vectors[:, ::-1][:, :n_components]))


def explained_by_first(vectors: Array) -> float:
    """The share of [m, D] vectors that their first principal component explains: σ₁² / Σσ², as Ethayarajh has it.

    The vectors are not centered: one direction for all of them is a static vector that replaces them. NaN of zeros.
    """
    doubles = vectors.astype(np.float64)
    squares = np.linalg.eigvalsh(doubles @ doubles.T)
    return float(squares[-1] / squares.sum()) if squares.sum() > 0 else math.nan

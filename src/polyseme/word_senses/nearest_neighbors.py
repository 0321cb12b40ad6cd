"""Nearest neighbors by cosine: exact, in blocks of bounded memory, or among candidates that a graph proposes.

Vectors are unit vectors, so a cosine is a product. Shapes: N vectors, D width.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import ModelError
from polyseme.extras import require

BLOCK = 1 << 16
"""Vectors that are multiplied at once."""

TINY = 1e-12

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Near(NamedTuple):
    """Rows and their cosines, nearest first; equally near ones in the order of rows."""

    rows: Ints
    cosines: Floats


def unit(vectors: NDArray[Any]) -> Floats:
    """The vectors at length 1, in float32; a zero vector stays zero."""
    vectors = np.asarray(vectors, dtype=np.float32)
    if not np.isfinite(vectors).all():
        raise ModelError(
            "Some vectors are not finite: the model's numbers have overflowed. Compute in a wider dtype: --dtype fp32."
        )
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    result: Floats = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32, copy=False)
    return result


def cosines_to(vectors: Floats, query: Floats, mean: Floats | None = None) -> Floats:
    """The cosine of each vector and the query; with `mean`, of what is left of both without it. [N]"""
    if mean is None:
        return vectors @ query
    rest = unit(query - mean)
    along, to_mean = (vectors @ np.stack([rest, mean], axis=1)).T  # nothing as large as the vectors is made
    squares = np.einsum("nd,nd->n", vectors, vectors) - 2 * to_mean + mean @ mean
    lengths = np.sqrt(np.maximum(squares, TINY))
    result: Floats = ((along - mean @ rest) / lengths).astype(np.float32)
    return result


def nearest(
    vectors: Floats,
    query: Floats,
    top: int,
    allowed: NDArray[np.bool_] | None = None,
    *,
    mean: Floats | None = None,
    block: int = BLOCK,
) -> Near:
    """The `top` rows of `vectors` [N, D] with the highest cosine to `query` [D], of those allowed ([N]).

    With `mean` [D], cosines are those of what is left without it.
    """
    best = Near(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
    for start in range(0, len(vectors), block):
        rows = np.arange(start, min(start + block, len(vectors)))
        if allowed is not None:
            rows = rows[allowed[rows]]
        if not len(rows):
            continue
        whole = len(rows) == min(block, len(vectors) - start)
        cosines = cosines_to(vectors[start : start + block] if whole else vectors[rows], query, mean)
        if len(best.rows) == top:  # a row that is not nearer than the last of the best is dropped
            closer = cosines > best.cosines[-1]
            rows, cosines = rows[closer], cosines[closer]
        best = _nearest(np.concatenate([best.rows, rows]), np.concatenate([best.cosines, cosines]), top)
    return best


def _nearest(rows: Ints, cosines: Floats, top: int) -> Near:
    if len(rows) > 2 * top:
        least = np.partition(cosines, len(cosines) - top)[len(cosines) - top]
        near = cosines >= least
        rows, cosines = rows[near], cosines[near]
    order = np.lexsort((rows, -cosines))[:top]
    return Near(rows[order], cosines[order])


class Graph:
    """A navigable graph over the vectors, which finds most neighbors without comparing all vectors."""

    def __init__(self, index: Any) -> None:
        self._index = index

    @staticmethod
    def build(vectors: Floats, *, block: int = BLOCK) -> Graph:
        """A graph of all rows; building takes minutes per million."""
        index = _usearch().Index(ndim=vectors.shape[1], metric="ip", dtype="f32", expansion_search=128)
        for start in range(0, len(vectors), block):
            rows = np.asarray(vectors[start : start + block])
            index.add(np.arange(start, start + len(rows)), rows)
        return Graph(index)

    @staticmethod
    def load(path: Path) -> Graph:
        """The graph in a file, which is read on demand."""
        return Graph(_usearch().Index.restore(str(path), view=True))

    def save(self, path: Path) -> None:
        self._index.save(str(path))

    def nearest(self, vectors: Floats, query: Floats, top: int, allowed: NDArray[np.bool_] | None = None) -> Near:
        """As `nearest`, but neighbors may be missed. The cosines are recomputed and exact."""
        n_candidates = top
        while True:
            n_candidates = min(2 * n_candidates, len(vectors))
            rows = np.sort(np.asarray(self._index.search(query, n_candidates).keys, dtype=np.int64))
            allowed_rows = rows if allowed is None else rows[allowed[rows]]
            if len(allowed_rows) >= top or n_candidates == len(vectors):
                return _nearest(allowed_rows, vectors[allowed_rows] @ query, top)


def _usearch() -> Any:
    return require("usearch.index", extra="index")

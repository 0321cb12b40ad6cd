"""Vectors projected onto a plane, for maps: PCA, t-SNE or UMAP.

PCA keeps distances in the two directions of greatest variance, and needs nothing beyond the core. t-SNE and UMAP keep
neighbors together and distort distances; they need scikit-learn and umap-learn (the extra `maps`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import OptionError, nearest
from polyseme.extras import require
from polyseme.word_senses.nearest_neighbors import Floats

Points = NDArray[np.float64]
NEIGHBORS = 15
"""Neighbors of a use that t-SNE and UMAP try to preserve, if there are more uses than that."""


def pca(vectors: Floats, seed: int) -> Points:
    """The two principal components; signs are such that the largest component of each direction is positive."""
    spread = vectors - vectors.mean(axis=0)
    if min(spread.shape) < 2:
        return np.zeros((len(vectors), 2))
    left, sizes, directions = np.linalg.svd(spread.astype(np.float64), full_matrices=False)
    largest = np.abs(directions[:2]).argmax(axis=1)
    signs = np.sign(directions[[0, 1], largest])
    points: Points = left[:, :2] * sizes[:2] * np.where(signs == 0, 1, signs)
    return points


def t_sne(vectors: Floats, seed: int) -> Points:
    """t-SNE, by scikit-learn."""
    if len(vectors) < 3:
        return pca(vectors, seed)
    manifold: Any = require("sklearn.manifold", extra="maps")
    perplexity = min(NEIGHBORS, (len(vectors) - 1) / 3)
    points: Points = manifold.TSNE(perplexity=perplexity, random_state=seed, init="pca").fit_transform(vectors)
    return points.astype(np.float64)


def umap(vectors: Floats, seed: int) -> Points:
    """UMAP, by umap-learn."""
    if len(vectors) < 4:
        return pca(vectors, seed)
    learn: Any = require("umap", extra="maps")
    n_neighbors = min(NEIGHBORS, len(vectors) - 1)
    points: Points = learn.UMAP(n_neighbors=n_neighbors, random_state=seed, n_jobs=1).fit_transform(vectors)
    return points.astype(np.float64)


MAPS: Mapping[str, Callable[[Floats, int], Points]] = {"pca": pca, "tsne": t_sne, "umap": umap}
NAMES = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}
"""As they are written under a map."""


def find_map(name: str) -> Callable[[Floats, int], Points]:
    """The projection with a name (`--map`)."""
    if name not in MAPS:
        raise OptionError(f"There is no map {name!r}. {nearest(name, MAPS)}")
    return MAPS[name]

"""The main job as the design defines it, written plainly and slowly: what the flow must equal.

A document is encoded and cut into windows that overlap by half; each window runs alone through the encoder's forward
pass; every piece is taken from the window that knows most of its surroundings; layers are combined, then words pooled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from polyseme.api import Model
from polyseme.types import Batch, Pieces

Array = NDArray[Any]


def windows_of(n_pieces: int, capacity: int) -> list[tuple[int, int]]:
    """Where windows start and end: every half window, and the last one ends with the document."""
    if n_pieces <= capacity:
        return [(0, n_pieces)]
    half = (capacity + 1) // 2
    return [(start, start + capacity) for start in range(0, n_pieces - capacity, half)] + [
        (n_pieces - capacity, n_pieces)
    ]


def window_of(piece: int, windows: list[tuple[int, int]], direction: str) -> int:
    """The window a piece is taken from: where its nearer edge is farthest away, the earlier one of two alike.

    The document's own ends are no edges. A causal encoder has but one: the left one.
    """

    def edge(number: int) -> float:
        start, end = windows[number]
        if direction == "causal":
            return piece - start
        left = float("inf") if number == 0 else piece - start
        right = float("inf") if number == len(windows) - 1 else end - 1 - piece
        return min(left, right)

    return max((number for number, (start, end) in enumerate(windows) if start <= piece < end), key=edge)


def piece_states(model: Model, ids: Array) -> Array:
    """[layers, n, D]: every piece from its window."""
    tokenizer, config = model.bundle.tokenizer, model.bundle.config
    assert tokenizer is not None
    windows = windows_of(len(ids), len(ids) if config.window is None else config.window - tokenizer.n_specials)
    states = []
    for start, end in windows:
        framed = tokenizer.frame(ids[start:end])
        row = Batch(torch.from_numpy(framed.ids)[None], segments=torch.from_numpy(framed.segments)[None])
        with torch.no_grad():
            found = model.bundle.encoder(row)
        layers = np.stack([found[number][0].numpy() for number in range(config.depth + 1)])
        states.append(layers[:, framed.offset : framed.offset + end - start])
    taken = []
    for piece in range(len(ids)):
        best = window_of(piece, windows, config.direction)
        taken.append(states[best][:, piece - windows[best][0]])
    return np.stack(taken, axis=1)


def word_vectors(
    model: Model, pieces: Pieces, combine: Callable[[Array], Array], pool: Callable[[Array], Array]
) -> list[Array]:
    """A vector a word. `combine` takes [layers, n, D] to [n, …]; `pool` takes a word's pieces [k, …] to […]."""
    if not len(pieces.words):
        return []
    vectors = combine(piece_states(model, pieces.ids))
    return [pool(vectors[first : last + 1]) for first, last in pieces.words.tolist()]

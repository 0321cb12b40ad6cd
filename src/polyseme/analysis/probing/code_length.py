"""Online code length (Voita and Titov 2020): the bits that it takes to send all training labels, given the vectors.

Examples come in blocks. The first is sent by a uniform code; each other by a probe that has learned from all before it.
Vectors from which labels are learned early and surely give short codes. Compression is the length of the uniform code
of all labels over this one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SHARES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.25, 12.5, 25.0, 50.0, 100.0)
"""Where blocks end, in percent of the examples, as in the paper."""

BlockLoss = Callable[[Tensor, Tensor], Tensor]
"""From the examples that are learned from and those that are sent: the loss of the latter in nats, of each layer."""


def block_ends(n: int, shares: Sequence[float] = SHARES) -> list[int]:
    """Where blocks of n examples end; none is empty.

    >>> block_ends(1000)
    [1, 2, 4, 8, 16, 32, 62, 125, 250, 500, 1000]
    >>> block_ends(100)
    [1, 3, 6, 12, 25, 50, 100]
    """
    ends = [max(1, math.floor(n * share / 100 + 1e-9)) for share in shares]
    return sorted({*ends[:-1], n})


def online_code_length(order: Tensor, n_labels: int, loss_of_block: BlockLoss) -> Tensor:
    """The bits of each layer, for examples in this order."""
    ends = block_ends(len(order))
    bits = torch.tensor(ends[0] * math.log2(n_labels), dtype=torch.float64)
    for start, end in itertools.pairwise(ends):
        bits = bits + loss_of_block(order[:start], order[start:end]).double().cpu() / math.log(2)
    return bits


def uniform_code_length(n: int, n_labels: int) -> float:
    """The bits of n labels that are all as likely."""
    return n * math.log2(n_labels)


def order_by_text(texts: NDArray[np.int64], numbers: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """The examples with texts in an order that the seed draws; those of one text stay together."""
    rng = np.random.default_rng((0xC0DE, seed))
    of_examples = texts[numbers]
    places = rng.permutation(int(of_examples.max()) + 1)
    return numbers[np.argsort(places[of_examples], kind="stable")]

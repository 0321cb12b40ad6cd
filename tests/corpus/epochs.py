"""All rows of an epoch."""

from __future__ import annotations

import numpy as np

from polyseme.corpus.layout import RowSource
from polyseme.types import Rows


def epoch_of(source: RowSource, epoch: int = 0) -> Rows:
    return source.rows(np.arange(source.n_rows) + epoch * source.n_rows)

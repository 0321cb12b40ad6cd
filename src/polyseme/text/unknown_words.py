"""Words that a tokenizer has no piece for, wholly or in part, and that are read as its unknown piece."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyseme.types import Pieces, Tokenizer


def count_unknown(
    encoded: Sequence[Pieces], tokenizer: Tokenizer, only: Sequence[tuple[int, int]] | None = None
) -> int:
    """How many words have the unknown piece among theirs; `only` looks at a run `[start, end)` of each one's pieces.

    Words that came out as nothing, and have it as a stand-in (`Pieces.n_unknown`), are left out.
    """
    unknown = tokenizer.specials.get("unknown")
    if unknown is None or not len(encoded) or encoded[0].ids.ndim > 1:
        return 0
    places = np.flatnonzero(np.concatenate([each.ids for each in encoded]) == unknown)
    if not len(places):
        return 0
    starts = np.cumsum([0, *map(len, encoded)])
    if only is not None:
        of = np.searchsorted(starts, places, side="right") - 1
        runs = np.array(only, dtype=np.int64).reshape(-1, 2)[of] + starts[of, None]
        places = places[(runs[:, 0] <= places) & (places < runs[:, 1])]
    words = np.concatenate([each.words + start for each, start in zip(encoded, starts, strict=False)])
    have = np.searchsorted(places, words[:, 0]) < np.searchsorted(places, words[:, 1], side="right")
    return max(int(np.count_nonzero(have)) - sum(each.n_unknown for each in encoded), 0)

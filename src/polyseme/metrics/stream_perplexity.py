"""The perplexity of streams of words, the ends of lines included."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from polyseme.metrics.evaluation_report import Figures, Line

if TYPE_CHECKING:
    from polyseme.datasets.wikitext import WordStream

COLUMNS: Mapping[str, str] = {
    "perplexity": "per word, the ends of lines counted as words: exp of minus the mean log-probability",
    "perplexity_per_piece": "the same per piece of the model",
    "log_prob": "of all pieces together, natural",
}


def stream_figures(streams: Sequence[WordStream], answers: Sequence[tuple[float, int]]) -> Figures:
    """The metric of streams, from the log-probability of each and the number of its pieces."""

    def line(level: str, name: str, n_words: int, log_prob: float, n_pieces: int, depth: int) -> Line:
        figures = {
            "perplexity": math.exp(min(-log_prob / max(n_words, 1), 700.0)),
            "perplexity_per_piece": math.exp(min(-log_prob / max(n_pieces, 1), 700.0)),
            "log_prob": log_prob,
        }
        return Line(level, name, n_words, figures, depth=depth)

    each = [
        (stream.name, stream.n_words, log_prob, n_pieces)
        for stream, (log_prob, n_pieces) in zip(streams, answers, strict=True)
    ]
    total = line("all", "all", *(sum(one[k] for one in each) for k in (1, 2, 3)), depth=0)  # type: ignore[misc]
    lines = [line("file", *one, depth=1) for one in each] if len(each) > 1 else []
    return Figures(columns=COLUMNS, lines=[total, *lines], shares=False)

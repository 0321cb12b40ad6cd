"""Scoring with an n-gram model: tables are looked up for all pieces of all texts at once."""

from __future__ import annotations

import numpy as np

from polyseme.ngrams.model_folder import NGramModel
from polyseme.scoring.target_rows import NUMBERS_AT_ONCE, ScoringMethod, ScoringRequest, TargetScores, Usage
from polyseme.text.ragged_arrays import concatenate


class NGramScoring(ScoringMethod):
    """Each piece after the few before it, the first behind what begins a text."""

    unscored_first: str | None = None

    def __init__(self, model: NGramModel) -> None:
        self.model = model

    @property
    def description(self) -> str:
        return f"left to right, by n-grams of up to {self.model.tables.order:,}"

    def __call__(self, request: ScoringRequest) -> tuple[TargetScores, Usage]:
        tables = self.model.tables
        pieces, ends = concatenate([each.ids for each in request.encoded])
        starts = ends[:-1]
        states = self.model.states_before(pieces, starts)
        scores = TargetScores.empty(len(pieces))
        scores.log_probs[:] = tables.log_probs_of(states, pieces)
        if request.best:
            runs = [(0, len(each)) for each in request.encoded] if request.only is None else request.only
            places = np.concatenate(
                [np.zeros(0, np.int64), *(np.arange(*run) + start for run, start in zip(runs, starts, strict=True))]
            )
            at_once = max(NUMBERS_AT_ONCE["cpu"] // tables.n_pieces, 1)
            for part in np.split(places, range(at_once, len(places), at_once)):
                every = tables.all_log_probs(states[part])
                own = np.take_along_axis(every, pieces[part, None], axis=1)
                scores.best[part] = (every >= own).sum(axis=1) == 1
        request.report(len(pieces), len(pieces))
        return scores, Usage(len(pieces), 0.0)

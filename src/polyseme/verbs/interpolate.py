"""`interpolate`: a mixture of models that predict the same pieces, with weights fitted to held-out text."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyseme.api import Model, load
from polyseme.cost import Cost, sum_of
from polyseme.embedding.row_documents import document_of
from polyseme.errors import InputError, OptionError
from polyseme.files.atomic import check_output
from polyseme.files.in_memory import inputs_of, names_of
from polyseme.files.reading_options import TextOptions
from polyseme.files.rows import read_rows
from polyseme.options import flat
from polyseme.result_tables import ShownAsTable, Table
from polyseme.scoring.mixture import fit_weights, mix_log_probs
from polyseme.scoring.text_scores import perplexity
from polyseme.scoring_models import Mixture
from polyseme.text.sentences import split_sentences
from polyseme.verb_options.text_options import InterpolateOptions, ScoringOptions


@dataclass(frozen=True, kw_only=True, repr=False)
class Interpolated(ShownAsTable):
    """A mixture of models, and how likely the held-out text is to each of them and to all."""

    model: Mixture
    names: Sequence[str]
    perplexities: Sequence[float]
    """Per piece of the held-out text, of each model alone."""
    perplexity: float
    """Of the mixture, on the same text, to which its weights are fitted."""
    n_pieces: int
    """Of the held-out text, those that all models score."""
    n_steps: int
    """Of fitting."""
    notes: Sequence[str]
    cost: Cost

    @property
    def weights(self) -> Sequence[float]:
        return self.model.weights

    def rows(self) -> list[tuple[str, str, str]]:
        """For tables: name, weight and perplexity of each model, and of the mixture."""
        each = zip(self.names, self.weights, self.perplexities, strict=True)
        alone = [(name, f"{weight:.4f}", f"{theirs:,.2f}") for name, weight, theirs in each]
        return [*alone, ("mixture", "1", f"{self.perplexity:,.2f}")]

    def table(self) -> Table:
        title = f"{len(self.names)} models, weights fitted to {self.n_pieces:,} pieces in {self.n_steps} steps"
        return Table.of(title, ("model", "weight", "perplexity per piece"), self.rows(), lambda row: row)


@flat(InterpolateOptions)
def interpolate(options: InterpolateOptions) -> Interpolated:
    """Mix models linearly: p(w) = Σ λ_i p_i(w), with the weights λ under which held-out text is likeliest.

    All must predict the same pieces, from left to right. The mixture is a model like any other, for `score`, `evaluate`
    and `generate`; with `output` it is written, with its models in it.
    """
    started = time.perf_counter()
    several = isinstance(options.model, Iterable) and not isinstance(options.model, str)
    named: list[Any] = [*options.model] if several else [options.model]  # type: ignore[misc]
    if len(named) < 2:
        raise OptionError(f"A mixture is of two models at least. Got {len(named)}: name each with -m (model=[…]).")
    inputs = inputs_of(options.source)
    if options.output is not None:
        theirs = [each.path if isinstance(each, Model) else each for each in named]
        check_output(
            options.output,
            force=options.force,
            kind="folder",
            inputs=[*names_of(inputs), *theirs],
            marks=["config.json"],
        )
    models = [each if isinstance(each, Model) else load(each, device=options.device) for each in named]
    mixture = Mixture(models, [1 / len(models)] * len(models))
    scorers = [model.scorer(ScoringOptions(), None) for model in models]
    mixture.scorer(ScoringOptions(), None)  # refuses models that cannot be mixed
    with read_rows(inputs, **options.values(TextOptions), sentences=split_sentences) as rows:
        documents = [document_of(row) for row in rows]
    if not documents:
        raise InputError("The held-out text is empty: there is nothing to fit the weights to.")
    each = np.stack([np.concatenate([scored.piece_log_probs for scored in scorer(documents)]) for scorer in scorers])
    each = each[:, ~np.isnan(each).any(axis=0)]
    weights, n_steps = fit_weights(each)
    mixture.weights = weights.tolist()
    if options.output is not None:
        mixture.save(options.output, force=options.force)
        mixture.path = str(options.output)
    seconds = time.perf_counter() - started
    cost = sum_of([scorer.cost(seconds / len(scorers)) for scorer in scorers])
    assert cost is not None
    return Interpolated(
        model=mixture,
        names=[model.path or "a model in memory" for model in models],
        perplexities=[perplexity(float(own.sum()), len(own)) for own in each],
        perplexity=perplexity(float(mix_log_probs(each, weights).sum()), each.shape[1]),
        n_pieces=each.shape[1],
        n_steps=n_steps,
        notes=[*dict.fromkeys(note for scorer in scorers for note in scorer.cautions())],
        cost=cost,
    )

"""`score`: how likely the words, pieces or bytes of texts are."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from polyseme import __version__
from polyseme.api import Model, load
from polyseme.cost import Cost
from polyseme.errors import OptionError
from polyseme.files import chunks
from polyseme.files.in_memory import Inputs, describe_inputs, inputs_of, names_of
from polyseme.files.reading_options import ReadingOptions
from polyseme.files.rows import read_rows
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.result_tables import ShownAsTable, Table, counted
from polyseme.scoring.any_order import parse_order
from polyseme.scoring.neural_cache import neural_cache_of
from polyseme.scoring.pseudo_likelihood import check_hide
from polyseme.scoring.score_files import SourcedRows, check_scores_output, score_files, scoring_job
from polyseme.scoring.score_formats import check_by
from polyseme.scoring.scorer import Scorer
from polyseme.scoring.text_scores import ScoredDocument, Totals, scores_table, shaded_html
from polyseme.scoring.word_bounds import check_word_probability
from polyseme.text.sentences import split_sentences
from polyseme.verb_options.text_options import MaskOptions, ScoreOptions
from polyseme.verbs.on_cluster import check_workers, workers_of


@dataclass(frozen=True, kw_only=True, repr=False)
class Scores(ShownAsTable):
    """The scores of the texts of files."""

    method: str
    """In words, how the model predicts."""
    totals: Totals
    texts: list[ScoredDocument]
    """Each with its scores, unless they are written to a file."""
    notes: Sequence[str]
    cost: Cost

    def table(self) -> Table:
        texts = counted(self.totals.texts, "text")
        title = f"{texts}, scored {self.method}: perplexity per word {self.totals.perplexity_per_word:,.1f}"
        return replace(scores_table(self.texts), title=title, note=self.cost.line())

    def _repr_html_(self) -> str:
        return (super()._repr_html_() or "") + (shaded_html(self.texts) if self.texts else "")


@flat(ScoreOptions)
def score(options: ScoreOptions) -> Scores:
    """Score every text of files (folders, patterns, `-`), or texts in memory: how likely their words or pieces are.

    Interrupted work is resumed by the same call.
    """
    started = time.perf_counter()
    check_by(options.by)
    check_workers(options)
    check_word_probability(options.word_probability)
    if options.word_probability == "corrected" and options.by in ("piece", "byte"):
        raise OptionError(f"The correction is of words; scores by {options.by} have none. Leave one of both out.")
    check_hide(options.hide)
    neural_cache_of(options.neural_cache, options.cache_size, options.cache_share, options.cache_sharpness)
    if options.order is not None:
        parse_order(options.order)
    output, source = options.output, options.source
    if source is None and options.source_field is not None:
        raise OptionError(f"The option 'source_field' ({options.source_field!r}) is about a source, and there is none.")
    inputs = inputs_of(options.sources)
    if output is not None:
        check_scores_output(output, by=options.by, force=options.force, inputs=[*names_of(inputs), source])
    loaded, scorer = _load(options)
    if scorer.needs_source and source is None:
        raise OptionError(
            "The model reads a source and says how likely a text is given that. Name the file with the sources "
            "(--source)."
        )
    if source is not None and not scorer.needs_source:
        raise OptionError(f"The model reads no source; it scores texts by themselves. Leave the source ({source}) out.")
    reading = {**options.values(ReadingOptions), "null_is_empty": True, "sentences": split_sentences}
    of_source = {**reading, "field": _source_field(options), "id_field": None, "fields": ()}
    with (
        read_rows(inputs, **reading) as rows,
        nullcontext() if source is None else read_rows([os.fspath(source)], **of_source) as source_rows,
    ):
        total, scored = score_files(
            scorer,
            rows if source_rows is None else SourcedRows(rows, source_rows),
            output,
            by=options.by,
            marked=options.marked,
            settings=partial(_settings, options, loaded, scorer, inputs),
            force=options.force,
            progress=options.progress,
            workers=workers_of(options, worker_job, scorer.device),
        )
    notes = scorer.notes()
    if scorer.tally.wordless:
        notes.append(
            f"{scorer.tally.wordless:,} of {scorer.tally.documents:,} texts have no word in them, and no score."
        )
    cost = scorer.cost(time.perf_counter() - started)
    return Scores(method=scorer.description, totals=total, texts=scored, notes=notes, cost=cost)


def worker_job(options: ScoreOptions) -> chunks.Job[Any, Any]:
    """The job of a process that is given rows."""
    loaded, scorer = _load(options)
    settings = partial(_settings, options, loaded, scorer, [])
    return scoring_job(scorer, options.output, by=options.by, marked=options.marked, settings=settings)


def _load(options: ScoreOptions) -> tuple[Model, Scorer]:
    loaded = load(model_or_default("score", options.model), device=options.device, dtype=options.dtype)
    return loaded, loaded.scorer(options, options.batch_pieces)


def _source_field(options: ScoreOptions) -> str | None:
    return options.field if options.source_field is None else options.source_field


def _settings(options: ScoreOptions, loaded: Model, scorer: Scorer, inputs: Inputs) -> dict[str, Any]:
    """Everything that decides the result."""
    return {
        "model": loaded.path,
        **{f"the model's {part}": hash for part, hash in loaded.fingerprints().items()},
        "how": scorer.description,
        "by": options.by,
        "marked": options.marked,
        **options.values(MaskOptions),
        "input": describe_inputs(inputs),
        "source": None if options.source is None else os.fspath(options.source),
        "source_field": _source_field(options),
        **options.values(ReadingOptions),
        "dtype": options.dtype,
        "batch_pieces": options.batch_pieces,
        "device": scorer.device.type,
        "chunk_characters": chunks.CHUNK_CHARACTERS,
        "polyseme": __version__,
    }

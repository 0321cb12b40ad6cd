"""What users call to have texts scored: `score`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from polyseme.api import AnyPath, load
from polyseme.cost import Cost
from polyseme.embedding.embed_files import document_of, some_rows
from polyseme.errors import InputError, OptionError
from polyseme.files import read_rows
from polyseme.files.reading_options import ReadingOptions
from polyseme.files.rows import Row
from polyseme.files.source_paths import listed
from polyseme.options import flat
from polyseme.scoring.any_order import parse_order
from polyseme.scoring.choose_scorer import scorer_of
from polyseme.scoring.neural_cache import asked_for
from polyseme.scoring.pseudo_likelihood import check_hide
from polyseme.scoring.score_files import check_by, check_scores_output, scores_writer
from polyseme.scoring.scorer import Scorer
from polyseme.scoring.target_rows import OnBatch
from polyseme.scoring.text_scores import Scored, Totals, totals
from polyseme.text.sentences import split_sentences
from polyseme.types import Document, Progress
from polyseme.verb_options import MaskOptions, ScoreOptions


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What scoring some files found."""

    how: str
    """In words, how the model was asked."""
    totals: Totals
    texts: list[Scored]
    """Each with its scores, where they did not go to a file."""
    notes: Sequence[str]
    cost: Cost


@flat(ScoreOptions)
def score(options: ScoreOptions) -> Scores:
    """Score every text of files (folders, patterns, `-`): how likely a model finds its words, pieces or bytes."""
    started = time.perf_counter()
    check_by(options.by)
    check_hide(options.hide)
    cache = asked_for(options.neural_cache, options.cache_size, options.cache_share, options.cache_sharpness)
    if options.order is not None:
        parse_order(options.order)
    output, source = options.output, options.source
    if source is None and options.source_field is not None:
        raise OptionError(f"The option 'source_field' ({options.source_field!r}) is about a source, and there is none.")
    names = listed(options.sources)
    if output is not None:
        check_scores_output(output, force=options.force, inputs=[*names, source])
    loaded = load(options.model, device=options.device, dtype=options.dtype)
    scorer = scorer_of(
        loaded.bundle,
        **options.values(MaskOptions),
        neural_cache=cache,
        batch_pieces=options.batch_pieces,
        precision=loaded.precision,
    )
    _check_source(scorer, source)
    reading = {**options.values(ReadingOptions), "sentences": split_sentences}
    source_field = options.field if options.source_field is None else options.source_field
    of_source = {**reading, "field": source_field, "id_field": None, "fields": ()}
    found: list[Scored] = []
    summed = Totals()
    with (
        read_rows(names, **reading) as rows,
        nullcontext() if source is None else read_rows([os.fspath(source)], **of_source) as source_rows,
    ):

        def chunks() -> Iterator[list[Scored]]:
            before = 0
            beside = None if source_rows is None else iter(source_rows)
            for some in some_rows(rows):
                told = _of_chunk(options.progress, before, rows.done, rows.total)
                theirs = None if beside is None else _their_sources(some, beside, str(source))
                yield scorer([document_of(row) for row in some], told, sources=theirs)
                before = rows.done
            if beside is not None and (more := next(beside, None)) is not None:
                raise InputError(
                    f"{more.place}: there is no text for this source; {rows.name} has ended before. Each text has its "
                    "own source, in the same order."
                )

        if output is None:
            for scored in chunks():
                found += scored
                summed += totals(scored)
        else:
            with scores_writer(output, by=options.by, how=scorer.how, force=options.force) as sink:
                for scored in chunks():
                    sink.write(scored)
                    summed += totals(scored)
                _refuse_nothing(scorer, rows.name)
        _refuse_nothing(scorer, rows.name)
    notes = scorer.notes()
    if scorer.tally.wordless:
        notes.append(
            f"{scorer.tally.wordless:,} of {scorer.tally.documents:,} texts have no word in them, and no score."
        )
    cost = scorer.cost(time.perf_counter() - started)
    return Scores(how=scorer.how, totals=summed, texts=found, notes=notes, cost=cost)


def _check_source(scorer: Scorer, source: AnyPath | None) -> None:
    if scorer.needs_source and source is None:
        raise OptionError(
            "The model reads a source and says how likely a text is given that. Name the file with the sources "
            "(--source)."
        )
    if source is not None and not scorer.needs_source:
        raise OptionError(f"The model reads no source; it scores texts by themselves. Leave the source ({source}) out.")


def _their_sources(rows: Sequence[Row], beside: Iterator[Row], name: str) -> list[Document]:
    """The source of each row, refused where they have run out, and where one has no word."""
    found = []
    for row in rows:
        theirs = next(beside, None)
        if theirs is None:
            raise InputError(
                f"{row.place}: there is no source for this text; {name} has ended before. Each text has its own "
                "source, in the same order."
            )
        document = document_of(theirs)
        if not document.words:
            raise InputError(
                f"{theirs.place}: there is no word in this source, and {row.place} is to be scored given it. Write "
                "what is missing, or take the text out of both files."
            )
        found.append(document)
    return found


def _of_chunk(progress: Progress | None, before: int, until: int, total: int | None) -> OnBatch | None:
    """For the batches of a chunk: its bytes are as far as its pieces are."""
    if progress is None:
        return None
    return lambda done, of: progress(before + (until - before) * done // max(of, 1), total)


def _refuse_nothing(scorer: Scorer, name: str) -> None:
    if scorer.tally.wordless == scorer.tally.documents:
        raise InputError(f"{name} has no word in any text: there is nothing to score.")

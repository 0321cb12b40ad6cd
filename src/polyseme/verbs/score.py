"""What users call to have texts scored: `score`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from polyseme.api import AnyPath, Dtype, load
from polyseme.cost import Cost
from polyseme.embedding.embed_files import document_of, some_rows
from polyseme.errors import InputError, OptionError
from polyseme.files import read_rows
from polyseme.files.reading_options import Quotes, Split, Words
from polyseme.files.rows import Row
from polyseme.files.source_paths import Sources, listed
from polyseme.scoring.any_order import parse_order
from polyseme.scoring.choose_scorer import scorer_of
from polyseme.scoring.neural_cache import asked_for
from polyseme.scoring.pseudo_likelihood import Hide, check_hide
from polyseme.scoring.score_files import By, check_by, check_scores_output, scores_writer
from polyseme.scoring.scorer import Scorer
from polyseme.scoring.target_rows import OnBatch
from polyseme.scoring.text_scores import Scored, Totals, totals
from polyseme.text.sentences import split_sentences
from polyseme.types import Document, Progress


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


def score(
    sources: Sources,
    *,
    source: AnyPath | None = None,
    source_field: str | None = None,
    output: AnyPath | None = None,
    model: AnyPath | None = None,
    by: By = "word",
    hide: Hide = "word",
    order: str | Sequence[int] | None = None,
    stride: int | None = None,
    neural_cache: bool = False,
    cache_size: int = 2000,
    cache_share: float = 0.1,
    cache_sharpness: float = 0.3,
    field: str | None = None,
    id_field: str | None = None,
    fields: str | Sequence[str] = (),
    format: str | None = None,
    words: Words = "syntactic",
    split: Split = "line",
    quotes: Quotes = "double",
    delimiter: str | None = None,
    check_text: bool = True,
    device: str = "auto",
    dtype: Dtype = "fp32",
    batch_pieces: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Scores:
    """Score every text of some files (folders, patterns, `-`): how likely a model finds its words, pieces or bytes.

    Args:
        sources: a path, folder, pattern or `-` for standard input, or several of them.
        source: for a model that has a decoder, the file with the source of each text, in the same order; read as
            `sources` are.
        source_field: the field of `source` with the text; None: as `field`.
        output: where the scores go: .tsv, .jsonl, .parquet, or .html with the text shaded; None: they are returned.
        model: a model folder, or `hub:owner/name`, with an output that guesses pieces.
        by: what has a row of its own in the output: word, piece or byte.
        hide: as for `Model.score`.
        order: as for `Model.score`.
        stride: as for `Model.score`.
        neural_cache: whether a causal model's guesses are mixed with those of a cache of the text's own last pieces
            (Grave et al. 2017, `decode.neural_cache`).
        cache_size: how many pieces it keeps.
        cache_share: how much of the probability is the cache's (the paper's λ).
        cache_sharpness: how much the likeness of states decides (the paper's θ).
        field: the field, column or key with the text, or with the list of its words.
        id_field: the field with the id of a text; None: its number, counted from 1.
        fields: names of other fields to keep beside the scores, as strings, or "all".
        format: what the input is, where its ending does not say it: text, jsonl, csv, tsv, parquet, conll, conllu.
        words: in CoNLL-U, whether words are the syntactic words or the tokens of the surface.
        split: in plain text, whether a text is a line, a sentence (lines are split further), a paragraph or the whole
            document.
        quotes: in CSV and TSV, whether double quotes enclose fields, or none do.
        delimiter: in CSV and TSV, what separates the fields.
        check_text: in CoNLL-U, whether a sentence whose words do not add up to its text is refused.
        device: as for `load`.
        dtype: what is computed in, as for `load`.
        batch_pieces: how many pieces run together.
        force: replace an output that is there.
        progress: told how many bytes of the input are done, and of how many.
    """
    started = time.perf_counter()
    check_by(by)
    check_hide(hide)
    cache = asked_for(neural_cache, cache_size, cache_share, cache_sharpness)
    if order is not None:
        parse_order(order)
    if source is None and source_field is not None:
        raise OptionError(f"The option 'source_field' ({source_field!r}) is about a source, and there is none.")
    names = listed(sources)
    if output is not None:
        check_scores_output(output, force=force, inputs=[*names, source])
    loaded = load(model, device=device, dtype=dtype)
    scorer = scorer_of(
        loaded.bundle,
        hide=hide,
        order=order,
        stride=stride,
        neural_cache=cache,
        batch_pieces=batch_pieces,
        precision=loaded.precision,
    )
    _check_source(scorer, source)
    reading: dict[str, Any] = {
        "field": field,
        "id_field": id_field,
        "fields": fields,
        "format": format,
        "words": words,
        "split": split,
        "quotes": quotes,
        "delimiter": delimiter,
        "check_text": check_text,
        "sentences": split_sentences,
    }
    of_source = {**reading, "field": field if source_field is None else source_field, "id_field": None, "fields": ()}
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
                told = _of_chunk(progress, before, rows.done, rows.total)
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
            with scores_writer(output, by=by, how=scorer.how, force=force) as sink:
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

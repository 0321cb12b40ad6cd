"""`score` over files, by `files.chunked_job`: work that was stopped is resumed, and ends as if it had never stopped.

The ending of the output says what is written (`score_formats`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from polyseme.embedding.row_documents import document_of
from polyseme.errors import InputError, OptionError
from polyseme.files.atomic import AnyPath, check_output, whole_file
from polyseme.files.chunk_spool import JsonLines
from polyseme.files.chunked_job import results_of, run_job
from polyseme.files.chunks import Chunk, Job, Rows, Workers, by_characters, row_digest
from polyseme.files.rows import Row
from polyseme.files.unfinished_folder import clear_up
from polyseme.scoring.score_formats import FORMATS, By, ScoreFormat
from polyseme.scoring.scorer import Scorer
from polyseme.scoring.text_scores import ScoredDocument, Totals, totals
from polyseme.text.marked_word import marked_span
from polyseme.types import Document, OnBatch, Progress


@dataclass(frozen=True)
class TextScores:
    """What an output needs of one text."""

    totals: Totals
    content: Any


class _Stored(JsonLines):
    def save(self, path: Path, results: Sequence[TextScores]) -> dict[str, Any]:
        return super().save(path, [[asdict(each.totals), each.content] for each in results])

    def load(self, path: Path) -> Iterator[TextScores]:
        return (TextScores(Totals(**sums), content) for sums, content in super().load(path))


def check_scores_output(
    output: AnyPath, *, by: By = "word", force: bool, inputs: Iterable[AnyPath | None] = ()
) -> None:
    """Refuse an output that could not be written; to be called before any work."""
    if _ending(output) not in FORMATS:
        raise OptionError(f"Scores are written as {', '.join(FORMATS)}. Got {str(output)!r} instead.")
    if by == "text" and _ending(output) == ".html":
        raise OptionError("A page shades words, pieces or bytes. Scores by text go into a table: .csv, .tsv, .parquet.")
    clear_up(output)
    check_output(output, force=force, inputs=inputs)


def scoring_job(
    scorer: Scorer,
    output: AnyPath | None,
    *,
    by: By,
    settings: Callable[[], Mapping[str, Any]],
    marked: bool = False,
    name: str = "",
    sums: list[Totals] | None = None,
) -> Job[_Unit, Any]:
    """What is done with rows, which messages call `name`; the writer adds its texts up in `sums`, a list of one.

    `settings` gives all that decides the result; it is called only if the input is long enough to be resumed. With
    `marked`, only the span in brackets of each text has scores.
    """
    sums = [Totals()] if sums is None else sums

    def refuse_nothing() -> None:
        if scorer.tally.wordless == scorer.tally.documents:
            raise InputError(f"{name} has no word in any text: there is nothing to score.")

    def compute(chunk: Chunk[_Unit], on_batch: OnBatch) -> list[ScoredDocument]:
        sources = [source for _, source in chunk.units if source is not None]
        return scorer([text for text, _ in chunk.units], on_batch, sources=sources if scorer.needs_source else None)

    def in_output(chunk: Chunk[_Unit], on_batch: OnBatch) -> list[TextScores]:
        content = FORMATS[_ending(str(output))].content
        return [TextScores(each.totals, content(each, by, scorer.description)) for each in compute(chunk, on_batch)]

    @contextlib.contextmanager
    def open_output(path: AnyPath, force: bool, from_storage: bool) -> Iterator[_Writer]:
        with whole_file(path, force=force) as new_file:
            writer = _Writer(FORMATS[_ending(path)](new_file, by, scorer.description), sums)
            try:
                yield writer
            except BaseException:
                with contextlib.suppress(Exception):
                    writer.sink.finish(sums[0])
                raise
            writer.sink.finish(sums[0])

    return Job(
        noun="texts",
        ends_chunk=by_characters(),
        prepare=lambda rows: [_unit(row, marked=marked) for row in rows],
        compute=compute if output is None else in_output,
        tally=scorer.tally,
        open_output=open_output,
        storage=_Stored(),
        settings=settings,
        digest=_digest,
        before_first=scorer.method.prepare,
        before_finish=refuse_nothing,
    )


def score_files(
    scorer: Scorer,
    rows: Rows,
    output: AnyPath | None,
    *,
    by: By,
    settings: Callable[[], Mapping[str, Any]],
    marked: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> tuple[Totals, list[ScoredDocument]]:
    """Score every text of what is read; their sum, and the texts with their scores where there is no output."""
    sums = [Totals()]
    job = scoring_job(scorer, output, by=by, settings=settings, marked=marked, name=rows.name, sums=sums)
    if output is None:
        scored = [each for chunk in results_of(job, rows, progress) for each in chunk]
        return totals(scored), scored
    run_job(job, rows, output, force=force, progress=progress, workers=workers)
    return sums[0], []


@dataclass
class _Writer:
    """Adds up what it writes; the sum is in a list of one."""

    sink: ScoreFormat
    sums: list[Totals]

    def write(self, results: Sequence[TextScores], /) -> None:
        self.sink.write([each.content for each in results])
        for each in results:
            self.sums[0] += each.totals


# --- texts with their sources -----------------------------------------------------------------------------------------

_Unit = tuple[Document, Document | None]


@dataclass(frozen=True, slots=True)
class SourcedRow(Row):
    """A row with the row of its source, where the model scores texts given a source."""

    source: Row | None = None


class SourcedRows:
    """Rows with their sources, which are read beside them in the same order."""

    def __init__(self, rows: Rows, sources: Rows) -> None:
        self._rows = rows
        self._sources = sources
        self.name = rows.name
        self.total = None if sources.total is None else rows.total

    @property
    def done(self) -> int:
        return self._rows.done

    def __iter__(self) -> Iterator[Row]:
        sources = iter(self._sources)
        for row in self._rows:
            source = next(sources, None)
            if source is None:
                raise InputError(
                    f"{row.place}: there is no source for this text; {self._sources.name} has ended before. Each text "
                    "has its own source, in the same order."
                )
            yield SourcedRow(row.content, row.id, row.place, row.fields, row.text, row.spans, source)
        if (more := next(sources, None)) is not None:
            raise InputError(
                f"{more.place}: there is no text for this source; {self.name} has ended before. Each text has its "
                "own source, in the same order."
            )


def _unit(row: Row, *, marked: bool) -> _Unit:
    """A text, of which only the marked span may be scored, and its source, which must have a word."""
    text = document_of(row)
    if marked:
        try:
            text = marked_span(text)
        except InputError as error:
            raise InputError(f"{row.place}: {error}") from None
    if not isinstance(row, SourcedRow) or row.source is None:
        return text, None
    source = document_of(row.source)
    if not source.words:
        raise InputError(
            f"{row.source.place}: there is no word in this source, and {row.place} is to be scored given it. Write "
            "what is missing, or take the text out of both files."
        )
    return text, source


def _digest(row: Row) -> list[Any]:
    source = row.source if isinstance(row, SourcedRow) else None
    return [row_digest(row), None if source is None else row_digest(source)]


def _ending(output: AnyPath) -> str:
    return Path(output).suffix.lower()

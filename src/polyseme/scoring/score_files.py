"""`score` over files: scores as a table (CSV, TSV, Parquet), one line per text (JSONL), or a page with words shaded.

The ending of the output says which. The job is `files.chunked_job`'s: work that was stopped is resumed, and ends as if
it had never stopped. Tables have one row per word, piece, byte or text:

| column | |
|---|---|
| id | of the text |
| number | of the word, piece or byte in its text, counted from 0 |
| word, piece, byte, text | what it is; a byte is a number |
| start, end | where a word or piece is in the text, in characters |
| words, pieces | of a text: how many have a score |
| log_prob | natural; empty where there is none |
| surprisal | the same in bits |

Fields that were kept of the input follow, as strings. A line of JSONL has a text with the same in lists and its totals.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from polyseme.embedding.row_documents import document_of
from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.atomic import AnyPath, check_output, whole_file
from polyseme.files.chunk_spool import JsonLines
from polyseme.files.chunked_job import Chunk, Job, Rows, by_characters, results_of, row_digest, run_job
from polyseme.files.field_names import ColumnNames, as_text, fields_of_words
from polyseme.files.rows import Row
from polyseme.files.typed_columns import TypedColumns, rewritten
from polyseme.files.unfinished_folder import clear_up
from polyseme.plots.shaded_text import Mark, ShadedText, shaded_page
from polyseme.scoring.scorer import Scorer
from polyseme.scoring.text_scores import MOST_BITS, Floats, Scored, Totals, bits, shaded_words, surprisals, totals
from polyseme.text.marked_word import marked_span
from polyseme.types import Document, OnBatch, Progress

By = Literal["word", "piece", "byte", "text"]
"""What has a row of its own."""

COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "word": {"id": pa.string(), "number": pa.int64(), "word": pa.string(), "start": pa.int64(), "end": pa.int64()},
    "piece": {"id": pa.string(), "number": pa.int64(), "piece": pa.string(), "start": pa.int64(), "end": pa.int64()},
    "byte": {"id": pa.string(), "number": pa.int64(), "byte": pa.int64()},
    "text": {"id": pa.string(), "number": pa.int64(), "text": pa.string(), "words": pa.int64(), "pieces": pa.int64()},
}
SCORES = {"log_prob": pa.float64(), "surprisal": pa.float64()}


class ScoreFormat(Protocol):
    """A file of scores that is being written."""

    @staticmethod
    def content(scored: Scored, by: By, description: str) -> Any:
        """All that the file needs of a text, as JSON has it, so that it can be stored and resumed."""

    def write(self, contents: Sequence[Any]) -> None: ...

    def finish(self, total: Totals) -> None: ...


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


def check_by(by: str) -> None:
    """Refuse a unit that there is not."""
    if by not in get_args(By):
        raise OptionError(f"There are no scores by {by!r}. {nearest(str(by), get_args(By))}")


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
) -> tuple[Totals, list[Scored]]:
    """Score every text of what is read; their sum, and the texts with their scores where there is no output.

    `settings` gives all that decides the result; it is called only if the input is long enough to be resumed. With
    `marked`, only the span in brackets of each text has scores.
    """
    sums = [Totals()]

    def refuse_nothing() -> None:
        if scorer.tally.wordless == scorer.tally.documents:
            raise InputError(f"{rows.name} has no word in any text: there is nothing to score.")

    def compute(chunk: Chunk[_Unit], on_batch: OnBatch) -> list[Scored]:
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

    job: Job[_Unit, Any] = Job(
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
    if output is None:
        scored = [each for chunk in results_of(job, rows, progress) for each in chunk]
        return totals(scored), scored
    run_job(job, rows, output, force=force, progress=progress)
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


# --- words, pieces, bytes ---------------------------------------------------------------------------------------------


def unit_log_probs(scored: Scored, by: By) -> Floats:
    """The log-probabilities of a text's words, pieces or bytes, or of all its words together."""
    if by == "text":
        totals = scored.totals
        return np.array([totals.word_log_prob if totals.words else np.nan])
    return {"word": scored.word_log_probs, "piece": scored.piece_log_probs, "byte": scored.byte_log_probs}[by]


def units(scored: Scored, by: By) -> tuple[list[Any], list[list[int]]]:
    """A text's words, pieces or bytes, and where words and pieces stand; or the text."""
    if by == "text":
        return [scored.text], []
    if by == "word":
        return [str(word) for word in scored.words], [[word.start, word.end] for word in scored.words]
    if by == "piece":
        return scored.pieces, scored.spans.tolist()
    return list(scored.text.encode("utf-8", "surrogatepass")), []


# --- tables -----------------------------------------------------------------------------------------------------------


class _Table:
    """What both kinds of table have in common; their columns are those of the first text."""

    def __init__(self, path: Path, by: By, description: str) -> None:
        self._path = path
        self._by = by
        self._description = description
        self._names = ColumnNames({*COLUMNS[by], *SCORES})

    @staticmethod
    def content(scored: Scored, by: By, description: str) -> dict[str, Any]:
        """The rows of a text as columns, and its fields."""
        values, spans = units(scored, by)
        log_probs = unit_log_probs(scored, by)
        columns = {"id": [scored.id] * len(values), "number": list(range(len(values))), by: values}
        if by == "text":
            columns |= {"words": [scored.totals.words], "pieces": [scored.totals.pieces]}
        elif by != "byte":
            columns |= {"start": [start for start, _ in spans], "end": [end for _, end in spans]}
        columns |= {"log_prob": _numbers(log_probs), "surprisal": _numbers(surprisals(log_probs))}
        return {"columns": columns, "fields": dict(scored.fields)}

    def fields(self, content: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The fields of each row of a text; one that has a value for each word is shared out among the words."""
        n_rows, names = len(content["columns"]["id"]), self._names.of(content["fields"])
        fields = {names[name]: value for name, value in content["fields"].items()}
        if self._by != "word":
            return [fields] * n_rows
        return [fields_of_words(fields, [at], n_rows) for at in range(n_rows)]


class _Tsv(_Table):
    delimiter = "\t"

    def __init__(self, path: Path, by: By, description: str) -> None:
        super().__init__(path, by, description)
        self._file = path.open("w", encoding="utf-8", errors="surrogatepass", newline="")
        self._writer = csv.writer(self._file, delimiter=self.delimiter, lineterminator="\n")
        self._beside: list[str] | None = None
        """The columns of fields, which are those of the first text."""

    def write(self, contents: Sequence[Any]) -> None:
        for each in contents:
            columns, fields = dict(each["columns"]), self.fields(each)
            if self._beside is None:
                self._beside = list(self._names.of(each["fields"]).values())
                self._writer.writerow([*columns, *self._beside])
            for name in SCORES:
                columns[name] = ["" if number is None else f"{number:.6f}" for number in columns[name]]
            for row, own in zip(zip(*columns.values(), strict=True), fields, strict=True):
                self._writer.writerow([*row, *(as_text(own.get(name)) for name in self._beside)])

    def finish(self, total: Totals) -> None:
        self._file.close()


class _Csv(_Tsv):
    delimiter = ","


class _Parquet(_Table):
    def __init__(self, path: Path, by: By, description: str) -> None:
        super().__init__(path, by, description)
        self._writer: pq.ParquetWriter | None = None
        self._types = TypedColumns()

    def write(self, contents: Sequence[Any]) -> None:
        rows = [row for each in contents for row in self.fields(each)]
        self._types.observe(rows)
        own = {**COLUMNS[self._by], **SCORES}
        schema = pa.schema({**own, **self._types.types})
        schema = schema.with_metadata({"polyseme": json.dumps({"by": self._by, "how": self._description})})
        if self._writer is None:
            self._writer = _open_parquet(self._path, schema)
        elif schema != self._writer.schema:
            self._writer = rewritten(self._path, self._writer, schema, self._types, _open_parquet)
        values = {name: [value for each in contents for value in each["columns"][name]] for name in own}
        arrays = [*(pa.array(values[name], kind) for name, kind in own.items()), *self._types.arrays(rows).values()]
        self._writer.write_table(pa.table(arrays, schema=schema))

    def finish(self, total: Totals) -> None:
        if self._writer is not None:
            self._writer.close()


def _open_parquet(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, schema, compression="zstd")


# --- texts ------------------------------------------------------------------------------------------------------------


def as_json(scored: Scored, by: By, description: str) -> dict[str, Any]:
    """A text with its scores, as JSON has it."""
    values, spans = units(scored, by)
    log_probs = unit_log_probs(scored, by)
    return {
        "id": scored.id,
        "text": scored.text,
        "how": description,
        f"{by}s": values,
        **({"offsets": spans} if by in ("word", "piece") else {}),
        "log_probs": _numbers(log_probs),
        "surprisals": _numbers(surprisals(log_probs)),
        "totals": scored.totals.to_json(),
        **({"fields": dict(scored.fields)} if scored.fields else {}),
    }


class _Jsonl:
    def __init__(self, path: Path, by: By, description: str) -> None:
        self._file: io.TextIOBase = path.open("w", encoding="utf-8", errors="surrogatepass")

    @staticmethod
    def content(scored: Scored, by: By, description: str) -> str:
        return json.dumps(as_json(scored, by, description), ensure_ascii=False, default=str)

    def write(self, contents: Sequence[Any]) -> None:
        self._file.writelines(f"{line}\n" for line in contents)

    def finish(self, total: Totals) -> None:
        self._file.close()


class _Html:
    def __init__(self, path: Path, by: By, description: str) -> None:
        self._path = path
        self._by = by
        self._description = description
        self._texts: list[ShadedText] = []

    @staticmethod
    def content(scored: Scored, by: By, description: str) -> list[Any]:
        return list(shaded(scored, by))

    def write(self, contents: Sequence[Any]) -> None:
        for each in contents:
            heading, text, marks, note = each
            self._texts.append(ShadedText(heading, text, [Mark(*mark) for mark in marks], note))

    def finish(self, total: Totals) -> None:
        notes = [f"Scored {self._description}.", totals_line(total)]
        unit = {"word": "bits a word", "piece": "bits a piece", "byte": "bits a byte"}[self._by]
        page = shaded_page("How surprising each word is", self._texts, unit=unit, most=MOST[self._by], notes=notes)
        self._path.write_text(page, encoding="utf-8")


MOST: Mapping[str, float] = {"word": MOST_BITS, "piece": MOST_BITS, "byte": 8.0}
"""The surprisal, in bits, from which on shades grow no darker; the same on every page, so that pages compare."""


def shaded(scored: Scored, by: By) -> ShadedText:
    """A text with a mark for each word; by piece or byte, for each piece, those of one character together."""
    marks = shaded_words(scored).marks if by == "word" else _piece_marks(scored, by)
    return ShadedText(heading=scored.id, text=scored.text, marks=marks, note=totals_line(scored.totals))


def _piece_marks(scored: Scored, by: By) -> list[Mark]:
    """Pieces in the order of the text; where the places of two overlap, they have one mark and their sum."""
    marks: list[Mark] = []
    order = np.argsort(scored.spans[:, 0], kind="stable").tolist()
    values = scored.piece_surprisals.tolist()
    for number in order:
        start, end = scored.spans[number].tolist()
        value, piece = values[number], scored.pieces[number]
        if marks and (start < marks[-1].end or start == end):
            last = marks.pop()
            start, end = last.start, max(last.end, end)
            value, piece = value + last.value, f"{last.label} {piece}"
        if end > start:
            marks.append(Mark(start, end, value, piece))
    labeled = []
    for mark in marks:
        n_bytes = len(scored.text[mark.start : mark.end].encode("utf-8", "surrogatepass"))
        value = mark.value / n_bytes if by == "byte" else mark.value
        labeled.append(Mark(mark.start, mark.end, value, f"{mark.label}: {bits(value)}"))
    return labeled


def totals_line(sums: Totals) -> str:
    """What scores come to, in a line."""
    if not sums.pieces:
        return "Nothing in it has a score."
    return (
        f"Log-probability {sums.log_prob:,.2f} over {sums.words:,} words, {sums.pieces:,} pieces, "
        f"{sums.bytes:,} bytes; perplexity {sums.perplexity_per_word:,.2f} a word, "
        f"{sums.perplexity_per_piece:,.2f} a piece, {sums.perplexity_per_byte:,.3f} a byte."
    )


FORMATS: Mapping[str, type[Any]] = {
    ".csv": _Csv,
    ".tsv": _Tsv,
    ".jsonl": _Jsonl,
    ".parquet": _Parquet,
    ".html": _Html,
}
"""From the ending of an output to its `ScoreFormat`."""


def _numbers(values: Floats) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _ending(output: AnyPath) -> str:
    return Path(output).suffix.lower()

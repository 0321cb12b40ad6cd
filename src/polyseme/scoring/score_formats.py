"""Files of scores: a table (CSV, TSV, Parquet), one line per text (JSONL), or a page with words shaded.

Tables have one row per word, piece, byte or text:

| column | |
|---|---|
| id | of the text |
| position | of the word, piece or byte in its text, counted from 0 |
| word, piece, byte, text | what it is; a byte is a number |
| start, end | where a word or piece is in the text, in characters |
| words, pieces | of a text: how many have a score |
| log_prob | natural; empty where there is none |
| surprisal | the same in bits |

Fields that were kept of the input follow, as strings. A line of JSONL has a text with the same in lists and its totals.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from polyseme.errors import OptionError, nearest
from polyseme.files.field_names import ColumnNames, as_text, fields_of_words
from polyseme.files.typed_columns import TypedColumns, rewritten
from polyseme.plots.shaded_text import Mark, ShadedText, shaded_page
from polyseme.scoring.text_scores import MOST_BITS, Floats, ScoredDocument, Totals, bits, shaded_words, surprisals

By = Literal["word", "piece", "byte", "text"]
"""What has a row of its own."""

COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "word": {"id": pa.string(), "position": pa.int64(), "word": pa.string(), "start": pa.int64(), "end": pa.int64()},
    "piece": {"id": pa.string(), "position": pa.int64(), "piece": pa.string(), "start": pa.int64(), "end": pa.int64()},
    "byte": {"id": pa.string(), "position": pa.int64(), "byte": pa.int64()},
    "text": {"id": pa.string(), "position": pa.int64(), "text": pa.string(), "words": pa.int64(), "pieces": pa.int64()},
}
SCORES = {"log_prob": pa.float64(), "surprisal": pa.float64()}


class ScoreFormat(Protocol):
    """A file of scores that is being written."""

    @staticmethod
    def content(scored: ScoredDocument, by: By, description: str) -> Any:
        """All that the file needs of a text, as JSON has it, so that it can be stored and resumed."""

    def write(self, contents: Sequence[Any]) -> None: ...

    def finish(self, total: Totals) -> None: ...


def check_by(by: str) -> None:
    """Refuse a unit that there is not."""
    if by not in get_args(By):
        raise OptionError(f"There are no scores by {by!r}. {nearest(str(by), get_args(By))}")


# --- words, pieces, bytes ---------------------------------------------------------------------------------------------


def unit_log_probs(scored: ScoredDocument, by: By) -> Floats:
    """The log-probabilities of a text's words, pieces or bytes, or of all its words together."""
    if by == "text":
        totals = scored.totals
        return np.array([totals.word_log_prob if totals.words else np.nan])
    return {"word": scored.word_log_probs, "piece": scored.piece_log_probs, "byte": scored.byte_log_probs}[by]


def units(scored: ScoredDocument, by: By) -> tuple[list[Any], list[list[int]]]:
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
    def content(scored: ScoredDocument, by: By, description: str) -> dict[str, Any]:
        """The rows of a text as columns, and its fields."""
        values, spans = units(scored, by)
        log_probs = unit_log_probs(scored, by)
        columns = {"id": [scored.id] * len(values), "position": list(range(len(values))), by: values}
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


def as_json(scored: ScoredDocument, by: By, description: str) -> dict[str, Any]:
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
    def content(scored: ScoredDocument, by: By, description: str) -> str:
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
    def content(scored: ScoredDocument, by: By, description: str) -> list[Any]:
        return list(shaded(scored, by))

    def write(self, contents: Sequence[Any]) -> None:
        for each in contents:
            heading, text, marks, note = each
            self._texts.append(ShadedText(heading, text, [Mark(*mark) for mark in marks], note))

    def finish(self, total: Totals) -> None:
        notes = [f"Scored {self._description}.", totals_line(total)]
        unit = {"word": "bits per word", "piece": "bits per piece", "byte": "bits per byte"}[self._by]
        page = shaded_page("How surprising each word is", self._texts, unit=unit, most=MOST[self._by], notes=notes)
        self._path.write_text(page, encoding="utf-8")


MOST: Mapping[str, float] = {"word": MOST_BITS, "piece": MOST_BITS, "byte": 8.0}
"""The surprisal, in bits, from which on shades grow no darker; the same on every page, so that pages compare."""


def shaded(scored: ScoredDocument, by: By) -> ShadedText:
    """A text with a mark for each word; by piece or byte, for each piece, those of one character together."""
    marks = shaded_words(scored).marks if by == "word" else _piece_marks(scored, by)
    return ShadedText(heading=scored.id, text=scored.text, marks=marks, note=totals_line(scored.totals))


def _piece_marks(scored: ScoredDocument, by: By) -> list[Mark]:
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
        f"{sums.bytes:,} bytes; perplexity {sums.perplexity_per_word:,.2f} per word, "
        f"{sums.perplexity_per_piece:,.2f} per piece, {sums.perplexity_per_byte:,.3f} per byte."
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

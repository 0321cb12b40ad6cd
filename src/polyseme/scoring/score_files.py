"""Scores as a file: a table (TSV, Parquet), a line a text (JSONL), or a page with its words shaded, by the ending.

Tables have a row a word, a piece or a byte:

| column | |
|---|---|
| id | of the text |
| number | of the word, piece or byte in its text, counted from 0 |
| word, piece, byte | what it is; a byte is a number |
| start, end | where a word or piece stands in the text, in characters |
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
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from polyseme.errors import OptionError, OutputError, nearest
from polyseme.files.atomic import AnyPath, check_output, whole_file
from polyseme.plots.shaded_text import Mark, ShadedText, shaded_page
from polyseme.scoring.text_scores import Floats, Scored, Totals, surprisals, totals

By = Literal["word", "piece", "byte"]
"""What has a row of its own."""

COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "word": {"id": pa.string(), "number": pa.int64(), "word": pa.string(), "start": pa.int64(), "end": pa.int64()},
    "piece": {"id": pa.string(), "number": pa.int64(), "piece": pa.string(), "start": pa.int64(), "end": pa.int64()},
    "byte": {"id": pa.string(), "number": pa.int64(), "byte": pa.int64()},
}
SCORES = {"log_prob": pa.float64(), "surprisal": pa.float64()}


class Sink(Protocol):
    """Takes texts, chunk by chunk."""

    def write(self, scored: Sequence[Scored]) -> None: ...

    def finish(self) -> None: ...


def check_scores_output(output: AnyPath, *, force: bool, inputs: Iterable[AnyPath | None] = ()) -> None:
    """Refuse an output that could not be written; to be called before any work."""
    if _ending(output) not in FORMATS:
        raise OptionError(f"Scores are written as {', '.join(FORMATS)}. Got {str(output)!r} instead.")
    check_output(output, force=force, inputs=inputs)


def check_by(by: str) -> None:
    """Refuse a unit that there is not."""
    if by not in get_args(By):
        raise OptionError(f"There are no scores by {by!r}. {nearest(str(by), get_args(By))}")


@contextlib.contextmanager
def scores_writer(output: AnyPath, *, by: By, how: str, force: bool = False) -> Iterator[Sink]:
    """A writer for the format that `output` ends in; the file is there, and whole, once the block has ended well."""
    with whole_file(output, force=force) as path:
        sink = FORMATS[_ending(output)](path, by, how)
        try:
            yield sink
        except BaseException:
            with contextlib.suppress(Exception):
                sink.finish()
            raise
        sink.finish()


def unit_log_probs(scored: Scored, by: By) -> Floats:
    """The log-probabilities of a text's words, pieces or bytes."""
    return {"word": scored.word_log_probs, "piece": scored.piece_log_probs, "byte": scored.byte_log_probs}[by]


def units(scored: Scored, by: By) -> tuple[list[Any], list[list[int]]]:
    """A text's words, pieces or bytes, and where words and pieces stand."""
    if by == "word":
        return [str(word) for word in scored.words], [[word.start, word.end] for word in scored.words]
    if by == "piece":
        return scored.pieces, scored.spans.tolist()
    return list(scored.text.encode("utf-8", "surrogatepass")), []


# --- tables -----------------------------------------------------------------------------------------------------------


def columns(scored: Scored, by: By, kept: Sequence[str] = ()) -> dict[str, list[Any]]:
    """The rows of a text as columns; `kept` names the fields of the input that go with them."""
    what, spans = units(scored, by)
    log_probs = unit_log_probs(scored, by)
    found: dict[str, list[Any]] = {"id": [scored.id] * len(what), "number": list(range(len(what))), by: what}
    if by != "byte":
        found |= {"start": [start for start, _ in spans], "end": [end for _, end in spans]}
    found |= {"log_prob": _numbers(log_probs), "surprisal": _numbers(surprisals(log_probs))}
    return found | {name: [_string(scored.fields.get(name))] * len(what) for name in kept}


class _Tsv:
    def __init__(self, path: Path, by: By, how: str) -> None:
        self._file = path.open("w", encoding="utf-8", errors="surrogatepass", newline="")
        self._writer = csv.writer(self._file, delimiter="\t", lineterminator="\n")
        self._by = by
        self._kept: list[str] | None = None

    def write(self, scored: Sequence[Scored]) -> None:
        for each in scored:
            if self._kept is None:
                self._kept = _fields(each, self._by)
                self._writer.writerow([*COLUMNS[self._by], *SCORES, *self._kept])
            found = columns(each, self._by, self._kept)
            for name in SCORES:
                found[name] = ["" if number is None else f"{number:.6f}" for number in found[name]]
            self._writer.writerows(zip(*found.values(), strict=True))

    def finish(self) -> None:
        self._file.close()


class _Parquet:
    def __init__(self, path: Path, by: By, how: str) -> None:
        self._path = path
        self._by = by
        self._how = how
        self._kept: list[str] = []
        self._writer: pq.ParquetWriter | None = None

    def write(self, scored: Sequence[Scored]) -> None:
        if not scored:
            return
        if self._writer is None:
            self._kept = _fields(scored[0], self._by)
            schema = pa.schema({**COLUMNS[self._by], **SCORES, **dict.fromkeys(self._kept, pa.string())})
            schema = schema.with_metadata({"polyseme": json.dumps({"by": self._by, "how": self._how})})
            self._writer = pq.ParquetWriter(self._path, schema, compression="zstd")
        parts = [columns(each, self._by, self._kept) for each in scored]
        joined = {name: [value for part in parts for value in part[name]] for name in self._writer.schema.names}
        self._writer.write_table(pa.table(joined, schema=self._writer.schema))

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.close()


# --- texts ------------------------------------------------------------------------------------------------------------


def as_json(scored: Scored, by: By, how: str) -> dict[str, Any]:
    """A text with its scores, as JSON has it."""
    what, spans = units(scored, by)
    log_probs = unit_log_probs(scored, by)
    return {
        "id": scored.id,
        "text": scored.text,
        "how": how,
        f"{by}s": what,
        **({"offsets": spans} if by != "byte" else {}),
        "log_probs": _numbers(log_probs),
        "surprisals": _numbers(surprisals(log_probs)),
        "totals": scored.totals.to_json(),
        **({"fields": dict(scored.fields)} if scored.fields else {}),
    }


class _Jsonl:
    def __init__(self, path: Path, by: By, how: str) -> None:
        self._file: io.TextIOBase = path.open("w", encoding="utf-8", errors="surrogatepass")
        self._by = by
        self._how = how

    def write(self, scored: Sequence[Scored]) -> None:
        for each in scored:
            self._file.write(json.dumps(as_json(each, self._by, self._how), ensure_ascii=False, default=str) + "\n")

    def finish(self) -> None:
        self._file.close()


class _Html:
    def __init__(self, path: Path, by: By, how: str) -> None:
        self._path = path
        self._by = by
        self._how = how
        self._texts: list[ShadedText] = []
        self._totals = Totals()

    def write(self, scored: Sequence[Scored]) -> None:
        self._totals += totals(scored)
        self._texts += [shaded(each, self._by) for each in scored]

    def finish(self) -> None:
        notes = [f"Scored {self._how}.", totals_line(self._totals)]
        unit = {"word": "bits a word", "piece": "bits a piece", "byte": "bits a byte"}[self._by]
        page = shaded_page("How surprising each word is", self._texts, unit=unit, most=MOST[self._by], notes=notes)
        self._path.write_text(page, encoding="utf-8")


MOST: Mapping[str, float] = {"word": 20.0, "piece": 20.0, "byte": 8.0}
"""The surprisal, in bits, from which on shades grow no darker; the same on every page, so that pages compare."""


def shaded(scored: Scored, by: By) -> ShadedText:
    """A text with a mark for each word; by piece or byte, for each piece, those of one character together."""
    if by == "word":
        marks = [
            Mark(word.start, word.end, value, f"{word}: {_said(value)}")
            for word, value in zip(scored.words, scored.word_surprisals.tolist(), strict=True)
        ]
    else:
        marks = _piece_marks(scored, by)
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
    found = []
    for mark in marks:
        n_bytes = len(scored.text[mark.start : mark.end].encode("utf-8", "surrogatepass"))
        value = mark.value / n_bytes if by == "byte" else mark.value
        found.append(Mark(mark.start, mark.end, value, f"{mark.label}: {_said(value)}"))
    return found


def totals_line(found: Totals) -> str:
    """What scores come to, in a line."""
    if not found.pieces:
        return "Nothing in it has a score."
    return (
        f"Log-probability {found.log_prob:,.2f} over {found.words:,} words, {found.pieces:,} pieces, "
        f"{found.bytes:,} bytes; perplexity {found.perplexity_per_word:,.2f} a word, "
        f"{found.perplexity_per_piece:,.2f} a piece, {found.perplexity_per_byte:,.3f} a byte."
    )


FORMATS: Mapping[str, Callable[[Path, By, str], Sink]] = {
    ".tsv": _Tsv,
    ".jsonl": _Jsonl,
    ".parquet": _Parquet,
    ".html": _Html,
}
"""From the ending of an output to what writes it."""


def _fields(scored: Scored, by: By) -> list[str]:
    """The fields to keep, as the first text has them."""
    taken = [name for name in scored.fields if name in COLUMNS[by] or name in SCORES]
    if taken:
        raise OutputError(
            f"The field {taken[0]!r} of the input has the name of a column of scores. Rename it, or write .jsonl, "
            "which keeps fields apart."
        )
    return list(scored.fields)


def _numbers(values: Floats) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _string(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _said(value: float) -> str:
    return "no score" if math.isnan(value) else f"{value:.2f} bits"


def _ending(output: AnyPath) -> str:
    return Path(output).suffix.lower()

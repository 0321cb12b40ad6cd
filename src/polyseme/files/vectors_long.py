"""Vectors in long form: a table with one row per word (or per text, where a text has one vector), for R and pandas.

| column | |
|---|---|
| id | of the text |
| position | of the word in its text, counted from 1 |
| word, start, end | the word, and where it is in the text, in characters |
| … | the fields copied from the input; one that has a value for each word is shared out |
| vector | Parquet: a list of fixed size; CSV and TSV: a column for each of its numbers, v0, v1, … |

`columns` chooses among these, in their order; single numbers of the vector are columns, too (v0, v17), and so is
`text`. With all layers, v2_17 is number 17 of layer 2. `read_vectors` does
not read such tables: they do not have the texts.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from polyseme.errors import InputError, OptionError, PolysemeWarning, nearest
from polyseme.files.field_names import as_text, fields_of_words
from polyseme.files.typed_columns import TypedColumns, rewritten
from polyseme.files.vector_files import Format, Per, Provenance, provenance_to_json
from polyseme.files.vectors_parquet import METADATA_KEY, nested
from polyseme.types import EmbeddedDocument

OF_WORDS = ("id", "position", "word", "start", "end")
OF_TEXTS = ("id", "text")
OTHERS = ("text", "vector")
DELIMITERS: Mapping[str, str] = {".csv": ",", ".tsv": "\t"}
ENDINGS = (".parquet", *DELIMITERS)
ROWS_AT_ONCE = 4096
"""Words whose numbers are laid out as columns of text together."""

_NUMBER = re.compile(r"v\d+(_\d+)?")


def is_long(path: Any) -> bool:
    """Whether a name can only be that of a table in long form."""
    return Path(path).suffix.lower() in DELIMITERS


def long_format(path: Any, columns: Sequence[str] = ()) -> Format:
    """The format that a name ends in."""
    suffix = Path(path).suffix.lower()
    if suffix not in ENDINGS:
        raise OptionError(f"{path}: the long form is written as {', '.join(ENDINGS)}. {nearest(suffix, ENDINGS)}")
    sink: type[LongParquet | LongText] = LongParquet if suffix == ".parquet" else LongText
    return Format(sink=partial(sink, columns=tuple(columns)), read=_refuse, read_provenance=_refuse)


def fields_among(columns: Sequence[str]) -> list[str]:
    """Those of the chosen columns that are fields of the input."""
    own = {*OF_WORDS, *OTHERS}
    return [name for name in columns if name not in own and not _NUMBER.fullmatch(name)]


def check_numbers(columns: Sequence[str], shape: tuple[int, ...]) -> None:
    """Refuse single numbers that vectors of this shape do not have; to be called before any work."""
    numbers = _numbers(shape)
    for name in columns:
        if _NUMBER.fullmatch(name) and name not in numbers:
            raise OptionError(f"There is no column {name!r}. {nearest(name, [numbers[0], numbers[-1]])}")


def _refuse(name: str) -> NoReturn:
    raise InputError(f"{name} is a table in long form, without the texts. Read it with pandas, polars or R.")


class _Long:
    """What both formats share: which columns there are, and their values."""

    def __init__(self, path: Path, provenance: Provenance, per: Per = "word", *, columns: tuple[str, ...] = ()) -> None:
        self._path = path
        self._provenance = provenance
        self._per = per
        self._chosen = columns

    def _rows(self, documents: Sequence[EmbeddedDocument]) -> Iterator[dict[str, Any]]:
        """The fields of every row."""
        for document in documents:
            n_rows, fields = len(document.vectors), document.fields
            chosen = {name: fields[name] for name in fields if not self._chosen or name in self._chosen}
            for at in range(n_rows):
                yield fields_of_words(chosen, [at], n_rows) if self._per == "word" else chosen

    def _own(self, documents: Sequence[EmbeddedDocument]) -> dict[str, pa.Array]:
        """What is known of every row besides its fields and its vector."""
        counts = [len(document.vectors) for document in documents]
        ids = pa.array([document.id for document in documents], pa.string())
        texts = pa.array([document.text for document in documents], pa.string())
        owners = pa.array(np.repeat(np.arange(len(documents)), counts))
        columns = {"id": ids.take(owners), "text": texts.take(owners)}
        if self._per == "word":
            offsets = np.concatenate([document.offsets for document in documents]).reshape(-1, 2)
            columns |= {
                "position": pa.array(np.concatenate([np.arange(1, count + 1) for count in counts]), pa.int64()),
                "word": pa.array([str(word) for document in documents for word in document.words], pa.string()),
                "start": pa.array(offsets[:, 0], pa.int64()),
                "end": pa.array(offsets[:, 1], pa.int64()),
            }
        return columns

    def _names(self, fields: Sequence[str], numbers: Sequence[str]) -> list[str]:
        """The columns in their order; `numbers` are those of a vector that is laid out."""
        own = OF_WORDS if self._per == "word" else OF_TEXTS
        names = list(self._chosen) or [*own, *fields, "vector"]
        known = {*own, *OTHERS, *fields, *numbers}
        for name in names:
            if name not in known:
                listed = [*dict.fromkeys([*own, *OTHERS, *fields]), *numbers[:1]]
                raise OptionError(f"There is no column {name!r}. {nearest(name, listed)}")
        return names


def _numbers(shape: tuple[int, ...]) -> list[str]:
    """The names of the numbers of a word's vector, or vectors."""
    if len(shape) == 1:
        return [f"v{number}" for number in range(shape[0])]
    return [f"v{layer}_{number}" for layer in range(shape[0]) for number in range(shape[1])]


def _joined(documents: Sequence[EmbeddedDocument]) -> NDArray[Any]:
    return np.concatenate([document.vectors for document in documents])


class LongParquet(_Long):
    """Documents to a long table in Parquet."""

    def __init__(self, path: Path, provenance: Provenance, per: Per = "word", *, columns: tuple[str, ...] = ()) -> None:
        super().__init__(path, provenance, per, columns=columns)
        self._writer: pq.ParquetWriter | None = None
        self._fields = TypedColumns()

    def write(self, documents: Sequence[EmbeddedDocument]) -> None:
        rows = list(self._rows(documents))
        self._fields.observe(rows)
        vectors = _joined(documents)
        numbers = {name: at for at, name in enumerate(_numbers(vectors.shape[1:]))}
        flat = vectors.reshape(len(vectors), len(numbers))
        fields, own = self._fields.arrays(rows), self._own(documents)
        arrays: dict[str, pa.Array] = {}
        for name in self._names(list(fields), list(numbers)):
            if name == "vector":
                arrays[name] = nested(np.ascontiguousarray(vectors))
            elif name in numbers and name not in fields:
                arrays[name] = pa.array(np.ascontiguousarray(flat[:, numbers[name]]))
            else:
                arrays[name] = fields[name] if name in fields else own[name]
        metadata = {METADATA_KEY: provenance_to_json(self._provenance).encode()}
        schema = pa.schema([(name, array.type) for name, array in arrays.items()], metadata=metadata)
        if self._writer is None:
            self._writer = _open_parquet(self._path, schema)
        elif schema != self._writer.schema:
            self._writer = rewritten(self._path, self._writer, schema, self._fields, _open_parquet)
        if len(vectors):
            self._writer.write_table(pa.table(list(arrays.values()), schema=schema))

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def abandon(self) -> None:
        self.finish()


def _open_parquet(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(str(path), schema, compression="zstd", write_page_checksum=True)


class LongText(_Long):
    """Documents to CSV or TSV; columns are those of the first chunk, texts are in quotes, numbers are not."""

    def __init__(self, path: Path, provenance: Provenance, per: Per = "word", *, columns: tuple[str, ...] = ()) -> None:
        super().__init__(path, provenance, per, columns=columns)
        self._file: BinaryIO | None = None
        self._writer: Any = None
        self._columns: list[str] = []
        self._left_out: dict[str, None] = {}

    def write(self, documents: Sequence[EmbeddedDocument]) -> None:
        rows = list(self._rows(documents))
        vectors = _joined(documents)
        numbers = _numbers(vectors.shape[1:])
        fields = list(dict.fromkeys(name for row in rows for name in row))
        if not self._columns:
            for name in self._names(fields, numbers):
                self._columns += numbers if name == "vector" else [name]
        self._left_out |= dict.fromkeys(name for name in fields if name not in self._columns)
        own, places = self._own(documents), {name: at for at, name in enumerate(numbers)}
        flat = vectors.reshape(len(vectors), len(numbers))
        flat = flat if flat.dtype == np.float64 else flat.astype(np.float32)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            columns = []
            for name in self._columns:
                if name in places and name not in fields:
                    columns.append(pa.array(np.ascontiguousarray(flat[part, places[name]])))
                elif name in own:
                    columns.append(own[name][part])
                else:
                    columns.append(pa.array([as_text(row.get(name)) for row in rows[part]], pa.string()))
            table = pa.table(columns, names=self._columns)
            if self._writer is None:
                self._open(table.schema)
            self._writer.write_table(table)

    def finish(self) -> None:
        if self._writer is None:  # no text has a word
            self._open(pa.schema([(name, pa.string()) for name in self._columns]))
        self._close()
        if self._left_out:
            listed = ", ".join(map(repr, list(self._left_out)[:5]))
            warnings.warn(
                f"Fields that the first texts lack ({listed}) are left out. Name the fields, or take .parquet.",
                PolysemeWarning,
                stacklevel=4,
            )

    def abandon(self) -> None:
        self._close()

    def _close(self) -> None:
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.close()
            self._writer = None

    def _open(self, schema: pa.Schema) -> None:
        delimiter = DELIMITERS[self._path.suffix.lower()]
        options = pa.csv.WriteOptions(delimiter=delimiter, quoting_style="needed", include_header=False)
        self._file = self._path.open("wb")
        self._file.write(delimiter.join(_quoted(name, delimiter) for name in self._columns).encode() + b"\n")
        self._writer = pa.csv.CSVWriter(self._file, schema, write_options=options)


def _quoted(name: str, delimiter: str) -> str:
    """The name of a column, in quotes where it needs them."""
    return '"' + name.replace('"', '""') + '"' if any(each in name for each in f'"\r\n{delimiter}') else name

"""Vectors as Parquet: one row per document.

| column | type | |
|---|---|---|
| id | string | |
| text | large_string | as it was given |
| words | list<string> | |
| start, end | list<int64> | where each word is in the text, in characters |
| vectors | list<fixed_size_list<float, D>> | one vector per word; with all layers, a fixed list of layers |
| … | by their values | one column per field copied from the input (`typed_columns`) |

Where a text has one vector, the column `vector`, fixed_size_list<float, D>, takes the place of the last four.

How they came about is JSON under the key `polyseme` of the schema's metadata.

A field that comes, or shows to be of another type, when rows have been written already is put into those, too: the file
is then written once more.

Vectors are stored plain and uncompressed, as every reader of Parquet knows them: numbers like these hardly compress (a
sixth at best, with their bytes split by place), and it takes longer. Words, texts and offsets are compressed with zstd.

Arrow makes one page of one row, and a page holds less than 2 GiB; to write one it needs four to five times the row's
vectors in memory. So the vectors of one row are kept below 1 GiB: a longer document (some 700,000 words at 384 floats)
goes on in the rows that follow, each with the id and the whole text, and its share of the words. A warning says so,
`polyseme.continued` in the file's metadata lists those rows, and `read_parquet` puts them together again.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from polyseme.errors import InputError, PolysemeWarning
from polyseme.files.typed_columns import TypedColumns, rewritten
from polyseme.files.vector_files import Format, Per, Provenance, foreign_file_error, provenance_to_json, unreadable
from polyseme.json_reading import parse_json
from polyseme.types import EmbeddedDocument, Word

METADATA_KEY = b"polyseme"
CONTINUED_KEY = b"polyseme.continued"

MOST_ROW_BYTES = 1 << 30
"""Bytes of vectors that go into one row."""
MOST_RATIO = 50
"""Values for each byte of a row group, at most: vectors have a quarter, texts that are equal a few."""
MOST_GROUP_NUMBERS = 1 << 25
"""Numbers after which a chunk is cut into a further row group; Arrow needs about 8 bytes beside each."""

_OF_WORDS = ("id", "text", "words", "start", "end", "vectors")
_OF_TEXTS = ("id", "text", "vector")


class ParquetSink:
    """Documents to a Parquet file; each chunk is a row group, or several if it is large."""

    def __init__(self, path: Path, provenance: Provenance, per: Per = "word") -> None:
        self._path = path
        self._provenance = provenance
        self._per = per
        self._writer: pq.ParquetWriter | None = None
        self._fields = TypedColumns()
        self._n_rows = 0
        self._continued: list[int] = []

    def write(self, documents: Sequence[EmbeddedDocument]) -> None:
        for group in _groups(documents):
            self._fields.observe([share.document.fields for share in group])
            schema = _schema(group[0], self._fields.types, self._provenance, self._per)
            if self._writer is None:
                self._writer = _open_writer(self._path, schema)
            elif schema != self._writer.schema:
                self._writer = rewritten(self._path, self._writer, schema, self._fields, _open_writer)
            self._note_continued(group)
            table = _table(group, schema, self._fields)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._n_rows += table.num_rows

    def finish(self) -> None:
        if self._writer is not None:
            if self._continued:
                self._writer.add_key_value_metadata({CONTINUED_KEY: json.dumps(self._continued).encode()})
            self._writer.close()

    def abandon(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError, pa.ArrowException):  # the reason is on its way to the user already
                self._writer.close()

    def _note_continued(self, group: Sequence[_Share]) -> None:
        for row, share in enumerate(group, start=self._n_rows):
            if share.first == 0:
                continue
            if not self._continued:
                warnings.warn(
                    f"The document {share.document.id!r} has {len(share.document.words)} words, and their vectors are "
                    "more than one row of Parquet can hold. It goes on in the rows that follow, under the same id. "
                    "(An .npz file has no such bound.)",
                    PolysemeWarning,
                    stacklevel=4,
                )
            self._continued.append(row)


def read_parquet(name: str) -> Iterator[EmbeddedDocument]:
    """The documents of a file that `ParquetSink` wrote, a row group in memory at a time."""
    file = _open(name)
    continued = set(parse_json((file.metadata.metadata or {}).get(CONTINUED_KEY, b"[]"), kind=list))
    return _documents(file, continued)


def read_parquet_provenance(name: str) -> dict[str, Any]:
    """How the vectors of a file came about."""
    with _open(name) as file:
        provenance: dict[str, Any] = parse_json(file.schema_arrow.metadata[METADATA_KEY], kind=dict)
        return provenance


# --- writing ---------------------------------------------------------------------------------------------------------


class _Share(NamedTuple):
    """The words of a document that go into one row: nearly always all of them."""

    document: EmbeddedDocument
    first: int
    stop: int

    @property
    def vectors(self) -> NDArray[Any]:
        return self.document.vectors[self.first : self.stop]


def _shares(documents: Sequence[EmbeddedDocument]) -> Iterator[_Share]:
    for document in documents:
        n_words = len(document.vectors)
        n_shares = max(1, -(-document.vectors.nbytes // MOST_ROW_BYTES))
        length = -(-n_words // n_shares)
        for share in range(n_shares):
            yield _Share(document, share * length, min((share + 1) * length, n_words))


def _groups(documents: Sequence[EmbeddedDocument]) -> Iterator[list[_Share]]:
    group: list[_Share] = []
    numbers = 0
    for share in _shares(documents):
        if group and numbers + share.vectors.size > MOST_GROUP_NUMBERS:
            yield group
            group, numbers = [], 0
        group.append(share)
        numbers += share.vectors.size
    if group:
        yield group


def _schema(share: _Share, fields: Mapping[str, pa.DataType], provenance: Provenance, per: Per) -> pa.Schema:
    vector = pa.from_numpy_dtype(share.vectors.dtype)
    for width in reversed(share.vectors.shape[1:]):
        vector = pa.list_(vector, width)
    types: list[pa.DataType] = [pa.string(), pa.large_string()]
    if per == "text":
        named = list(zip(_OF_TEXTS, [*types, vector], strict=True))
    else:
        types += [pa.list_(pa.string()), pa.list_(pa.int64()), pa.list_(pa.int64()), pa.list_(vector)]
        named = list(zip(_OF_WORDS, types, strict=True))
    return pa.schema([*named, *fields.items()], metadata={METADATA_KEY: provenance_to_json(provenance).encode()})


def _open_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    leaves = {field.name: [*_leaves(field.name, field.type)] for field in schema}
    compression = {
        leaf: "none" if name in ("vectors", "vector") else "zstd" for name, below in leaves.items() for leaf in below
    }
    repeated = [name for name in leaves if name not in (*_OF_WORDS, *_OF_TEXTS) or name == "words"]
    return pq.ParquetWriter(
        str(path),
        schema,
        compression=compression,
        use_dictionary=[leaf for name in repeated for leaf in leaves[name]],
        write_statistics=False,
        write_page_checksum=True,
    )


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """The names by which Parquet knows what is in a column."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_nested(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def _table(group: Sequence[_Share], schema: pa.Schema, fields: TypedColumns) -> pa.Table:
    documents = [share.document for share in group]
    vectors = nested(_joined([share.vectors for share in group]))
    columns = {
        "id": pa.array([document.id for document in documents], pa.string()),
        "text": pa.array([document.text for document in documents], pa.large_string()),
        **fields.arrays([document.fields for document in documents]),
    }
    columns |= _words_of(group, vectors) if "words" in schema.names else {"vector": vectors}
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _words_of(group: Sequence[_Share], vectors: pa.Array) -> dict[str, pa.Array]:
    ends = np.cumsum([0] + [share.stop - share.first for share in group], dtype=np.int32)
    offsets = _joined([share.document.offsets[share.first : share.stop] for share in group]).reshape(-1, 2)
    words = [word for share in group for word in share.document.words[share.first : share.stop]]
    flat = {
        "words": pa.array(words, pa.string()),
        "start": pa.array(offsets[:, 0], pa.int64()),
        "end": pa.array(offsets[:, 1], pa.int64()),
        "vectors": vectors,
    }
    return {name: pa.ListArray.from_arrays(ends, values) for name, values in flat.items()}


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One array of all, and no copy if there is only one."""
    return np.ascontiguousarray(arrays[0] if len(arrays) == 1 else np.concatenate(arrays))


def nested(vectors: NDArray[Any]) -> pa.Array:
    """[N, …, D] as N fixed-size lists, over the same memory."""
    nested = pa.array(vectors.reshape(-1))
    for width in reversed(vectors.shape[1:]):
        nested = pa.FixedSizeListArray.from_arrays(nested, width)
    return nested


# --- reading ---------------------------------------------------------------------------------------------------------


def _open(name: str) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(name, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(name, "Parquet", error) from error
    there = file.schema_arrow.names
    repeated = next((column for column in there if there.count(column) > 1), None)
    if repeated is not None:
        file.close()
        raise InputError(f"{name} has the column {repeated!r} twice, so that it was not written by polyseme.")
    missing = [column for column in (_OF_TEXTS if "vector" in there else _OF_WORDS) if column not in there]
    if missing or METADATA_KEY not in (file.schema_arrow.metadata or {}):
        file.close()
        raise foreign_file_error(name, missing[0] if missing else METADATA_KEY.decode())
    return file


def _documents(file: pq.ParquetFile, continued: set[int]) -> Iterator[EmbeddedDocument]:
    """The rows of a file, those that continue a document put behind it."""
    shares: list[EmbeddedDocument] = []
    with file:
        for row, share in enumerate(_rows(file)):
            if shares and row not in continued:
                yield _whole(shares)
                shares = []
            shares.append(share)
    if shares:
        yield _whole(shares)


def _rows(file: pq.ParquetFile) -> Iterator[EmbeddedDocument]:
    for group in range(file.num_row_groups):
        _check_size(file, group)
        try:
            table = file.read_row_group(group)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"The Parquet file of vectors is damaged in row group {group}: {error}") from error
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        del table
        for name in (*_OF_WORDS, *_OF_TEXTS):
            if name in columns and columns[name].null_count:
                raise InputError(
                    f"The Parquet file of vectors is damaged in row group {group}: {name!r} has nulls in it."
                )
        yield from _rows_of_group(columns)


def _check_size(file: pq.ParquetFile, group: int) -> None:
    """Refuse a row group that is far larger in memory than in the file: equal values, counted instead of written."""
    described = file.metadata.row_group(group)
    columns = [described.column(number) for number in range(described.num_columns)]
    present = sum(column.total_compressed_size for column in columns)
    claimed = max([described.num_rows, *(column.num_values for column in columns)])
    if claimed > MOST_RATIO * present:
        raise InputError(
            f"The Parquet file of vectors is damaged in row group {group}: it should have {claimed:,} values, in "
            f"{present:,} bytes."
        )


def _rows_of_group(columns: dict[str, pa.Array]) -> Iterator[EmbeddedDocument]:
    """The rows of one group; `columns` is emptied, so that only what is still to come stays in memory."""
    ids, texts, words = columns.pop("id"), columns.pop("text"), columns.pop("words", None)
    if words is None:
        offsets, vectors = np.zeros((0, 2), np.int64), _array(columns.pop("vector"))
    else:
        offsets = np.stack([_array(columns.pop(name).flatten()) for name in ("start", "end")], axis=1)
        vectors = _array(columns.pop("vectors").flatten())
    first = 0
    for row, text in enumerate(texts):
        spellings = [] if words is None else words[row].as_py()
        where = slice(first, first + (1 if words is None else len(spellings)))
        first = where.stop
        spans = offsets[where].copy()
        yield EmbeddedDocument(
            id=ids[row].as_py(),
            text=text.as_py(),
            words=[Word(word, *span) for word, span in zip(spellings, spans.tolist(), strict=True)],
            fields={name: values[row].as_py() for name, values in columns.items()},
            offsets=spans,
            vectors=vectors[where].copy(),
        )


def _array(nested: pa.Array) -> NDArray[Any]:
    """Numbers, or fixed-size lists of them: [N] or [N, …, D], over the same memory."""
    shape = [len(nested)]
    while pa.types.is_fixed_size_list(nested.type):
        shape.append(nested.type.list_size)
        nested = nested.flatten()
    if not (pa.types.is_floating(nested.type) or pa.types.is_integer(nested.type)):
        raise InputError(f"The Parquet file of vectors holds {nested.type} where numbers should be.")
    numbers: NDArray[Any] = nested.to_numpy(zero_copy_only=False)
    return numbers.reshape(shape)


def _whole(shares: Sequence[EmbeddedDocument]) -> EmbeddedDocument:
    if len(shares) == 1:
        return shares[0]
    return EmbeddedDocument(
        id=shares[0].id,
        text=shares[0].text,
        words=[word for share in shares for word in share.words],
        fields=shares[0].fields,
        offsets=np.concatenate([share.offsets for share in shares]),
        vectors=np.concatenate([share.vectors for share in shares]),
    )


FORMAT = Format(sink=ParquetSink, read=read_parquet, read_provenance=read_parquet_provenance)

"""Parquet: a column of texts, or of lists of words, read a batch of rows at a time and no column that is not needed.

Parquet is read from its end, so it comes as a file: not from a pipe, not packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from polyseme.errors import InputError
from polyseme.files.reading_options import RowRequest
from polyseme.files.rows import Place, Record, Row, excerpt, name_field, no_field, only_field, rows_of
from polyseme.files.source import Source

BATCH_ROWS = 256
"""Rows that are in memory at a time."""
BUFFER = 1 << 20
"""Bytes of a column that are read at a time."""

_DAMAGED = (OSError, ValueError, OverflowError, pa.ArrowException)
"""What Arrow may raise over a file, or a value in it, that is not as it should be."""


def read(source: Source, request: RowRequest) -> Iterator[Row]:
    """One row per row of the file."""
    file = _open(source)
    try:
        if not file.metadata.num_rows:
            raise InputError(f"{source.name} has columns and no rows: there is nothing to read.")
        request, columns = _chosen(file.schema_arrow, request, source.name)
    except InputError:
        file.close()
        raise
    return rows_of(_records(file, columns, source, request), request)


def _open(source: Source) -> pq.ParquetFile:
    if source.total is None or source.compressed:
        problem = "comes packed" if source.compressed else "comes through a pipe"
        raise InputError(
            f"{source.name} {problem}, and Parquet is read from its end. Give it as a file of its own; it is compressed"
            " within."
        )
    if not source.total:
        raise InputError(f"{source.name} is empty: there is nothing to read.")
    try:
        file = pq.ParquetFile(source.name, buffer_size=BUFFER, pre_buffer=False)
        _ = file.schema_arrow.names  # may not be UTF-8
    except _DAMAGED as error:
        raise InputError(
            f"{source.name} is no Parquet file, or was cut short: {_one_line(error)}. Copy or download it again."
        ) from error
    return file


def _chosen(schema: pa.Schema, request: RowRequest, name: str) -> tuple[RowRequest, list[str]]:
    """The request with the field of the text, and the columns to read."""
    texts = [field.name for field in schema if field.name != request.id_field and _is_text(field.type)]
    field = request.field if request.field is not None else only_field(texts, _described(schema), name)
    beside = schema.names if request.keeps_all else request.fields
    columns = list(dict.fromkeys([field, *([] if request.id_field is None else [request.id_field]), *beside]))
    for column in columns:
        top = column if column in schema.names else column.partition(".")[0]
        if top not in schema.names:
            raise no_field(column, schema.names, name)
        if schema.names.count(top) > 1:
            raise InputError(f"{name}: {schema.names.count(top)} columns have the name {top!r}. Give each its own.")
    _refuse_what_is_no_text(schema, field, name)
    return replace(request, field=field), columns


def _refuse_what_is_no_text(schema: pa.Schema, field: str, name: str) -> None:
    """A column of another type is refused before any row; what a struct holds is looked at row by row."""
    if field in schema.names and not _is_text(kind := schema.field(field).type):
        inside = f" Name what is in it with a point, for instance {field}.{kind[0].name}." if _is_struct(kind) else ""
        raise InputError(
            f"{name}: the field {field!r} is of type {excerpt(str(kind))}. The text of a row must be a string, or a "
            f"list of words.{inside}",
            name_field("Name another with {}."),
        )


def _described(schema: pa.Schema) -> list[str]:
    return [f"{excerpt(field.name)} ({excerpt(str(field.type))})" for field in schema]


def _is_struct(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) and kind.num_fields > 0


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    if any(check(kind) for check in _LISTS):
        return _is_text(kind.value_type) and not any(check(kind.value_type) for check in _LISTS)
    return any(check(kind) for check in _STRINGS)


_STRINGS: Sequence[Callable[[pa.DataType], bool]] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_null,  # of nulls only, as far as is known: refused at the first row that has one
)
_LISTS: Sequence[Callable[[pa.DataType], bool]] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
)


# --- rows ------------------------------------------------------------------------------------------------------------


def _records(file: pq.ParquetFile, columns: list[str], source: Source, request: RowRequest) -> Iterator[Record | None]:
    n_rows, row = file.metadata.num_rows, 0
    with file:
        for batch in _batches(file, columns, source):
            values = {name: _values(batch.column(name)) for name in batch.schema.names}
            source.jump((source.total or 0) * (row + batch.num_rows) // n_rows)
            for number in range(batch.num_rows):
                place = Place(source.name, row + number + 1, "row")
                yield request.attempt(partial(_record, values, number, place))
            row += batch.num_rows
    if row != n_rows:
        raise InputError(f"{source.name} is damaged: it says that it has {n_rows:,} rows, and has {row:,}.")


def _batches(file: pq.ParquetFile, columns: list[str], source: Source) -> Iterator[pa.RecordBatch]:
    for group in range(file.num_row_groups):
        try:
            yield from file.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False)
        except _DAMAGED as error:
            raise InputError(
                f"{source.name} is damaged in row group {group + 1} of {file.num_row_groups}: {_one_line(error)}. "
                "Copy or download it again."
            ) from error


def _values(column: pa.Array) -> list[Any]:
    """The values of a column; where one is damaged, as Arrow has them, to be looked at one by one."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except _DAMAGED:
        return list(column)


def _record(values: dict[str, list[Any]], number: int, place: Place) -> Record:
    return Record({name: _value(column[number], name, place) for name, column in values.items()}, place)


def _value(value: Any, name: str, place: Place) -> Any:
    if not isinstance(value, pa.Scalar):
        return value
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: the field {name!r} is not UTF-8, at byte {error.start} of the text.") from error
    except _DAMAGED as error:
        raise InputError(f"{place}: the field {name!r} cannot be read: {_one_line(error)}.") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).removesuffix(".")

"""Fields of the input as columns of a Parquet file, with types.

The type of a column is found by looking at its values: whole numbers, numbers, truth values, dates, texts, and lists
and records of these. Values that have no type in common are written as texts: those that are none, as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from polyseme.files.field_names import as_text

_NO_ARRAY = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""What Arrow raises over values that have no type in common."""


class TypedColumns:
    """The columns of fields in a Parquet file that grows: their types so far."""

    def __init__(self) -> None:
        self._inferred: dict[str, pa.DataType] = {}

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The type of each column; of one that is empty so far, text."""
        return {name: _decided(kind) for name, kind in self._inferred.items()}

    def observe(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Widen the types to those of further rows."""
        for name in dict.fromkeys(name for row in rows for name in row):
            kind = _type_of([row.get(name) for row in rows])
            self._inferred[name] = _common(self._inferred.get(name, pa.null()), kind)

    def arrays(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
        """The values of rows that were looked at."""
        return {name: array_of([row.get(name) for row in rows], kind) for name, kind in self.types.items()}


def rewritten(
    path: Path,
    writer: pq.ParquetWriter,
    schema: pa.Schema,
    fields: TypedColumns,
    open_writer: Callable[[Path, pa.Schema], pq.ParquetWriter],
) -> pq.ParquetWriter:
    """A writer of the same file with other columns of fields: the rows that it has are copied, a group at a time."""
    writer.close()
    old = path.with_name(f"{path.name}.old")
    path.replace(old)
    writer = open_writer(path, schema)
    with pq.ParquetFile(old) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            kinds = fields.types
            columns = [
                array_of(table[name].to_pylist() if name in table.column_names else [None] * len(table), kinds[name])
                if name in kinds
                else table[name]
                for name in schema.names
            ]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=table.num_rows)
    old.unlink()
    return writer


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as an array of a type that holds them, or as texts."""
    return pa.array(map(as_text, values) if pa.types.is_string(kind) else values, kind)


def _type_of(values: Sequence[Any]) -> pa.DataType:
    try:
        kind = pa.array(values).type
    except _NO_ARRAY:
        return pa.string()
    return pa.string() if _has_empty_record(kind) else kind


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type that holds the values of both; where there is none, text."""
    if one == other:
        return one
    schemas = [pa.schema([("x", kind)]) for kind in (one, other)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field("x").type
    except pa.ArrowException:
        return pa.string()


def _has_empty_record(kind: pa.DataType) -> bool:
    """Parquet cannot hold a record without fields."""
    if pa.types.is_struct(kind):
        return not kind.num_fields or any(_has_empty_record(field.type) for field in kind)
    return pa.types.is_list(kind) and _has_empty_record(kind.value_type)


def _decided(kind: pa.DataType) -> pa.DataType:
    """A type with text where no value has been seen yet."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_decided(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _decided(field.type)) for field in kind])
    return kind

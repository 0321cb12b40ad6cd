"""The flow as a function over Arrow batches, for those who have machines to map it: Ray Data, Spark, a pool of workers.

It pickles as its settings; each worker loads the model when its first batch comes.

    >>> dataset.map_batches(EmbedBatches, fn_constructor_kwargs={"model": "path"},    # doctest: +SKIP
    ...                     batch_format="pyarrow", concurrency=2)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from polyseme.api import load
from polyseme.embedding.embed_files import document_of
from polyseme.embedding.flow import Embedder
from polyseme.embedding.pooling import per_text
from polyseme.errors import InputError, nearest
from polyseme.files.rows import Place, Row
from polyseme.files.vector_files import Per
from polyseme.options import flat_method, option, same
from polyseme.types import Embedded
from polyseme.verb_options import ComputeOptions, EmbedOptions, LayerOptions

COLUMNS = ("words", "start", "end", "vectors")
"""What is put beside the columns of a batch; with `per="text"` it is `vector`."""


@dataclass(frozen=True, kw_only=True)
class EmbedBatchesOptions(LayerOptions, ComputeOptions):
    """What `EmbedBatches` takes."""

    field: str = option("text", "Column with the texts, or with lists of words.")
    per: Per = same(EmbedOptions, "per")


class EmbedBatches:
    """A table in, the same table with a vector for every word of one column out; rows stay as they are, and in order.

    The columns that are added are those of a Parquet file of vectors.
    """

    @flat_method(EmbedBatchesOptions)
    def __init__(self, options: EmbedBatchesOptions) -> None:
        """Keep the settings; the model is loaded with the first batch."""
        self.options = options

    def __call__(self, batch: pa.RecordBatch | pa.Table) -> pa.Table:
        """One batch; pieces of different batches never run together."""
        if not isinstance(batch, pa.RecordBatch | pa.Table):
            raise InputError(
                f"A batch must be Arrow's, a table or a record batch. Got a {type(batch).__name__} instead. (With Ray: "
                "map_batches(…, batch_format='pyarrow').)"
            )
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        field, per = self.options.field, self.options.per
        if field not in table.column_names:
            raise InputError(f"There is no column {field!r}. {nearest(field, table.column_names)}")
        added = ("vector",) if per == "text" else COLUMNS
        for name in added:
            if name in table.column_names:
                raise InputError(f"The batch has a column {name!r} already, which is where vectors go. Rename it.")
        embedded = self._embed(table[field].to_pylist())
        columns = _texts(embedded, self.width) if per == "text" else _words(embedded, self.width)
        for name in added:
            table = table.append_column(name, columns[name])
        return table

    def __getstate__(self) -> dict[str, Any]:
        """Settings alone: a model is loaded where it is used."""
        return {name: value for name, value in vars(self).items() if name != "embedder"}

    @cached_property
    def embedder(self) -> Embedder:
        """The model at work, loaded when first asked for."""
        options = self.options
        loaded = load(options.model, device=options.device, dtype=options.dtype)
        return Embedder(
            loaded.bundle,
            **options.values(LayerOptions),
            batch_pieces=options.batch_pieces,
            precision=loaded.precision,
        )

    @property
    def width(self) -> tuple[int, ...]:
        """[D], or [layers, D]."""
        choice = self.embedder.choice
        width = choice.width(self.embedder.config)
        return (len(choice.layers), width) if choice.how == "all" else (width,)

    def _embed(self, contents: list[Any]) -> list[Embedded]:
        documents = []
        for number, content in enumerate(contents, start=1):
            place = Place(f"column {self.options.field!r}", number, "row")
            if not isinstance(content, (str, list)):
                raise InputError(f"{place} is a {type(content).__name__}. It must be a text or a list of words.")
            documents.append(document_of(Row(content, str(number), place)))
        found = self.embedder(documents)
        return per_text(found) if self.options.per == "text" else found


def _texts(embedded: list[Embedded], shape: tuple[int, ...]) -> dict[str, pa.Array]:
    return {"vector": _nested([document.vectors for document in embedded], shape)}


def _words(embedded: list[Embedded], shape: tuple[int, ...]) -> dict[str, pa.Array]:
    ends = np.cumsum([0, *(len(document.words) for document in embedded)], dtype=np.int32)
    offsets = np.concatenate([np.zeros((0, 2), np.int64), *(document.offsets for document in embedded)])
    flat = {
        "words": pa.array([str(word) for document in embedded for word in document.words], pa.string()),
        "start": pa.array(offsets[:, 0]),
        "end": pa.array(offsets[:, 1]),
        "vectors": _nested([document.vectors for document in embedded], shape),
    }
    return {name: pa.ListArray.from_arrays(ends, values) for name, values in flat.items()}


def _nested(vectors: list[Any], shape: tuple[int, ...]) -> pa.Array:
    """[N, …, D] as N fixed-size lists."""
    nested = pa.array(np.concatenate([np.zeros((0, *shape), np.float32), *vectors]).reshape(-1))
    for width in reversed(shape):
        nested = pa.FixedSizeListArray.from_arrays(nested, width)
    return nested

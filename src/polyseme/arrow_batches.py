"""Embedding as a function over Arrow batches, to be mapped by Ray Data, Spark or a pool of workers.

It pickles as its settings; each worker loads the model with its first batch.

    >>> dataset.map_batches(EmbedBatches, fn_constructor_kwargs={"model": "path"},    # doctest: +SKIP
    ...                     batch_format="pyarrow", concurrency=2)
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from polyseme.api import load
from polyseme.embedding.flow import Embedder
from polyseme.embedding.row_documents import document_of
from polyseme.errors import InputError, PolysemeWarning, nearest
from polyseme.files.rows import Place, Row
from polyseme.options import flat_method, option
from polyseme.types import EmbeddedDocument
from polyseme.verb_options.model_options import ComputeOptions, LayerOptions
from polyseme.verb_options.word_options import PerOptions

COLUMNS = ("words", "start", "end", "vectors")
"""The columns that are added to a batch; with `per="text"` it is `vector`."""


@dataclass(frozen=True, kw_only=True)
class EmbedBatchesOptions(LayerOptions, PerOptions, ComputeOptions):
    """The options of `EmbedBatches`."""

    field: str = option("text", "Column with the texts, or with lists of words.")


class EmbedBatches:
    """A function from a table to the same table with one vector for each word of a column; rows keep their order.

    The columns that are added are those of a Parquet file of vectors.
    """

    @flat_method(EmbedBatchesOptions)
    def __init__(self, options: EmbedBatchesOptions) -> None:
        """Keep the settings; the model is loaded with the first batch."""
        self.options = options
        self.n_null = 0
        """Texts so far that were null; each is read as an empty text, and has no words."""

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
        for name, column in self._columns(embedded).items():
            table = table.append_column(name, column)
        return table

    def __getstate__(self) -> dict[str, Any]:
        """Only the settings: a model is loaded where it is used."""
        return {name: value for name, value in vars(self).items() if name != "embedder"}

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder, loaded on first use."""
        options = self.options
        loaded = load(options.model, device=options.device, dtype=options.dtype)
        return Embedder(
            loaded.bundle,
            **options.values(LayerOptions),
            **options.values(PerOptions),
            batch_pieces=options.batch_pieces,
            precision=loaded.precision,
        )

    @property
    def width(self) -> tuple[int, ...]:
        """[D], or [layers, D]."""
        return self.embedder.shape

    def _embed(self, contents: list[Any]) -> list[EmbeddedDocument]:
        documents, n_null = [], 0
        for number, content in enumerate(contents, start=1):
            place = Place(f"column {self.options.field!r}", number, "row")
            if content is None:
                content, n_null = "", n_null + 1
            if not isinstance(content, (str, list)):
                raise InputError(f"{place} is a {type(content).__name__}. It must be a text or a list of words.")
            documents.append(document_of(Row(content, str(number), place)))
        self.n_null += n_null
        if n_null:
            texts = "1 text is" if n_null == 1 else f"{n_null:,} texts are"
            warnings.warn(f"{texts} null and read as empty.", PolysemeWarning, stacklevel=3)
        return self.embedder(documents)

    def _columns(self, embedded: list[EmbeddedDocument]) -> dict[str, pa.Array]:
        vectors = _to_lists([document.vectors for document in embedded], self.width)
        if self.options.per == "text":
            return {"vector": vectors}
        ends = np.cumsum([0, *(len(document.words) for document in embedded)], dtype=np.int32)
        offsets = np.concatenate([np.zeros((0, 2), np.int64), *(document.offsets for document in embedded)])
        words = pa.array([str(word) for document in embedded for word in document.words], pa.string())
        columns = zip(COLUMNS, (words, pa.array(offsets[:, 0]), pa.array(offsets[:, 1]), vectors), strict=True)
        return {name: pa.ListArray.from_arrays(ends, values) for name, values in columns}


def _to_lists(vectors: list[Any], shape: tuple[int, ...]) -> pa.Array:
    """[N, …, D] as N fixed-size lists."""
    nested = pa.array(np.concatenate([np.zeros((0, *shape), np.float32), *vectors]).reshape(-1))
    for width in reversed(shape):
        nested = pa.FixedSizeListArray.from_arrays(nested, width)
    return nested

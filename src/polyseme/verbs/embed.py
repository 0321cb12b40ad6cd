"""`embed`: one vector per word of the texts in files."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from polyseme import __version__
from polyseme.api import folder_of, load
from polyseme.cost import Cost
from polyseme.embedding import embed_files as job
from polyseme.embedding.model_fingerprint import fingerprint
from polyseme.embedding.pooling import check_per
from polyseme.errors import OptionError
from polyseme.files import chunked_job
from polyseme.files.atomic import Kind, check_output
from polyseme.files.in_memory import described, inputs_of, names_of
from polyseme.files.reading_options import ALL, ReadingOptions
from polyseme.files.unfinished_folder import clear_up
from polyseme.files.vector_files import Store, format_of, is_shard
from polyseme.files.vectors_long import check_numbers, fields_among, is_long, long_format
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options.word_options import EmbedOptions, ModelEmbedderOptions


@flat(EmbedOptions)
def embed(options: EmbedOptions) -> Cost:
    """Embed every word of files (folders, patterns, `-`), or of texts, into a file of vectors; the cost is returned.

    Interrupted work is resumed by the same call, unless `carry_state` is on: then it restarts.
    """
    started = time.perf_counter()
    inputs = inputs_of(options.sources)
    _check_output(names_of(inputs), options)
    long = options.long or is_long(options.output)
    columns = (options.columns,) if isinstance(options.columns, str) else tuple(options.columns)
    reading = options.values(ReadingOptions)
    reading["fields"] = _fields(reading["fields"], columns)
    loaded = load(model_or_default("embed", options.model), device=options.device, dtype=options.dtype)
    embedder = loaded.embedder(**options.values(ModelEmbedderOptions))
    check_numbers(columns, embedder.shape)
    store: Store = options.store or ("fp64" if embedder.dtype.name == "float64" else "fp32")
    parts = fingerprint(loaded.bundle, loaded.precision, options.stack)
    provenance: dict[str, Any] = {
        "model": loaded.path,
        "family": loaded.bundle.family.name,
        "layer": str(options.layer),
        "pool": options.pool,
        "per": options.per,
        "dtype": options.dtype,
        "store": store,
        "view": {"fingerprint": parts, "layer": dataclasses.asdict(embedder.choice)},
    } | ({"carry_state": "true"} if options.carry_state else {})
    provenance |= {"stack": options.stack} if options.stack != "encoder" else {}
    pooling = embedder.text_pooling
    provenance |= {} if pooling is None else {"text_pool": pooling.name}

    def settings() -> dict[str, Any]:
        """Everything that decides the result."""
        return {
            **{name: value for name, value in provenance.items() if name != "view"},
            **{f"the model's {part}": hash for part, hash in parts.items()},
            **({} if pooling is None else {"the model's modules for texts": pooling.digest}),
            "input": described(inputs),
            **reading,
            "shard_rows": options.shard_rows,
            "shard_format": options.shard_format,
            **({"long": True, "columns": columns} if long else {}),
            "batch_pieces": embedder.batch_pieces,
            "device": embedder.device.type,
            "chunk_characters": chunked_job.CHUNK_CHARACTERS,
            "polyseme": __version__,
        }

    target = job.Target(
        output=options.output,
        per=options.per,
        store=store,
        long=long,
        columns=columns,
        shard_rows=options.shard_rows,
        shard_format=options.shard_format,
        force=options.force,
        provenance=provenance,
    )
    return job.embed_files(
        embedder, inputs, target, reading=reading, settings=settings, progress=options.progress, started=started
    )


def _check_output(sources: Sequence[str], options: EmbedOptions) -> None:
    """Refuse, before the model is loaded, what could not be written."""
    check_per(options.per)
    job.check_shards(options.shard_rows, options.shard_format, options.store)
    clear_up(options.output)
    kind: Kind = "file" if options.shard_rows is None else "folder"
    inputs = [*sources, folder_of(options.model)]
    check_output(options.output, force=options.force, kind=kind, inputs=inputs, is_part=is_shard)
    if options.long or is_long(options.output):
        _check_long(options)
    elif options.columns:
        raise OptionError(
            "The option 'columns' is about a table with one row per word. Give --long (long=True) with it."
        )
    elif options.shard_rows is None:
        format_of(options.output, options.store)


def _check_long(options: EmbedOptions) -> None:
    if options.shard_rows is not None:
        raise OptionError("A table with one row per word is one file. Leave out 'shard_rows', or 'long'.")
    if options.store == "bf16":
        raise OptionError("A table with one row per word has no bf16. Store fp32 or fp16.")
    long_format(options.output)


def _fields(named: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """The fields to keep: those that are named, and those that are columns."""
    return tuple(named) if tuple(named) == (ALL,) else tuple(dict.fromkeys([*named, *fields_among(columns)]))

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
from polyseme.files import chunked_job
from polyseme.files.atomic import Kind, check_output
from polyseme.files.reading_options import ReadingOptions
from polyseme.files.source_paths import listed
from polyseme.files.unfinished_folder import clear_up
from polyseme.files.vector_files import format_of, is_shard
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options import EmbedOptions, ModelEmbedderOptions


@flat(EmbedOptions)
def embed(options: EmbedOptions) -> Cost:
    """Embed every word of files (folders, patterns, `-`) into a file of vectors; the cost is returned.

    Interrupted work is resumed by the same call, unless `carry_state` is on: then it restarts.
    """
    started = time.perf_counter()
    names = listed(options.sources)
    _check_output(names, options)
    reading = options.values(ReadingOptions)
    loaded = load(model_or_default("embed", options.model), device=options.device, dtype=options.dtype)
    embedder = loaded.embedder(**options.values(ModelEmbedderOptions))
    parts = fingerprint(loaded.bundle, loaded.precision, options.stack)
    provenance: dict[str, Any] = {
        "model": loaded.path,
        "family": loaded.bundle.family.name,
        "layer": str(options.layer),
        "pool": options.pool,
        "per": options.per,
        "dtype": options.dtype,
        "store": options.store,
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
            "input": names,
            **reading,
            "shard_rows": options.shard_rows,
            "shard_format": options.shard_format,
            "batch_pieces": embedder.batch_pieces,
            "device": embedder.device.type,
            "chunk_characters": chunked_job.CHUNK_CHARACTERS,
            "polyseme": __version__,
        }

    target = job.Target(
        output=options.output,
        per=options.per,
        store=options.store,
        shard_rows=options.shard_rows,
        shard_format=options.shard_format,
        force=options.force,
        provenance=provenance,
    )
    return job.embed_files(
        embedder, names, target, reading=reading, settings=settings, progress=options.progress, started=started
    )


def _check_output(sources: Sequence[str], options: EmbedOptions) -> None:
    """Refuse, before the model is loaded, what could not be written."""
    check_per(options.per)
    job.check_shards(options.shard_rows, options.shard_format, options.store)
    clear_up(options.output)
    kind: Kind = "file" if options.shard_rows is None else "folder"
    inputs = [*sources, folder_of(options.model)]
    check_output(options.output, force=options.force, kind=kind, inputs=inputs, is_part=is_shard)
    if options.shard_rows is None:
        format_of(options.output, options.store)

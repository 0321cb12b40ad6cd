"""`embed`: one vector per word of the texts in files."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polyseme import __version__
from polyseme.api import Model, folder_of, load
from polyseme.cost import Cost
from polyseme.embedding import embed_files as job
from polyseme.embedding.layer_selection import LayerChoice
from polyseme.embedding.model_fingerprint import fingerprint
from polyseme.embedding.pooling import check_per
from polyseme.embedding.side_by_side import SideBySide, WordEmbedder, named_models
from polyseme.errors import OptionError
from polyseme.files import chunks
from polyseme.files.atomic import AnyPath, Kind, check_output
from polyseme.files.in_memory import Inputs, describe_inputs, inputs_of, names_of
from polyseme.files.reading_options import ALL, ReadingOptions
from polyseme.files.unfinished_folder import clear_up
from polyseme.files.vector_files import Store, format_of, is_shard
from polyseme.files.vectors_long import check_numbers, fields_among, is_long, long_format
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options.word_options import EmbedOptions, ModelEmbedderOptions
from polyseme.verbs.on_cluster import check_workers, workers_of


@flat(EmbedOptions)
def embed(options: EmbedOptions) -> Cost:
    """Embed every word of files (folders, patterns, `-`), or of texts, into a file of vectors; the cost is returned.

    Interrupted work is resumed by the same call, unless `carry_state` or `pool_uses` is on: then it restarts.
    """
    started = time.perf_counter()
    inputs = inputs_of(options.sources)
    _check_output(names_of(inputs), options)
    work = _work(options, inputs)
    return job.embed_files(
        work.models.embedder,
        inputs,
        work.target,
        reading=work.reading,
        settings=work.settings,
        progress=options.progress,
        started=started,
        workers=workers_of(options, worker_job, work.models.embedder.device),
    )


def worker_job(options: EmbedOptions) -> chunks.Job[Any, Any]:
    """The job of a process that is given rows."""
    work = _work(options, [])
    return job.embedding_job(work.models.embedder, work.target, work.settings)


class _Work(NamedTuple):
    """What options come to."""

    models: _Models
    target: job.Target
    reading: Mapping[str, Any]
    settings: Callable[[], Mapping[str, Any]]


def _work(options: EmbedOptions, inputs: Inputs) -> _Work:
    long = options.long or is_long(options.output)
    columns = (options.columns,) if isinstance(options.columns, str) else tuple(options.columns)
    reading = options.values(ReadingOptions)
    reading["fields"] = _fields(reading["fields"], columns)
    models = _models(options)
    embedder = models.embedder
    check_numbers(columns, embedder.shape)
    store: Store = options.store or ("fp64" if embedder.dtype.name == "float64" else "fp32")
    provenance: dict[str, Any] = {
        **models.provenance,
        "pool": embedder.pool,
        "per": options.per,
        "store": store,
        "view": {"fingerprint": models.fingerprint, "layer": dataclasses.asdict(models.choice)},
    } | ({"carry_state": "true"} if options.carry_state else {})
    provenance |= {"stack": options.stack} if options.stack != "encoder" else {}
    provenance |= {"pool_uses": options.pool_uses} if options.pool_uses is not None else {}

    def settings() -> dict[str, Any]:
        """Everything that decides the result."""
        return {
            **{name: value for name, value in provenance.items() if name != "view"},
            **{f"the model's {part}": hash for part, hash in models.fingerprint.items()},
            **models.modules,
            "input": describe_inputs(inputs),
            **reading,
            "shard_rows": options.shard_rows,
            "shard_format": options.shard_format,
            **({"long": True, "columns": columns} if long else {}),
            "batch_pieces": embedder.batch_pieces,
            "device": embedder.device.type,
            "chunk_characters": chunks.CHUNK_CHARACTERS,
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
    return _Work(models, target, reading, settings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Models:
    """The model of a call, or several side by side, and what files say of them."""

    embedder: WordEmbedder
    fingerprint: Mapping[str, str]
    choice: LayerChoice
    provenance: Mapping[str, str]
    modules: Mapping[str, str]
    """Digests of what makes a text's vector, where that is the model's own."""


def _models(options: EmbedOptions) -> _Models:
    names = _several(options.model)
    if names is None:
        return _model(options, model_or_default("embed", options.model), options.layer)
    if options.carry_state or options.stack != "encoder":
        raise OptionError("Several models side by side carry no state and have no decoder. Leave these options out.")
    each = [_model(options, name, options.layer if layer is None else layer) for name, layer in names]
    labels = [name if layer is None else f"{name}@{layer}" for name, layer in names]
    embedders = {name: one.embedder for name, one in zip(labels, each, strict=True)}
    return _Models(
        embedder=SideBySide(embedders),  # type: ignore[arg-type]
        fingerprint={
            f"{part} of {name}, layer {one.provenance['layer']}": hash
            for name, one in zip(labels, each, strict=True)
            for part, hash in one.fingerprint.items()
        },
        choice=LayerChoice("concat", ()),
        provenance={key: ",".join(one.provenance.get(key, "") for one in each) for key in ("model", "family", "layer")}
        | {"dtype": ",".join(dict.fromkeys(one.provenance["dtype"] for one in each))},
        modules={
            f"{key} of {name}": value
            for name, one in zip(labels, each, strict=True)
            for key, value in one.modules.items()
        },
    )


def _model(options: EmbedOptions, model: Model | AnyPath, layer: str | int) -> _Models:
    """One of them."""
    loaded = load(model, device=options.device, dtype=options.dtype)
    embedder = loaded.embedder(**{**options.values(ModelEmbedderOptions), "layer": layer})
    pooling = embedder.text_pooling
    return _Models(
        embedder=embedder,
        fingerprint=fingerprint(loaded.bundle, loaded.precision, options.stack),
        choice=embedder.choice,
        provenance={
            "model": loaded.path,
            "family": loaded.bundle.family.name,
            "layer": str(layer),
            "dtype": loaded.dtype,
        }
        | ({} if pooling is None else {"text_pool": pooling.name}),
        modules={} if pooling is None else {"the model's modules for texts": pooling.digest},
    )


def _several(model: Model | AnyPath | None) -> list[tuple[str, str | None]] | None:
    """The models that are named with commas between them, and their layers; None: there is one."""
    if model is None or isinstance(model, Model) or "," not in os.fspath(model) or Path(model).exists():
        return None
    return named_models(os.fspath(model))


def _check_output(sources: Sequence[str], options: EmbedOptions) -> None:
    """Refuse, before the model is loaded, what could not be written."""
    check_per(options.per)
    check_workers(options)
    job.check_shards(options.shard_rows, options.shard_format, options.store)
    clear_up(options.output)
    kind: Kind = "file" if options.shard_rows is None else "folder"
    several = _several(options.model)
    named = [folder_of(options.model)] if several is None else [name for name, _ in several]
    inputs = [*sources, *named]
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

"""`embed`: one vector per word of the texts in files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from polyseme import __version__
from polyseme.api import AnyPath, Dtype, load
from polyseme.cost import Cost
from polyseme.embedding import embed_files as job
from polyseme.embedding.decoder_stack import Stack
from polyseme.embedding.model_fingerprint import fingerprint
from polyseme.embedding.pooling import check_per
from polyseme.files.atomic import Kind, check_output
from polyseme.files.chunk_spool import check_shards
from polyseme.files.reading_options import Quotes, Split, Words
from polyseme.files.source_paths import Sources, listed
from polyseme.files.unfinished_folder import clear_up
from polyseme.files.vector_format import Per, Store
from polyseme.files.write_vectors import format_of
from polyseme.types import Progress


def embed(
    sources: Sources,
    *,
    output: AnyPath,
    model: AnyPath | None = None,
    layer: str | int = -1,
    pool: str = "mean",
    stack: Stack = "encoder",
    carry_state: bool = False,
    per: Per = "word",
    field: str | None = None,
    id_field: str | None = None,
    fields: str | Sequence[str] = (),
    format: str | None = None,
    words: Words = "syntactic",
    split: Split = "line",
    quotes: Quotes = "double",
    delimiter: str | None = None,
    check_text: bool = True,
    store: Store = "fp32",
    shard_rows: int | None = None,
    shard_format: str = "parquet",
    device: str = "auto",
    dtype: Dtype = "fp32",
    batch_pieces: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Cost:
    """Embed every word of some files (folders, patterns, `-`) into a file of vectors; what it cost is returned.

    Work that was stopped is gone on with by the same call, unless `carry_state` is on: then it starts anew.

    Args:
        sources: a path, folder, pattern or `-` for standard input, or several of them.
        output: .parquet, .npz, .safetensors, .h5 or .jsonl; with `shard_rows`, a folder.
        model: a model folder, or `hub:owner/name`; None: the default model.
        layer: as for `Model.embed`.
        pool: as for `Model.embed`.
        stack: as for `Model.embed`.
        carry_state: as for `Model.embed`: whether a recurrent encoder goes on from text to text as the original ELMo
            did, 64 texts side by side, over all of the input.
        per: whether each word has a vector, or each text: the mean of its words.
        field: the field, column or key with the text, or with the list of its words.
        id_field: the field with the id of a text; None: its number, counted from 1.
        fields: names of other fields to keep beside the vectors, as strings, or "all".
        format: what the input is, where its ending does not say it: text, jsonl, csv, tsv, parquet, conll, conllu.
        words: in CoNLL-U, whether words are the syntactic words or the tokens of the surface.
        split: in plain text, whether a text is a line, a sentence (lines are split further), a paragraph or the whole
            document.
        quotes: in CSV and TSV, whether double quotes enclose fields, or none do.
        delimiter: in CSV and TSV, what separates the fields.
        check_text: in CoNLL-U, whether a sentence whose words do not add up to its text is refused.
        store: what numbers are in the file: fp32, fp16, bf16 (.safetensors).
        shard_rows: how many texts go into a file of the folder `output`.
        shard_format: what these files are: parquet, npz, safetensors, h5, jsonl.
        device: as for `load`.
        dtype: what is computed in, as for `load`.
        batch_pieces: how many pieces run together.
        force: replace an output that is there, and start anew where unfinished work has other settings.
        progress: told how many bytes of the input are done, and of how many.
    """
    started = time.perf_counter()
    names = listed(sources)
    _check_embed_output(names, model, output, per, store, shard_rows, shard_format, force)
    reading = {
        "field": field,
        "id_field": id_field,
        "fields": (fields,) if isinstance(fields, str) else tuple(fields),
        "format": format,
        "words": words,
        "split": split,
        "quotes": quotes,
        "delimiter": delimiter,
        "check_text": check_text,
    }
    loaded = load(model, device=device, dtype=dtype)
    embedder = loaded.embedder(layer=layer, pool=pool, stack=stack, batch_pieces=batch_pieces, carry_state=carry_state)
    about = {
        "model": loaded.path,
        "family": loaded.bundle.family.name,
        "layer": str(layer),
        "pool": pool,
        "per": per,
        "dtype": dtype,
        "store": store,
    } | ({"carry_state": "true"} if carry_state else {})
    about |= {"stack": stack} if stack != "encoder" else {}

    def settings() -> dict[str, Any]:
        """Everything that decides the result."""
        parts = fingerprint(loaded.bundle, loaded.precision, stack)
        return {
            **about,
            **{f"the model's {part}": hash for part, hash in parts.items()},
            "input": names,
            **reading,
            "shard_rows": shard_rows,
            "shard_format": shard_format,
            "batch_pieces": embedder.batch_pieces,
            "device": embedder.device.type,
            "chunk_characters": job.CHUNK_CHARACTERS,
            "polyseme": __version__,
        }

    target = job.Target(
        output=output,
        per=per,
        store=store,
        shard_rows=shard_rows,
        shard_format=shard_format,
        force=force,
        about=about,
    )
    return job.embed_files(
        embedder, names, target, reading=reading, settings=settings, progress=progress, started=started
    )


def _check_embed_output(
    sources: Sequence[str],
    model: AnyPath | None,
    output: AnyPath,
    per: str,
    store: Store,
    shard_rows: int | None,
    shard_format: str,
    force: bool,
) -> None:
    """Refuse, before the model is loaded, what could not be written."""
    check_per(per)
    check_shards(shard_rows, shard_format, store)
    clear_up(output)
    kind: Kind = "file" if shard_rows is None else "folder"
    check_output(output, force=force, kind=kind, inputs=[*sources, model], marks=["part-*"])
    if shard_rows is None:
        format_of(output, store)

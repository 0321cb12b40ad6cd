"""`convert`: a model from any layout that polyseme reads, in its own, or as another library opens it."""

from __future__ import annotations

import dataclasses
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyseme import __version__
from polyseme.api import DTYPES, STORES, Model, folder_of, load
from polyseme.bundle import named_tensors
from polyseme.convert.conversion_table import write
from polyseme.convert.fastai_files import words_beside, write_fastai
from polyseme.convert.sentence_transformers import MODEL_CARD
from polyseme.cost import Cost
from polyseme.embedding.layer_selection import parse_layers
from polyseme.embedding.model_fingerprint import fingerprint
from polyseme.embedding.sentence_model import sentence_bundle
from polyseme.embedding.word_types import TypesRequest, embed_types
from polyseme.errors import ModelError, OptionError
from polyseme.exporting.onnx_file import need_packages, write_onnx
from polyseme.exporting.onnx_graphs import Graph, TaskScores, WordVectors
from polyseme.files import chunks
from polyseme.files.atomic import check_output, explained, whole_file, write_beside
from polyseme.files.in_memory import describe_inputs, inputs_of, names_of
from polyseme.files.reading_options import TextOptions
from polyseme.files.unfinished_folder import clear_up
from polyseme.files.vectors_word2vec import check_word2vec, write_word2vec
from polyseme.model_card import card_by_precision
from polyseme.model_folder import model_folder
from polyseme.ngrams.arpa import write_arpa
from polyseme.options import check_choice, flat
from polyseme.packaged_models import model_or_default
from polyseme.pruning.head_removal import is_pruned, with_all_heads
from polyseme.scoring_models import NGram
from polyseme.text.documents import to_documents
from polyseme.text.word_tokenizer import WordTokenizer
from polyseme.transfer.task_folder import CURVE, PAGE, REPORT, save_task_model, task_card
from polyseme.verb_options.model_options import BatchOption, ConvertOptions, LayerOptions, LoadOptions

_logger = logging.getLogger(__name__)

WORDS_AT_ONCE = 1 << 14
"""Words of static vectors that are looked up together."""


@flat(ConvertOptions)
def convert_model(options: ConvertOptions) -> Cost | None:
    """Load a model and save it as a folder of today's layout, or as another library opens it.

    The folder has config.json, model.safetensors and tokenizer.json; for sentence-transformers also modules.json with a
    pooling. For word2vec the output is a file with one vector for each word type of some texts, the mean of its uses,
    or for each word of static vectors; what that cost is returned. For onnx it is a file that onnxruntime opens, which
    is checked by it, with tokenizer.json beside it under the file's name.
    """
    check_choice("target", options.to, TARGETS)
    target = TARGETS[options.to]
    for name in options.changed():
        if name in (*EVERYWHERE, *target.options):
            continue
        others = [f"--to {each}" for each, other in TARGETS.items() if name in other.options]
        raise OptionError(f"The option {name!r} is for {' and '.join(others)}. Leave it out with --to {options.to}.")
    return target.write(options)


def _write_folder(options: ConvertOptions) -> None:
    """Of a task model the whole folder: encoder, head, report."""
    model = _loaded_for_folder(options)
    if options.dtype == "int8" and model.bundle.from_int8:
        raise ModelError(f"The weights of {model.path} are in int8 already. Copy the folder, or name the full model.")
    if model.precision == "int8":
        _logger.info("polyseme alone reads a folder in int8; transformers refuses it.")
    folder = model_folder(Path(model.path)) if model.path else None
    if folder is None or task_card(folder) is None:
        _save(model, options)
        return
    task_model, card = model.task_model
    int8 = model.precision == "int8"
    files = {name: (folder / name).read_text("utf-8") for name in BESIDE if (folder / name).is_file()}
    if MODEL_CARD in files:
        files[MODEL_CARD] = card_by_precision(files[MODEL_CARD], int8=int8)
    save_task_model(
        task_model,
        options.output,
        card=card,
        files=files,
        force=options.force,
        shard_size=options.shard_size,
        dtype=DTYPES[options.store],
        int8=int8,
    )


def _write_transformers(options: ConvertOptions) -> None:
    model = _loaded_for_library(options)
    if model.bundle.family.reference is None:
        raise ModelError(
            f"transformers has no class for models of the family {model.bundle.family.name}, so it could not load the "
            "folder. Leave --to out: polyseme's own layout holds every family."
        )
    _save(model, options)


def _write_sentence_transformers(options: ConvertOptions) -> None:
    model = _loaded_for_library(options)
    sentences = Model(sentence_bundle(model.bundle, options.text_pool), model.path)
    _save(sentences, options)
    pooling = sentences.embedder(per="text").text_pooling
    if pooling is not None:
        _logger.info(
            "a text's vector is the %s, here and with embed -m %s --per text.", pooling.name, os.fspath(options.output)
        )


def _loaded_for_folder(options: ConvertOptions) -> Model:
    marks = ["config.json", "options.json"]
    check_output(options.output, force=options.force, kind="folder", inputs=[folder_of(options.model)], marks=marks)
    if options.dtype not in ("auto", "fp32", "int8"):
        raise OptionError(
            f"A folder's weights are stored in --store {' or '.join(STORES)}; --dtype is int8 there, or fp32 to take a "
            f"model out of it. Got --dtype {options.dtype}."
        )
    model = load(model_or_default("convert", options.model), device="cpu", dtype=options.dtype)
    return _fill_pruned(model, options) if options.fill_pruned or options.to in OPENED_ELSEWHERE else model


def _fill_pruned(model: Model, options: ConvertOptions) -> Model:
    """The model with all heads that it was made with; pruned ones are zeros, where that is requested."""
    if not is_pruned(model.bundle):
        if options.fill_pruned:
            raise OptionError(f"No head of {model.path} is pruned. Leave out --fill-pruned (fill_pruned).")
        return model
    if not options.fill_pruned:
        raise ModelError(
            f"Heads of {model.path} are pruned, and {options.to} opens only models whose layers all have as many heads "
            "as config.json says. With --fill-pruned (fill_pruned=True) the pruned heads are written as zeros: the "
            "results are the same, and so are size and speed before pruning."
        )
    return Model(with_all_heads(model.bundle), model.path, precision=model.precision)


def _loaded_for_library(options: ConvertOptions) -> Model:
    """With weights in fp32, as other libraries know them."""
    if options.dtype == "int8":
        raise OptionError("Other libraries do not read weights in int8. Leave --dtype out, or --to.")
    return _loaded_for_folder(dataclasses.replace(options, dtype="fp32"))


def _save(model: Model, options: ConvertOptions) -> None:
    model.save(options.output, force=options.force, shard_size=options.shard_size, store=options.store)


def _write_arpa(options: ConvertOptions) -> None:
    output = Path(os.fspath(options.output))
    if not output.name.endswith((".arpa", ".arpa.gz", ".lm", ".lm.gz")):
        raise OptionError(
            f"An ARPA file is called NAME.arpa, or NAME.arpa.gz if it is compressed. Got {output} instead."
        )
    check_output(output, force=options.force, inputs=[folder_of(options.model)])
    model = load(model_or_default("convert", options.model), device="cpu")
    if not isinstance(model, NGram):
        raise ModelError(f"ARPA files hold n-grams, and {model.path} is no n-gram model.")
    with whole_file(output, force=options.force) as new, explained(output):
        write_arpa(model.model, new)


def _write_fastai(options: ConvertOptions) -> None:
    output = Path(os.fspath(options.output))
    if output.suffix != ".pth":
        raise OptionError(f"A file of fastai's is called NAME.pth. Got {output} instead.")
    _check_both(output, words_beside(output), options)
    bundle = load(model_or_default("convert", options.model), device="cpu").bundle
    if bundle.family.fastai_names is None:
        raise ModelError(
            f"fastai has no class for models of the family {bundle.family.name}; of ours it knows AWD-LSTMs. Leave "
            "--to out: polyseme's own layout holds every family."
        )
    table, outputs = bundle.family.table(bundle.config, bundle.tied), list(bundle.outputs)
    weights = bundle.family.fastai_names(write(table, named_tensors(bundle), outputs, prefix=bool(outputs)))
    n_rows, tokenizer = bundle.config.n_pieces, bundle.text_tokenizer
    with explained(output):
        write_fastai(output, weights, tokenizer.pieces(range(tokenizer.n_pieces)), n_rows, force=options.force)


def _check_both(output: Path, beside: Path, options: ConvertOptions) -> None:
    """Refuse an output of two files; the second by itself may have been left by a killed process (`write_beside`)."""
    inputs = [folder_of(options.model)]
    check_output(output, force=options.force, inputs=inputs)
    check_output(beside, force=options.force or not output.exists(), inputs=inputs)


def _write_onnx(options: ConvertOptions) -> None:
    """Word vectors of an encoder; of a task model its scores, unless a layer or a pooling is named."""
    output = Path(os.fspath(options.output))
    if output.suffix != ".onnx":
        raise OptionError(f"A file of ONNX is called NAME.onnx. Got {output} instead.")
    need_packages()
    tokenizer_file = output.with_suffix(".tokenizer.json")
    _check_both(output, tokenizer_file, options)
    model = load(model_or_default("convert", options.model), device="cpu", dtype="fp32")
    graph, description = _onnx_graph(model, options)
    description = {
        "polyseme": __version__,
        "family": model.bundle.family.name,
        "window": model.bundle.config.window,
    } | description
    with (
        whole_file(output, force=options.force) as new,
        explained(output),
        tempfile.TemporaryDirectory() as folder,
    ):
        difference = write_onnx(graph, new, description)
        model.bundle.text_tokenizer.save(folder)
        if (Path(folder) / "tokenizer.json").is_file():
            write_beside(tokenizer_file, (Path(folder) / "tokenizer.json").read_bytes(), force=options.force)
    _logger.info(
        "%s from %s; onnxruntime computes it on ragged rows to %.0e of the largest value.",
        graph.output,
        ", ".join(graph.inputs),
        difference,
    )


def _onnx_graph(model: Model, options: ConvertOptions) -> tuple[Graph, dict[str, Any]]:
    """What the file computes, and what it says of itself."""
    folder = model_folder(Path(model.path)) if model.path else None
    if folder is not None and task_card(folder) is not None and not {"layer", "pool"} & set(options.changed()):
        task_model, _ = model.task_model
        config = task_model.config
        description = {"task": config.kind, "labels": task_model.head.config.labels, "max_pieces": config.max_pieces}
        return TaskScores(task_model), description
    pool = options.pool or model.bundle.config.usual_pooling
    choice = parse_layers(options.layer, model.bundle.config)
    return WordVectors(model.bundle, choice, pool), {"layer": str(options.layer), "pool": pool}


def _write_word2vec(options: ConvertOptions) -> Cost:
    started = time.perf_counter()
    if options.source is None:
        return _write_static_vectors(options, started)
    inputs = inputs_of(options.source)
    clear_up(options.output)
    check_word2vec(options.output)
    check_output(options.output, force=options.force, inputs=[*names_of(inputs), folder_of(options.model)])
    request = TypesRequest(
        output=options.output, min_count=options.min_count, lowercase=options.lowercase, force=options.force
    )
    loaded = load(model_or_default("convert", options.model), device=options.device, dtype=options.dtype)
    embedder = loaded.embedder(**options.values(LayerOptions), batch_pieces=options.batch_pieces)
    reading = options.values(TextOptions)

    def settings() -> dict[str, Any]:
        """Everything that decides the result."""
        parts = fingerprint(loaded.bundle, loaded.precision)
        return {
            "model": loaded.path,
            **{f"the model's {part}": hash for part, hash in parts.items()},
            **{name: str(value) for name, value in options.values(LayerOptions).items()},
            "dtype": options.dtype,
            "min_count": options.min_count,
            "lowercase": options.lowercase,
            "input": describe_inputs(inputs),
            **reading,
            "batch_pieces": embedder.batch_pieces,
            "device": embedder.device.type,
            "chunk_characters": chunks.CHUNK_CHARACTERS,
            "polyseme": __version__,
        }

    return embed_types(
        embedder, inputs, request, reading=reading, settings=settings, progress=options.progress, started=started
    )


def _write_static_vectors(options: ConvertOptions, started: float) -> Cost:
    """The words of a model that has one vector for each, in the order of its table."""
    of_texts = [name for name in options.changed() if name in ("min_count", "lowercase")]
    model = load(model_or_default("convert", options.model), device=options.device, dtype=options.dtype)
    tokenizer = model.bundle.tokenizer
    if of_texts or not isinstance(tokenizer, WordTokenizer):
        raise OptionError(
            "word2vec has one vector per word type, the mean of its uses in texts. Name the texts: --in texts/ "
            "(source=…). Only static vectors are written without texts, all of their words."
        )
    check_word2vec(options.output)
    check_output(options.output, force=options.force, inputs=[folder_of(options.model)])
    embedder = model.embedder(**options.values(LayerOptions), batch_pieces=options.batch_pieces)
    words, vectors = list(tokenizer.words), []
    for first in range(0, len(words), WORDS_AT_ONCE):
        vectors += [each.vectors for each in embedder(to_documents([words[first : first + WORDS_AT_ONCE]]))]
    with whole_file(options.output, force=options.force) as file:
        write_word2vec(file, words, np.concatenate(vectors), shown=options.output)
    return embedder.tally.cost(time.perf_counter() - started, embedder.device)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A layout that a model can be written in."""

    write: Callable[[ConvertOptions], Cost | None]
    options: tuple[str, ...]
    """Those that it takes, besides those that all do."""


EVERYWHERE = ("model", "output", "to", "force", "progress")
OPENED_ELSEWHERE = ("transformers", "sentence-transformers")
"""Folders for libraries that know no pruned heads."""
_FOLDER = ("shard_size", "store", "dtype", "fill_pruned")
BESIDE = (REPORT, PAGE, CURVE, MODEL_CARD)
"""Files of a task model that are copied as they are."""
_WORDS = [
    each.name for record in (LayerOptions, TextOptions, LoadOptions, BatchOption) for each in dataclasses.fields(record)
]

TARGETS: Mapping[str, Target] = {
    "polyseme": Target(write=_write_folder, options=_FOLDER),
    "transformers": Target(write=_write_transformers, options=_FOLDER),
    "sentence-transformers": Target(write=_write_sentence_transformers, options=(*_FOLDER, "text_pool")),
    "arpa": Target(write=_write_arpa, options=()),
    "fastai": Target(write=_write_fastai, options=()),
    "onnx": Target(write=_write_onnx, options=("layer", "pool")),
    "word2vec": Target(write=_write_word2vec, options=("source", "min_count", "lowercase", *_WORDS)),
}
"""The one table of layouts, by the names that `--to` takes."""

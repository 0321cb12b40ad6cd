"""The options that many commands share: which model runs, where and how, and which layer; those of show and convert."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from polyseme.files.reading_options import TextOptions
from polyseme.options import Options, callback, doc, option
from polyseme.packaged_models import default_in_words

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.embedding.decoder_stack import Stack
    from polyseme.files.source_paths import AnyPath, Sources
    from polyseme.files.vector_files import Store
    from polyseme.types import Document, Progress

    Texts = str | Sequence[str] | Sequence[Sequence[str]] | Sequence[Document]

Dtype = Literal["auto", "fp32", "bf16", "fp16", "fp64", "int8"]
SOURCES = "Files, folders or patterns, or - for standard input; one, or several."
FILES = "Files, folders or patterns; one, or several."
"""Of what is read more than once."""
IN_MEMORY = (
    " In Python also texts: a list of them, of lists of words or of mappings, a frame, an Arrow table, a dataset."
)
BYTES_DONE = (
    "Called with the number of bytes of the input that are done, and the number of all; of rows, where it is in memory."
)


def model_option(verb: str) -> Any:
    """A field of a record for the model of a verb."""
    return option(
        None,
        "Model to use: a packaged one (see: polyseme models), a model folder, the folder of a run, a file of word "
        "vectors or of n-grams (.arpa), or hub:owner/name.",
        "MODEL",
        default=default_in_words(verb),
        flags="-m --model",
    )


@dataclass(frozen=True, kw_only=True)
class ShowOptions(Options):
    """What `show` takes: which model is used."""

    model: AnyPath | Model | None = model_option("show")


@dataclass(frozen=True, kw_only=True)
class DeviceOption(Options):
    """Where a model runs."""

    device: str = option("auto", "Device to compute on: auto (a GPU where there is one), cpu, cuda, cuda:N.", "DEVICE")


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(ShowOptions, DeviceOption):
    """Which model runs, and where."""


@dataclass(frozen=True, kw_only=True)
class LoadOptions(DeviceOptions):
    """Which model runs, where, and in which precision."""

    dtype: Dtype = option(
        "auto",
        "Precision to compute in: fp32, bf16, fp16, fp64, int8; auto is fp32, or int8 if the weights are stored in it.",
        "DTYPE",
    )


@dataclass(frozen=True, kw_only=True)
class BatchOption(Options):
    """How many pieces run together."""

    batch_pieces: int | None = option(
        None, "Batch size, in pieces: how many run together.", "N", default="2048, on a GPU 65536"
    )


@dataclass(frozen=True, kw_only=True)
class ComputeOptions(LoadOptions, BatchOption):
    """Which model runs, and how."""


@dataclass(frozen=True, kw_only=True)
class ForceOption(Options):
    """Whether an output that exists is replaced."""

    force: bool = option(False, "Replace the output if it exists; discard unfinished work that has other settings.")


@dataclass(frozen=True, kw_only=True)
class RayOption(Options):
    """Whether the workers of a Ray cluster do the work."""

    ray: str | None = option(
        None,
        "Cluster of Ray whose workers share the work, one for each processor or GPU: host:port, ray://host:port, auto "
        "(the one that this machine is part of), local (this machine's processors), local:N. The output is the same.",
        "ADDRESS",
        default="this process does it",
    )


@dataclass(frozen=True, kw_only=True)
class CostOption(Options):
    """What energy and devices cost."""

    cost_rates: Mapping[str, Any] | None = option(
        None,
        "What energy costs in the ledger: kg_per_kwh=0.05, price_per_kwh=0.2, price_per_device_hour=2; may be given "
        "several times.",
        "NAME=VALUE",
        default="as `training.energy_ledger.Rates` states",
        parse="pairs",
    )


@dataclass(frozen=True, kw_only=True)
class LayerOptions(Options):
    """Which vectors of a word are taken."""

    layer: str | int = option(
        -1,
        "Layer of the vectors: a number (0 is the token layer, -1 the top), all, sum:a:b, mean:a:b, concat:a:b, mix, "
        "mix:last3:0.2,0.3,0.5.",
        "LAYER",
    )
    pool: str | None = option(
        None,
        "How the pieces of a word become one vector: first, last, mean, max; of two-way models also ends (forward half "
        "at the last piece, backward half at the first), and of Flair outer-ends (one piece further out).",
        "POOLING",
        default="mean; of Flair outer-ends",
    )


@dataclass(frozen=True, kw_only=True)
class StackOption(Options):
    """Which of two stacks is read."""

    stack: Stack = option(
        "encoder",
        "Stack of a model that has two: encoder, or decoder, which then reads the text on both sides.",
        "STACK",
    )


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(LayerOptions, TextOptions, ComputeOptions, ForceOption):
    """What `convert_model` takes."""

    model: AnyPath | Model | None = model_option("convert")
    output: AnyPath = dataclasses.field(
        metadata=doc(
            "Folder to write; for word2vec a file: .vec or .txt (text), .bin (binary); for arpa .arpa or .arpa.gz; for "
            "fastai .pth; for onnx .onnx.",
            "OUTPUT",
            flags="-o --output",
        )
    )
    to: str = option(
        "polyseme",
        "Layout to write: polyseme (transformers loads it where it has the class; with --dtype int8 polyseme alone), "
        "transformers (refused where it has "
        "none), sentence-transformers, word2vec (one vector per word type of some texts, or per word of static "
        "vectors), arpa (n-gram models), fastai (AWD-LSTM; the words go into a second file), or onnx (word vectors, or "
        "a task model's scores; the tokenizer goes into a second file).",
        "TARGET",
    )
    shard_size: int | None = option(None, "Largest file of weights, in bytes.", "BYTES", default="one file")
    store: Store = option("fp32", "Precision of the stored weights: fp32, fp16, bf16.", "DTYPE")
    fill_pruned: bool = option(
        False, "Write heads that prune has removed as zeros, so that other libraries open the model."
    )
    text_pool: str | None = option(
        None,
        "For sentence-transformers, what a text's vector is of all its pieces, special ones included: mean, first, "
        "last, max.",
        "POOLING",
        default="the model's own where it has one, else mean",
    )
    source: Sources | None = option(
        None,
        f"For word2vec, texts with the words. {SOURCES}",
        "INPUT",
        default="none",
        flags="--in",
        parse="files",
    )
    min_count: int = option(5, "For word2vec, how often a word must occur in the texts.", "N")
    lowercase: bool = option(False, "For word2vec, count words in lowercase.")
    progress: Progress | None = callback(BYTES_DONE)

"""The options that many commands share: which model runs, where and how, and which layer; those of show and convert."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from polyseme.files.reading_options import TextOptions
from polyseme.options import Options, callback, doc, option, output_option
from polyseme.packaged_models import default_in_words

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.embedding.decoder_stack import Stack
    from polyseme.files.atomic import AnyPath
    from polyseme.files.source_paths import Sources
    from polyseme.files.vector_files import Store
    from polyseme.types import Document, Progress

    Texts = str | Sequence[str] | Sequence[Sequence[str]] | Sequence[Document]

Dtype = Literal["auto", "fp32", "bf16", "fp16", "fp64", "int8"]
SOURCES = "Files, folders or patterns; - is standard input."
FILES = "Files, folders or patterns."
"""Of what is read more than once."""
TYPED = " On the command line also texts of two words or more."
IN_MEMORY = (
    " In Python also texts in memory: a list of strings, word lists or mappings, a data frame, an Arrow table or a "
    "dataset."
)
BYTES_DONE = "Called with the bytes of the input processed so far, and the total (for input in memory: rows)."


def model_option(verb: str) -> Any:
    """A field of a record for the model of a verb."""
    return option(
        None,
        "Model: a packaged model (see: polyseme models), a model folder, a run folder, a file of word vectors or "
        "n-grams (.arpa), or hub:owner/name.",
        "MODEL",
        default=default_in_words(verb),
        flags="-m --model",
    )


@dataclass(frozen=True, kw_only=True)
class ModelOption(Options):
    """Which model is used."""

    model: AnyPath | Model | None = model_option("show")


@dataclass(frozen=True, kw_only=True)
class DeviceOption(Options):
    """Where a model runs."""

    section: ClassVar[str] = "Computation"

    device: str = option("auto", "Device: auto (a GPU if there is one), cpu, cuda, cuda:N.", "DEVICE")


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(ModelOption, DeviceOption):
    """Which model runs, and where."""


@dataclass(frozen=True, kw_only=True)
class LoadOptions(DeviceOptions):
    """Which model runs, where, and in which precision."""

    section: ClassVar[str] = "Computation"

    dtype: Dtype = option(
        "auto",
        "Precision of the computation: fp32, bf16, fp16, fp64, int8; auto is int8 if the weights are stored in int8, "
        "else fp32.",
        "DTYPE",
    )


@dataclass(frozen=True, kw_only=True)
class BatchOption(Options):
    """How many pieces run together."""

    section: ClassVar[str] = "Computation"

    batch_pieces: int | None = option(None, "Batch size, in pieces.", "N", default="2048; on a GPU 65536")


@dataclass(frozen=True, kw_only=True)
class ComputeOptions(LoadOptions, BatchOption):
    """Which model runs, and how."""


@dataclass(frozen=True, kw_only=True)
class ForceOption(Options):
    """Whether an output that exists is replaced."""

    force: bool = option(False, "Replace the output if it exists, and discard unfinished work with other settings.")


@dataclass(frozen=True, kw_only=True)
class ShowOptions(ModelOption, ForceOption):
    """What `show` takes."""

    output: AnyPath | None = output_option(
        "Output file with pictures of who sees whom, layer by layer, and of the positions: a page (.html) or the "
        "pictures alone (.svg)."
    )
    length: int = option(12, "Sequence length, in pieces, of the pictures of who sees whom.", "N")


@dataclass(frozen=True, kw_only=True)
class RayOption(Options):
    """Whether the workers of a Ray cluster do the work."""

    section: ClassVar[str] = "Computation"

    ray: str | None = option(
        None,
        "Ray cluster to run on, with one worker per core or GPU: host:port, ray://host:port, auto (the cluster that "
        "this machine belongs to), local (all cores of this machine) or local:N. The output is the same as without.",
        "ADDRESS",
        default="none",
    )


@dataclass(frozen=True, kw_only=True)
class CostOption(Options):
    """What energy and devices cost."""

    section: ClassVar[str] = "Computation"

    cost_rates: Mapping[str, Any] | None = option(
        None,
        "Rate for the cost ledger: kg_per_kwh=0.05, price_per_kwh=0.2, price_per_device_hour=2; may be given several "
        "times.",
        "NAME=VALUE",
        default="those of `training.energy_ledger.Rates`",
        parse="pairs",
    )


@dataclass(frozen=True, kw_only=True)
class LayerOptions(Options):
    """Which vectors of a word are taken."""

    section: ClassVar[str] = "Vectors"

    layer: str | int = option(
        -1,
        "Layer of the vectors: a number (0 is the token layer, -1 the top), all, sum:a:b, mean:a:b, concat:a:b, mix, "
        "mix:last3:0.2,0.3,0.5.",
        "LAYER",
    )
    pool: str | None = option(
        None,
        "How the pieces of a word become one vector: first, last, mean, max; for two-way models also ends (forward "
        "state at the last piece, backward state at the first); for Flair outer-ends (one piece further out).",
        "POOLING",
        default="mean; for Flair outer-ends",
    )


@dataclass(frozen=True, kw_only=True)
class StackOption(Options):
    """Which of two stacks is read."""

    section: ClassVar[str] = "Vectors"

    stack: Stack = option(
        "encoder",
        "Stack of a sequence-to-sequence model: encoder, or decoder (both stacks then read the text).",
        "STACK",
    )


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(LayerOptions, TextOptions, ComputeOptions, ForceOption):
    """What `convert_model` takes."""

    model: AnyPath | Model | None = model_option("convert")
    output: AnyPath = dataclasses.field(
        metadata=doc(
            "Folder to write, or a file: for word2vec .vec or .txt (text) or .bin (binary); for arpa .arpa or "
            ".arpa.gz; for fastai .pth; for onnx .onnx.",
            "OUTPUT",
            flags="-o --output",
        )
    )
    to: str = option(
        "polyseme",
        "Layout to write: polyseme (transformers can load it if it has the architecture; with --dtype int8 only "
        "polyseme can), transformers (refused if it lacks the architecture), sentence-transformers, word2vec (one "
        "vector per word type), arpa (n-gram models), fastai (AWD-LSTM; the vocabulary is a second file), or onnx "
        "(word vectors, or a task model's scores; the tokenizer is a second file).",
        "TARGET",
    )
    shard_size: int | None = option(None, "Maximum size of a weight file, in bytes.", "BYTES", default="one file")
    store: Store = option("fp32", "Precision of the stored weights: fp32, fp16, bf16.", "DTYPE")
    fill_pruned: bool = option(False, "Write pruned heads as zeros, so that other libraries can load the model.")
    text_pool: str | None = option(
        None,
        "For sentence-transformers: pooling over all pieces of a text, special pieces included: mean, first, last, "
        "max.",
        "POOLING",
        default="the model's own if it defines one, else mean",
    )
    source: Sources | None = option(
        None,
        f"For word2vec, texts with the words. {SOURCES}",
        "INPUT",
        default="none",
        flags="--in",
        parse="files",
    )
    min_count: int = option(5, "For word2vec: minimum number of times a word must occur in the texts.", "N")
    lowercase: bool = option(False, "For word2vec: lowercase words before counting them.")
    progress: Progress | None = callback(BYTES_DONE)

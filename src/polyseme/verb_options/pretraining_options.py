"""The options of the commands that train a model from texts: corpus, recipes, pretrain."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyseme.options import Options, callback, doc, option, output_option
from polyseme.verb_options.model_options import CostOption, DeviceOption, ForceOption

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.atomic import AnyPath
    from polyseme.files.reading_options import FieldName
    from polyseme.files.source_paths import Sources
    from polyseme.training.effects import OnReport
    from polyseme.types import Progress

SAMPLE = 1 << 25
"""Bytes of text that a tokenizer is trained on, at most."""
RECIPE = "the recipe's"
FITTED = "fitted to the budget"
SCHEDULES = "constant, linear, cosine, noam, slanted-triangular, warmup-stable-decay"


@dataclass(frozen=True, kw_only=True)
class PairedTextOptions(Options):
    """Texts in pairs, for translation, in place of plain texts."""

    source: Sources | None = option(
        None,
        "Source side of parallel texts, one text per line; may be given several times.",
        "FILE",
        default="none",
        parse="files",
    )
    target: Sources | None = option(
        None,
        "Target side of parallel texts, line by line; may be given several times.",
        "FILE",
        default="none",
        parse="files",
    )
    held_source: Sources | None = option(
        None,
        "Source side of held-out pairs; may be given several times.",
        "FILE",
        default="a share of the training pairs",
        parse="files",
    )
    held_target: Sources | None = option(
        None, "Target side of held-out pairs; may be given several times.", "FILE", default="none", parse="files"
    )


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(PairedTextOptions, ForceOption):
    """What `build_corpus` takes."""

    sources: Sources | dict[str, tuple[Sources, float]] | None = dataclasses.field(
        default=None,
        kw_only=False,
        metadata=doc(
            "Files, folders and patterns of text, JSON Lines, CSV, TSV or Parquet, compressed or not. Several sources "
            'with weights: {"wiki": ("wiki/*.txt", 1), "books": ("books/", 2.5)}, or "books=2.5:books/" among others. '
            "In Python also a frame, a dataset or a column of texts.",
            "[TEXTS]...",
        ),
    )
    output: AnyPath = dataclasses.field(metadata=doc("Folder of the corpus.", "OUTPUT", flags="-o --output"))
    tokenizer: AnyPath = option(
        "wordpiece",
        "Tokenizer: wordpiece, bpe, byte-bpe, unigram, words, blanks (strings between blanks) or characters, trained "
        "on the text; or a folder with a tokenizer.",
        "KIND",
    )
    vocab_size: int | None = option(None, "Vocabulary size, if a tokenizer is trained.", "N", default="30522")
    min_count: int = option(1, "Minimum frequency of a word in a vocabulary of whole words.", "N")
    frame: str | None = option(
        None,
        "Special pieces of a model family: bert, roberta, gpt2, albert, xlnet, t5 …",
        "FAMILY",
        default="by the kind of tokenizer",
    )
    lowercase: bool | None = option(
        None,
        "Whether the tokenizer lowercases text.",
        default="by the kind of tokenizer",
        flags="--lowercase/--no-lowercase",
    )
    field: FieldName | None = option(None, "Field or column with the text.", "NAME", default="the only one")
    format: str | None = option(None, "Format of the texts: text, jsonl, csv …", "FORMAT", default="by the file suffix")
    documents: str | None = option(
        None,
        "Unit of a document in plain text: blank-lines (text between blank lines), file or line.",
        "UNIT",
        default="blank-lines",
    )
    held_out: float = option(0.01, "Share of documents held out for evaluation.", "SHARE")
    sample: int = option(SAMPLE, "Maximum number of bytes of text to train a tokenizer on.", "BYTES")
    limit: int | None = option(
        None, "Maximum number of bytes of text to read from each source.", "BYTES", default="all"
    )
    workers: int | None = option(
        None, "Number of processes; the result does not depend on it.", "N", default="the number of cores"
    )
    seed: int = option(0, "Seed of the selection of held-out documents.", "N")
    reuse: bool = option(False, "Accept a finished corpus with these settings instead of refusing to overwrite it.")
    progress: Progress | None = callback("Called with the number of bytes processed, and the total.")


@dataclass(frozen=True, kw_only=True)
class RecipesOptions(DeviceOption):
    """What `recipes` takes: which recipe, and what its training is fitted to."""

    recipe: str | None = dataclasses.field(
        default=None, kw_only=False, metadata=doc("Recipe to show; None: list all.", "[NAME]")
    )
    budget: str = option("10min", "Budget to fit the training of NAME to.", "AMOUNT")


@dataclass(frozen=True, kw_only=True)
class PretrainOptions(PairedTextOptions, DeviceOption, CostOption):
    """What `pretrain` takes."""

    sources: Sources | None = dataclasses.field(
        default=None,
        kw_only=False,
        metadata=doc(
            "Files, folders or patterns of text, or the folder of a corpus (`build_corpus`). In Python also a frame, a "
            "dataset or a column of texts.",
            "[TEXTS]...",
        ),
    )
    output: AnyPath | None = output_option("Folder of the run, with the model in model/.", default="none")
    resume: AnyPath | None = option(None, "Folder of a run to resume with its own settings.", "RUN", default="none")
    stop_after: str | None = option(
        None,
        "Write a checkpoint and stop after this time, counted from the start of the command (9min); the run can be "
        "resumed.",
        "TIME",
        default="none",
    )
    recipe: str | None = option(
        None,
        "Recipe of model and training (see: polyseme recipes).",
        "NAME",
        default="the best encoder for device and budget",
    )
    budget: str | None = option(
        None,
        "Training budget: 20min, 3e16flops, 1e9pieces, 5epochs, 1000steps.",
        "AMOUNT",
        default="20min; 5epochs for static vectors, 25epochs for GloVe, 15epochs for ulmfit-target",
    )
    as_published: bool = option(
        False,
        "Train with the paper's batch, length, learning rate and schedule, whatever the budget.",
    )
    model: AnyPath | Model | None = option(
        None,
        "Model to train further, with its own tokenizer; the recipe then decides only the training.",
        "MODEL",
        default="a new model",
        flags="-m --model",
    )
    tokenizer: AnyPath | None = option(
        None,
        "Tokenizer: wordpiece, bpe, byte-bpe, unigram, words, blanks or characters, trained on the text; or a folder "
        "with a tokenizer.",
        "KIND",
        default=RECIPE,
    )
    vocab_size: int | None = option(None, "Vocabulary size, if a tokenizer is trained.", "N", default=RECIPE)
    min_count: int | None = option(
        None, "Minimum frequency of a word in a vocabulary of whole words.", "N", default=RECIPE
    )
    field: FieldName | None = option(None, "Field or column with the text.", "NAME", default="the only one")
    documents: str | None = option(
        None,
        "Unit of a document: blank-lines, file, line or record.",
        "UNIT",
        default="blank-lines; record for formats with records",
    )
    held_out: float = option(0.01, "Share of documents held out for evaluation.", "SHARE")
    batch_size: int | None = option(None, "Batch size, in rows.", "N", default=FITTED)
    length: int | None = option(None, "Sequence length, in pieces.", "N", default=FITTED)
    learning_rate: float | None = option(None, "Peak learning rate.", "RATE", default=FITTED)
    optimizer: str | None = option(
        None, "Optimizer: adamw, adamw-uncorrected, muon, adagrad, sgd, nt-asgd.", "NAME", default=FITTED
    )
    schedule: str | None = option(None, f"Learning rate schedule: {SCHEDULES}.", "NAME", default=FITTED)
    warmup: float | None = option(
        None, "Warmup: a share of the steps (below 1), or a number of steps.", "SHARE", default=FITTED
    )
    layer_decay: float | None = option(
        None,
        "Factor of the learning rate from each layer to the one below it (ULMFiT: 0.385).",
        "FACTOR",
        default="the recipe's, usually 1",
    )
    micro_batch_size: int | None = option(
        None, "Number of rows per forward pass; gradients accumulate over a batch.", "N", default="by the device"
    )
    mask_documents: bool = option(False, "Mask attention between documents that share a row.")
    reset_positions: bool = option(False, "Restart positions at each document.")
    shape: Mapping[str, Any] | None = option(
        None,
        "Change a setting of the encoder's config: n_layers=4; may be given several times.",
        "NAME=VALUE",
        default=RECIPE,
        flags="--set",
        parse="pairs",
    )
    objective: Mapping[str, Any] | None = option(
        None,
        "Change a setting of the objective: unit=word, mask_rate=0.3, next=nsp (next sentence) or next=sop (sentence "
        "order); may be given several times.",
        "NAME=VALUE",
        default=RECIPE,
        parse="pairs",
    )
    layout: str | None = option(
        None,
        "Input format of masked language models (RoBERTa's four): segment-pair, sentence-pair, full-sentences, "
        "doc-sentences.",
        "FORMAT",
        default="packed rows; segment-pair if the objective has next",
    )
    dtype: str = option("auto", "Precision: auto (bf16 on a GPU, else fp32), fp32, bf16, fp64.", "DTYPE")
    compile: bool | None = option(
        None, "Compile the networks with torch.compile.", default="on a GPU", flags="--compile/--no-compile"
    )
    parallel: str = option("ddp", "Parallelism under torchrun: ddp or fsdp.", "MODE")
    seed: int = option(0, "Random seed.", "N")
    log_every: int = option(10, "Steps between entries in log.jsonl.", "N")
    evaluate_every: int | None = option(
        None,
        "Steps between evaluations on held-out text.",
        "N",
        default="10 evaluations in all, or fewer if evaluations and checkpoints would exceed a tenth of a time budget",
    )
    checkpoint_every: int | None = option(
        None,
        "Steps between checkpoints.",
        "N",
        default="at each evaluation, and at least every 1,000 steps if there are 10 evaluations",
    )
    keep_checkpoints: int = option(2, "Number of checkpoints to keep.", "N")
    ema: float | None = option(
        None,
        "Evaluate and save an exponential moving average of the weights with this decay: 0.999.",
        "DECAY",
        default="none",
    )
    average_checkpoints: int | None = option(
        None, "Save the average of the last N checkpoints as the model.", "N", default="none"
    )
    keep_at_words: str | Sequence[str | int] = option(
        (),
        "Save the model in at-words/ after these numbers of words, separated by commas: 1M,10M.",
        "NUMBERS",
        default="none",
        parse="names",
    )
    shard_size: int | None = option(None, "Maximum size of a weight file, in bytes.", "BYTES", default="one file")
    tensorboard: bool = option(False, "Also write TensorBoard events.")
    workers: int = option(1, "Number of threads that prepare rows in advance.", "N")
    dry_run: bool = option(
        False, "Run two steps of every stage, report the estimated cost of the whole run, and save nothing."
    )
    force: bool = option(False, "Replace the output if it exists.")
    on_report: OnReport | None = callback("Called with reports on the training.")
    progress: Progress | None = callback("Called with the number of bytes already in the corpus, and the total.")
    started: float | None = callback(
        "When the work began, by `time.perf_counter()`: what a budget of time and stop_after count from. None: now."
    )

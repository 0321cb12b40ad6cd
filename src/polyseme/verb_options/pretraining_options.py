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
    from polyseme.files.reading_options import FieldName
    from polyseme.files.source_paths import AnyPath, Sources
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
        None, "Texts to translate, one per line; may be given several times.", "FILE", default="none", parse="files"
    )
    target: Sources | None = option(
        None, "Their translations, line by line; may be given several times.", "FILE", default="none", parse="files"
    )
    held_source: Sources | None = option(
        None,
        "Texts to translate of held-out pairs; may be given several times.",
        "FILE",
        default="a share of the others",
        parse="files",
    )
    held_target: Sources | None = option(
        None, "Translations of held-out pairs; may be given several times.", "FILE", default="none", parse="files"
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
        "Tokenizer: wordpiece, bpe, byte-bpe, unigram, words, blanks (what stands between them) or characters, trained "
        "on the text; or a folder with one.",
        "KIND",
    )
    vocab_size: int | None = option(None, "Vocabulary size of a tokenizer that is trained.", "N", default="30522")
    min_count: int = option(1, "How often a word must occur to be in a vocabulary of whole words.", "N")
    frame: str | None = option(
        None,
        "Family whose special pieces the tokenizer has: bert, roberta, gpt2, albert, xlnet, t5 …",
        "FAMILY",
        default="by kind",
    )
    lowercase: bool | None = option(
        None, "Whether the tokenizer lowercases text.", default="by kind", flags="--lowercase/--no-lowercase"
    )
    field: FieldName | None = option(None, "Field or column with the text.", "NAME", default="the only one there is")
    format: str | None = option(None, "Format of the texts: text, jsonl, csv …", "FORMAT", default="by their endings")
    documents: str | None = option(
        None,
        "What one document is in plain text: blank-lines (what stands between them), file or line.",
        "UNIT",
        default="blank-lines",
    )
    held_out: float = option(0.01, "Share of the documents that is held out for evaluation.", "SHARE")
    sample: int = option(SAMPLE, "Most bytes of text that a tokenizer is trained on.", "BYTES")
    limit: int | None = option(None, "Most bytes of text that are read of each source.", "BYTES", default="all")
    workers: int | None = option(
        None, "Number of processes; the result does not depend on it.", "N", default="the cores"
    )
    seed: int = option(0, "Seed of the choice of held-out documents.", "N")
    reuse: bool = option(False, "Accept a finished corpus that has these settings, instead of refusing to replace it.")
    progress: Progress | None = callback("Called with the number of bytes of the files that are done, and of all.")


@dataclass(frozen=True, kw_only=True)
class RecipesOptions(DeviceOption):
    """What `recipes` takes: which recipe, and what its training is fitted to."""

    recipe: str | None = dataclasses.field(
        default=None, kw_only=False, metadata=doc("Recipe to show alone; None: all of them.", "[NAME]")
    )
    budget: str = option("10min", "Budget that the training of NAME is fitted to.", "AMOUNT")


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
    output: AnyPath | None = output_option("Folder of the run; its model/ is the model.", default="none")
    resume: AnyPath | None = option(
        None, "Folder of a run to resume, with the settings that it has.", "RUN", default="none"
    )
    stop_after: str | None = option(
        None,
        "Time, from the start of the command, after which the run writes a checkpoint and ends, to be resumed: 9min.",
        "TIME",
        default="at its end",
    )
    recipe: str | None = option(
        None,
        "Recipe: what is trained, and how. See: polyseme recipes.",
        "NAME",
        default="the best encoder for device and budget",
    )
    budget: str | None = option(
        None,
        "Budget of training: 20min, 3e16flops, 1e9pieces, 5epochs, 1000steps.",
        "AMOUNT",
        default="20min; 5epochs of static vectors, 25epochs of GloVe, 15epochs of ulmfit-target",
    )
    as_published: bool = option(
        False,
        "Train with the paper's batch, length, learning rate and schedule, whatever the budget.",
    )
    model: AnyPath | Model | None = option(
        None,
        "Model to train further; its tokenizer is used, and the recipe only says how to train.",
        "MODEL",
        default="a new one",
        flags="-m --model",
    )
    tokenizer: AnyPath | None = option(
        None,
        "Tokenizer: wordpiece, bpe, byte-bpe, unigram, words, blanks or characters, trained on the text; or a folder.",
        "KIND",
        default=RECIPE,
    )
    vocab_size: int | None = option(None, "Vocabulary size of a tokenizer that is trained.", "N", default=RECIPE)
    min_count: int | None = option(
        None, "How often a word must occur to be in a vocabulary of whole words.", "N", default=RECIPE
    )
    field: FieldName | None = option(None, "Field or column with the text.", "NAME", default="the only one there is")
    documents: str | None = option(
        None, "What one document is: blank-lines, file, line or record.", "UNIT", default="blank-lines, or a record"
    )
    held_out: float = option(0.01, "Share of the documents that is held out for evaluation.", "SHARE")
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
        "Factor of the learning rate from each layer to the one below, from the output down (ULMFiT: 0.385).",
        "FACTOR",
        default="the recipe's, mostly 1",
    )
    micro_batch_size: int | None = option(
        None, "Rows that the device computes at once; gradients of a batch add up.", "N", default="by the device"
    )
    mask_documents: bool = option(False, "Hide documents that share a row from each other.")
    reset_positions: bool = option(False, "Restart positions with each document.")
    shape: Mapping[str, Any] | None = option(
        None,
        "Change of the encoder's config: n_layers=4; may be given several times.",
        "NAME=VALUE",
        default=RECIPE,
        flags="--set",
        parse="pairs",
    )
    objective: Mapping[str, Any] | None = option(
        None,
        "Change of the objective's settings: unit=word, mask_rate=0.3, next=nsp (next sentence) or next=sop (sentence "
        "order); may be given several times.",
        "NAME=VALUE",
        default=RECIPE,
        parse="pairs",
    )
    layout: str | None = option(
        None,
        "Input format where pieces are masked (RoBERTa's four): segment-pair, sentence-pair, full-sentences, "
        "doc-sentences.",
        "FORMAT",
        default="packed rows; with next, segment-pair",
    )
    dtype: str = option("auto", "Precision: auto (bf16 on a GPU, else fp32), fp32, bf16, fp64.", "DTYPE")
    compile: bool | None = option(
        None, "Whether torch compiles the networks.", default="on a GPU", flags="--compile/--no-compile"
    )
    parallel: str = option("ddp", "How processes under torchrun share the work: ddp or fsdp.", "HOW")
    seed: int = option(0, "Seed of everything random.", "N")
    log_every: int = option(10, "Steps between lines of log.jsonl.", "N")
    evaluate_every: int | None = option(
        None,
        "Steps between evaluations on held-out text.",
        "N",
        default="ten in all; fewer if they and checkpoints would take over a tenth of a budget of time",
    )
    checkpoint_every: int | None = option(
        None, "Steps between checkpoints.", "N", default="as evaluations; at least every 1,000 steps if those are ten"
    )
    keep_checkpoints: int = option(2, "Number of checkpoints to keep.", "N")
    ema: float | None = option(
        None,
        "Decay of an exponential moving average of the weights, which is evaluated and saved instead of them: 0.999.",
        "DECAY",
        default="none",
    )
    average_checkpoints: int | None = option(
        None, "Number of last checkpoints whose mean is saved as the model; they are kept.", "N", default="none"
    )
    keep_at_words: str | Sequence[str | int] = option(
        (),
        "Numbers of words, separated by commas, at which the model is kept, in at-words/: 1M,10M.  [default: none]",
        "NUMBERS",
        parse="names",
    )
    shard_size: int | None = option(None, "Largest file of weights, in bytes.", "BYTES", default="one file")
    tensorboard: bool = option(False, "Write events for TensorBoard as well.")
    workers: int = option(1, "Threads that prepare rows ahead of the steps.", "N")
    dry_run: bool = option(False, "Take two steps of every stage, report what the whole would take, keep nothing.")
    force: bool = option(False, "Replace the output if it exists.")
    on_report: OnReport | None = callback("Called with how training goes.")
    progress: Progress | None = callback("Called with the number of bytes that are in the corpus, and of all.")
    started: float | None = callback(
        "When the work began, by `time.perf_counter()`: what a budget of time and stop_after count from. None: now."
    )

"""The options of the verbs that train: corpus, pretrain, finetune, glue; and of those that use a task model.

What an option means is written here and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from polyseme.files.reading_options import ReadingOptions, TableOptions
from polyseme.options import Options, callback, column_option, doc, option, output_option
from polyseme.packaged_models import default_in_words
from polyseme.verb_options import (
    BYTES_DONE,
    IN_MEMORY,
    SOURCES,
    ComputeOptions,
    DeviceOption,
    ForceOption,
    MaskOptions,
    model_option,
)

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.source_paths import AnyPath, Sources
    from polyseme.filling.cloze_ranks import Among
    from polyseme.tasks.items import TaskData
    from polyseme.training.effects import OnReport
    from polyseme.transfer.train_seed import StepReport
    from polyseme.types import Progress

Column = str | int
Unseen = Literal["refuse", "keep"]
"""What is done about labels of dev and test that train lacks."""
TransferDtype = Literal["auto", "fp32", "bf16"]
CHECKPOINT_SECONDS = 60.0
SAMPLE = 1 << 25
"""Bytes of text that a tokenizer is trained on, at most."""
RECIPE = "the recipe's"
FITTED = "fitted to the budget"
ENCODER = "by the encoder"
SCHEDULES = "constant, linear, cosine, noam, slanted-triangular, warmup-stable-decay"


# --- what several verbs share -----------------------------------------------------------------------------------------


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
class TaskColumns(Options):
    """Which columns of a file hold the parts of a task's items."""

    text: Column | None = column_option("Column with the text: a name, or counted from 1.")
    second: Column | None = column_option("Column with the second text of a pair, or with the question on a passage.")
    label: Column | None = column_option("Column with the label, the tags or the answer.")
    choices: Sequence[Column] | Column | None = option(
        None,
        "Columns with the choices, separated by commas, or the one with lists of them.",
        "COLUMNS",
        default="by the task",
        parse="columns",
    )
    marks: Column | None = column_option(
        "Column with one number per word: 1 at the predicate whose roles are labeled.", default="none"
    )


@dataclass(frozen=True, kw_only=True)
class TaskModelOptions(Options):
    """What a task's head reads and is, and how it learns: what verbs and estimators share."""

    layer: str | int | None = option(
        None,
        "Layer that the head reads, as for embed; mix is learned.",
        "LAYER",
        default="-1; over a frozen encoder, mix",
    )
    stack: str | None = option(
        None,
        "Stack that the head reads, of a model that has two: encoder, or decoder, with the text on both sides.",
        "STACK",
        default="by the model and the task",
    )
    pool: str | None = option(
        None,
        "How the pieces of a word become one vector: first, last, mean, max, ends.",
        "POOLING",
        default="first; over a frozen encoder, mean",
    )
    head: str | None = option(
        None,
        "Head of the task: linear, mlp, bilstm, bilstm-attention, crf, bilstm-crf; text lets the decoder write labels.",
        "NAME",
        default="by the task and the model",
    )
    inner_width: int | None = option(None, "Width of the head's hidden layer.", "N", default="by the head")
    dropout: float | None = option(None, "Dropout rate of the head.", "RATE", default="by the head")
    epochs: int | None = option(None, "Passes over the training data.", "N", default=ENCODER)
    batch_size: int | None = option(None, "Batch size, in items.", "N", default="32")
    learning_rate: float | None = option(None, "Peak learning rate of the encoder.", "RATE", default=ENCODER)
    max_pieces: int | None = option(
        None,
        "Sequence length, in pieces, specials included; longer texts are truncated, which is reported.",
        "N",
        default="512, or what the encoder reads",
    )


@dataclass(frozen=True, kw_only=True)
class ReadoutOption(Options):
    """What stands for a text."""

    readout: str | None = option(
        None,
        "Vector of a whole text: first (the start special's), pooled, last, mean, max, concat (last, max and mean).",
        "NAME",
        default=ENCODER,
    )


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions(TaskModelOptions, ReadoutOption):
    """How a model is fitted to a task; None is what suits the encoder (`transfer.finetune_settings.chosen`)."""

    frozen: bool = option(
        False, "Freeze the encoder: its vectors are computed once, and only the head learns.", flags="--frozen/--tuned"
    )
    reread_inputs: bool = option(
        False, "Let the head read the words' vectors a second time, beside its own output (ELMo)."
    )
    inputs: str | None = option(
        None,
        "Further inputs of the head: char-cnn, word vectors and a character CNN that are learned with it.",
        "NAME",
        default="none",
    )
    head_learning_rate: float | None = option(None, "Learning rate of the task head.", "RATE", default="the encoder's")
    layer_decay: float = option(
        1.0, "Factor of the learning rate from each layer of the encoder to the one below.", "FACTOR"
    )
    schedule: str = option("linear", f"Learning rate schedule: {SCHEDULES}.", "NAME")
    warmup: float = option(0.1, "Warmup: a share of the steps (below 1), or a number of steps.", "SHARE")
    gradual_unfreezing: bool = option(
        False, "Unfreeze the layers one after another, from the top, one more each epoch (ULMFiT)."
    )
    reinit_layers: int = option(0, "Top layers of the encoder to reinitialize.", "N")
    weight_decay: float = option(0.01, "Weight decay of matrices; norms and biases have none.", "DECAY")
    max_grad_norm: float | None = option(1.0, "Largest norm of all gradients together (gradient clipping).", "NORM")
    dtype: TransferDtype = option("auto", "Precision: auto (bf16 on a GPU, else fp32), fp32, bf16.", "DTYPE")
    compile: bool | None = option(
        None, "Record steps and replay them as CUDA graphs.", default="on a GPU", flags="--compile/--no-compile"
    )
    seeds: int | Sequence[int] = option(
        1, "Number of seeds, counted from 0, or the seeds themselves, separated by commas.", "N", parse="seeds"
    )
    stride: int = option(128, "Pieces by which the windows of a long passage overlap.", "N")
    evaluations: int = option(1, "Evaluations on dev per epoch.", "N")


@dataclass(frozen=True, kw_only=True)
class FinetuneRunOptions(FinetuneOptions, DeviceOption, CostOption, ForceOption):
    """What `finetune` and `glue` share."""

    model: Model | AnyPath | None = option(
        None,
        "Model to fit: a packaged one (see: polyseme models), a model folder, the folder of a run, a file of word "
        'vectors, or hub:owner/name; "none" for a head over word vectors of its own.',
        "MODEL",
        default=default_in_words("finetune"),
        flags="-m --model",
    )
    cache: AnyPath | None = option(None, "Folder to keep frozen vectors in, for other runs.", "FOLDER", default="none")
    checkpoint_seconds: float = option(CHECKPOINT_SECONDS, "Least number of seconds between checkpoints.", "SECONDS")
    on_report: Callable[[StepReport], None] | None = callback("Called with how training goes, after each step.")
    progress: Progress | None = callback("Called with the number of texts whose frozen vectors are computed, and all.")


# --- verbs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TaskDataOptions(TaskColumns, TableOptions):
    """How files of a task are read."""

    start: Column | None = column_option(
        "Column with the character at which an answer starts.", default="the answer is looked for"
    )
    regression: bool | None = option(
        None, "Whether labels are numbers on a scale.", default="if they look so", flags="--regression/--labels"
    )
    separator: str | None = option(None, "What separates several labels of one row.", "TEXT", default="one label each")
    scheme: str | None = option(
        None, "Scheme that tags of spans are converted to: BIO, BIOES, IOB1.", "SCHEME", default="BIO or BIOES, as read"
    )
    repair: bool = option(False, "Repair invalid tags and find misplaced answers, instead of refusing them.")
    unseen: Unseen = option("refuse", "Labels of dev and test that train lacks: refuse, or keep (always wrong).", "HOW")


@dataclass(frozen=True, kw_only=True)
class FinetuneTaskOptions(TaskDataOptions, FinetuneRunOptions):
    """What `finetune` takes."""

    task: str | TaskData = dataclasses.field(
        kw_only=False,
        metadata=doc(
            "A benchmark by its name (rte, sst2, ud-ewt, squad …), or the kind of a task of your own: classify, pair, "
            "tag, span or choose; or its data."
        ),
    )
    output: AnyPath | None = output_option(
        "Folder of the fitted model: encoder, head, labels, report.json and report.html.", default="not kept"
    )
    data: AnyPath | None = option(None, "Folder with the data of a benchmark.", "FOLDER", default="none")
    train: Sources | None = option(
        None,
        "Training file: CSV, TSV, JSONL, Parquet, CoNLL, CoNLL-U or SQuAD's JSON. In Python also a table: a frame, a "
        "dataset, mappings.",
        "FILE",
        default="the benchmark's",
    )
    dev: Sources | None = option(
        None, "Development file, which chooses the best step.", "FILE", default="a tenth of train"
    )
    test: Sources | None = option(None, "Test file, which is scored once, at the end.", "FILE", default="none")


@dataclass(frozen=True, kw_only=True)
class GlueOptions(FinetuneRunOptions):
    """What `glue` takes."""

    data: AnyPath = dataclasses.field(metadata=doc("Folder with the folders of the tasks.", "FOLDER"))
    tasks: Sequence[str] = option(
        (), "Tasks to fit, separated by commas.  [default: those whose data is there]", "NAMES", parse="names"
    )
    output: AnyPath | None = output_option("Folder for one model per task, glue.json and glue.md.", default="not kept")
    on_start: Callable[[str], None] | None = callback("Called with the name of each task as it begins.")


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ReadingOptions, DeviceOption, ForceOption):
    """What `predict` takes."""

    sources: Sources = dataclasses.field(kw_only=False, metadata=doc(SOURCES + IN_MEMORY, "INPUT..."))
    model: AnyPath | Model = dataclasses.field(
        metadata=doc("Model to predict with: a folder that finetune has written.", "MODEL", flags="-m --model")
    )
    output: AnyPath | None = output_option(
        "File of the predictions: .jsonl, .tsv, .parquet, or .conll for tags.", default="printed"
    )
    second: str | None = option(
        None, "Field with the second text, or with the question.", "NAME", default="as in training"
    )
    choices: str | Sequence[str] = option(
        (),
        "Fields with the choices, separated by commas, or the one with lists of them.  [default: as in training]",
        "NAMES",
        parse="names",
    )
    marks: str | None = option(
        None,
        "Field with one number per word: 1 at the predicate whose roles are labeled.",
        "NAME",
        default="as in training",
    )
    dtype: str = option("fp32", "Precision to compute in: fp32, bf16.", "DTYPE")
    progress: Progress | None = callback(BYTES_DONE)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(TaskColumns, MaskOptions, ComputeOptions, ForceOption):
    """What `evaluate` takes."""

    model: AnyPath | Model | None = model_option("evaluate")
    name: Sources = dataclasses.field(
        kw_only=False,
        metadata=doc(
            "A benchmark (blimp, babylm, lambada, agreement, pairs, cloze, bleu), or a file of minimal pairs: a table "
            "with the columns good and bad, and group where there are several kinds. For a model that finetune has "
            "written: a file with labels (in Python also a table: a frame, a dataset, mappings), or the name of its "
            "benchmark.",
            "NAME|FILE",
        ),
    )
    data: AnyPath | None = option(None, "File or folder with the data of the benchmark.", "PATH", default="none")
    pairs: int | None = option(
        None,
        "Most pairs of each group (of BLiMP: of each paradigm) that are scored, evenly spaced.",
        "N",
        default="all",
    )
    curve: bool = option(
        False,
        "Evaluate every model that a pretraining run kept at a number of words, and its last one: the score against "
        "words seen.",
    )
    among: Among = option(
        "words", "For cloze: what answers are ranked among: all whole words, or the answers of their group.", "WHICH"
    )
    max_pieces: int | None = option(None, "For cloze: most pieces of a word.", "N", default="3")
    source: AnyPath | None = option(
        None, "For bleu: file of the texts to evaluate, one per line.", "FILE", default="none", flags="--in"
    )
    reference: AnyPath | Sequence[AnyPath] = option(
        (), "For bleu: file of their references; may be given several times.", "FILE", parse="several"
    )
    output: AnyPath | None = output_option(
        "File of the report: .json, .tsv, .html, .png or .svg; .jsonl has one line per item (of a curve: per model)."
    )
    progress: Progress | None = callback("Called with the number of pieces (of a task: items) done, and of all.")


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
    frame: str | None = option(
        None,
        "Family whose special pieces the tokenizer has: bert, roberta, gpt2, albert, xlnet, t5 …",
        "FAMILY",
        default="by kind",
    )
    lowercase: bool | None = option(
        None, "Whether the tokenizer lowercases text.", default="by kind", flags="--lowercase/--no-lowercase"
    )
    field: str | None = option(None, "Field or column with the text.", "NAME", default="the only one there is")
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
    budget: str = option("20min", "Budget of training: 20min, 3e16flops, 1e9pieces, 1000steps.", "AMOUNT")
    as_published: bool = option(
        False,
        "Train with the paper's batch, length, learning rate and schedule, whatever the budget.",
    )
    model: AnyPath | None = option(
        None,
        "Model to train further; its tokenizer is used, and the recipe only says how to train.",
        "MODEL",
        default="a new one",
        flags="-m --model",
    )
    tokenizer: str | None = option(
        None,
        "Tokenizer: wordpiece, bpe, byte-bpe, unigram, words, blanks or characters, trained on the text; or a folder.",
        "KIND",
        default=RECIPE,
    )
    vocab_size: int | None = option(None, "Vocabulary size of a tokenizer that is trained.", "N", default=RECIPE)
    field: str | None = option(None, "Field or column with the text.", "NAME", default="the only one there is")
    documents: str | None = option(
        None, "What one document is: blank-lines, file, line or record.", "UNIT", default="blank-lines, or a record"
    )
    held_out: float = option(0.01, "Share of the documents that is held out for evaluation.", "SHARE")
    batch_size: int | None = option(None, "Batch size, in rows.", "N", default=FITTED)
    length: int | None = option(None, "Sequence length, in pieces.", "N", default=FITTED)
    learning_rate: float | None = option(None, "Peak learning rate.", "RATE", default=FITTED)
    optimizer: str | None = option(
        None, "Optimizer: adamw, adamw-uncorrected, muon, adagrad, sgd.", "NAME", default=FITTED
    )
    schedule: str | None = option(None, f"Learning rate schedule: {SCHEDULES}.", "NAME", default=FITTED)
    warmup: float | None = option(
        None, "Warmup: a share of the steps (below 1), or a number of steps.", "SHARE", default=FITTED
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
        "Change of the objective's settings: unit=word, mask_rate=0.3, next=nsp; may be given several times.",
        "NAME=VALUE",
        default=RECIPE,
        parse="pairs",
    )
    dtype: str = option("auto", "Precision: auto (bf16 on a GPU, else fp32), fp32, bf16, fp64.", "DTYPE")
    compile: bool | None = option(
        None, "Whether torch compiles the networks.", default="on a GPU", flags="--compile/--no-compile"
    )
    parallel: str = option("ddp", "How processes under torchrun share the work: ddp or fsdp.", "HOW")
    seed: int = option(0, "Seed of everything random.", "N")
    log_every: int = option(10, "Steps between lines of log.jsonl.", "N")
    evaluate_every: int | None = option(None, "Steps between evaluations on held-out text.", "N", default="ten in all")
    checkpoint_every: int | None = option(
        None, "Steps between checkpoints.", "N", default="ten in all, at least every 1,000 steps"
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

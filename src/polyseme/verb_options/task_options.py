"""The options of the commands that fit a model to tasks: finetune, benchmark."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from polyseme.files.reading_options import TableOptions
from polyseme.options import Options, callback, column_option, doc, option, output_option
from polyseme.packaged_models import default_in_words
from polyseme.verb_options.model_options import (
    CostOption,
    DeviceOption,
    ForceOption,
)
from polyseme.verb_options.pretraining_options import SCHEDULES

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.atomic import AnyPath
    from polyseme.files.source_paths import Sources
    from polyseme.tasks.items import TaskData
    from polyseme.transfer.train_seed import StepReport
    from polyseme.types import Progress

Column = str | int
Unseen = Literal["refuse", "keep"]
"""What is done about labels of dev and test that train lacks."""
TransferDtype = Literal["auto", "fp32", "bf16"]
VectorsAt = Literal["input", "between", "output"]
CHECKPOINT_SECONDS = 60.0
ENCODER = "by the encoder"


@dataclass(frozen=True, kw_only=True)
class TaskColumns(Options):
    """Which columns of a file hold the parts of a task's items."""

    text: Column | None = column_option("Column with the text: a name, or a number counted from 1.")
    second: Column | None = column_option("Column with the second text of a pair, or the question on a passage.")
    label: Column | None = column_option("Column with the label, tags or answer.")
    choices: Sequence[Column] | Column | None = option(
        None,
        "Columns with the choices, separated by commas, or one column with lists of choices.",
        "COLUMNS",
        default="by the task",
        parse="columns",
    )
    marks: Column | None = column_option(
        "Column with one number per word: 1 marks the predicate of semantic roles.", default="none"
    )
    first_span: Column | None = column_option(
        "Column with the first span of an edge: [start, end] or start:end in characters, or the text of the span."
    )
    second_span: Column | None = column_option("Column with the second span of an edge, in the same form.")


@dataclass(frozen=True, kw_only=True)
class TaskModelOptions(Options):
    """What a task's head reads and is, and how it learns: what verbs and estimators share."""

    layer: str | int | None = option(
        None,
        "Layer that the head reads, as for embed; a mix is learned.",
        "LAYER",
        default="-1; over a frozen encoder, mix",
    )
    stack: str | None = option(
        None,
        "Stack of a sequence-to-sequence model that the head reads: encoder, or decoder (both stacks then read the "
        "text).",
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
        "Head of the task: linear, mlp, mlp-batchnorm, attention, bilstm, bilstm-attention, bcn, crf, bilstm-crf, "
        "cosine (of two spans), text (the decoder generates the label).",
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
        "Maximum length in pieces, special pieces included; longer texts are truncated, with a warning.",
        "N",
        default="512, or the encoder's maximum",
    )


@dataclass(frozen=True, kw_only=True)
class ReadoutOption(Options):
    """What stands for a text."""

    readout: str | None = option(
        None,
        "Vector of a whole text: first (that of the first special piece), pooled, last, mean, max, concat (last, max "
        "and mean).",
        "NAME",
        default=ENCODER,
    )


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions(TaskModelOptions, ReadoutOption):
    """How a model is fitted to a task; None is what suits the encoder (`transfer.finetune_settings.chosen`)."""

    frozen: bool = option(
        False,
        "Freeze the encoder: its vectors are computed once, and only the head is trained.",
        flags="--frozen/--tuned",
    )
    reread_inputs: bool = option(
        False, "Concatenate the word vectors to the output of the head's BiLSTM as well (ELMo)."
    )
    at: VectorsAt = option(
        "input",
        "Where the head's BiLSTM gets the model's vectors: input; between (between its first and second layer, as in "
        "TagLM); output (beside its output). With between and output the model is frozen, and the BiLSTM reads "
        "--inputs (default: char-cnn).",
        "PLACE",
    )
    between: bool = option(False, "The same as --at between.")
    head_layers: int | None = option(
        None, "Number of layers of the head's BiLSTM.", "N", default="1; with --at between, 2"
    )
    inputs: str | Sequence[Any] | None = option(
        None,
        "Further inputs of the head, separated by commas (in Python a list, also of loaded models): frozen models or "
        "files of static vectors, optionally with a layer (glove.txt,models/elmo@mix), and char-cnn (learned word "
        "vectors with a character CNN).",
        "NAMES",
        default="none",
    )
    head_learning_rate: float | None = option(None, "Learning rate of the task head.", "RATE", default="the encoder's")
    ulmfit: bool = option(
        False,
        "ULMFiT's settings, for options that are not set: gradual unfreezing, layer decay 1/2.6, slanted triangular "
        "schedule, readout concat, head mlp-batchnorm, chunks of 70 pieces.",
    )
    layer_decay: float | None = option(
        None,
        "Factor of the learning rate from each layer of the encoder to the one below it.",
        "FACTOR",
        default="1; with --ulmfit, 1/2.6",
    )
    schedule: str | None = option(
        None,
        f"Learning rate schedule: {SCHEDULES}.",
        "NAME",
        default="linear; with --ulmfit, slanted-triangular",
    )
    warmup: float = option(0.1, "Warmup: a share of the steps (below 1), or a number of steps.", "SHARE")
    gradual_unfreezing: bool | None = option(
        None,
        "Unfreeze the layers from the top, one more in each epoch (ULMFiT).",
        default="with --ulmfit",
        flags="--gradual-unfreezing/--no-gradual-unfreezing",
    )
    chunk_length: int | None = option(
        None,
        "Read texts in chunks of N pieces, and carry the state of a recurrent encoder from chunk to chunk. Gradients "
        "stay within a chunk, and texts are not truncated.",
        "N",
        default="no chunks; with --ulmfit and a recurrent encoder, 70",
    )
    read_last: int | None = option(
        None,
        "For texts in chunks: number of last pieces that are read out and get gradients; earlier pieces only update "
        "the state.",
        "N",
        default="1400",
    )
    betas: Sequence[float] | None = option(
        None,
        "Betas of AdamW, separated by a comma.",
        "BETA1,BETA2",
        default="0.9,0.999; with --ulmfit, 0.7,0.99",
        parse="numbers",
    )
    reinit_layers: int = option(0, "Number of top layers of the encoder to reinitialize.", "N")
    weight_decay: float = option(0.01, "Weight decay of matrices; norms and biases are not decayed.", "DECAY")
    max_grad_norm: float | None = option(1.0, "Maximum norm of the gradients (gradient clipping).", "NORM")
    dtype: TransferDtype = option("auto", "Precision: auto (bf16 on a GPU, else fp32), fp32, bf16.", "DTYPE")
    compile: bool | None = option(
        None, "Record steps and replay them as CUDA graphs.", default="on a GPU", flags="--compile/--no-compile"
    )
    seeds: int | Sequence[int] = option(
        1, "Number of seeds (0, 1, …), or the seeds themselves, separated by commas.", "N", parse="seeds"
    )
    stride: int = option(128, "Pieces by which the windows of a long passage overlap.", "N")
    evaluations: int | None = option(
        None,
        "Evaluations on dev per epoch.",
        "N",
        default="1; if dev has more items than train, one per as many training items as dev has items",
    )


@dataclass(frozen=True, kw_only=True)
class FinetuneRunOptions(FinetuneOptions, DeviceOption, CostOption, ForceOption):
    """What `finetune` and `benchmark` share."""

    model: Model | AnyPath | None = option(
        None,
        "Model to fit: a packaged model (see: polyseme models), a model folder, a run folder, a file of word "
        "vectors, or hub:owner/name; none trains a head over word vectors of its own. finetune also takes several, "
        "separated by commas, and averages their probabilities.",
        "MODEL",
        default=default_in_words("finetune"),
        flags="-m --model",
    )
    cache: AnyPath | None = option(None, "Folder that caches frozen vectors for other runs.", "FOLDER", default="none")
    checkpoint_seconds: float = option(CHECKPOINT_SECONDS, "Minimum number of seconds between checkpoints.", "SECONDS")
    on_report: Callable[[StepReport], None] | None = callback("Called with a report after each step.")
    progress: Progress | None = callback(
        "Called with the number of texts whose frozen vectors are computed, and the total."
    )


@dataclass(frozen=True, kw_only=True)
class TaskDataOptions(TaskColumns, TableOptions):
    """How files of a task are read."""

    start: Column | None = column_option(
        "Column with the start of the answer, in characters.", default="the answer is searched for"
    )
    regression: bool | None = option(
        None, "Treat labels as numbers (regression), or as classes.", default="detected", flags="--regression/--labels"
    )
    separator: str | None = option(None, "Separator of several labels in one row.", "TEXT", default="one label each")
    scheme: str | None = option(
        None,
        "Tagging scheme to convert span tags to: BIO, BIOES, IOB1.",
        "SCHEME",
        default="BIO or BIOES, as in the file",
    )
    repair: bool = option(False, "Repair invalid tags and misplaced answers instead of refusing them.")
    unseen: Unseen = option(
        "refuse",
        "What to do with labels of dev and test that train lacks: refuse, or keep (always counted as wrong).",
        "ACTION",
    )


@dataclass(frozen=True, kw_only=True)
class FinetuneTaskOptions(TaskDataOptions, FinetuneRunOptions):
    """What `finetune` takes."""

    task: str | TaskData = dataclasses.field(
        kw_only=False,
        metadata=doc(
            "A benchmark by its name (rte, sst2, ud-ewt, squad …), or the kind of a task of your own: classify, pair, "
            "tag, span, choose, edge or edge-pair; or its data."
        ),
    )
    output: AnyPath | None = output_option(
        "Folder for the fitted model: encoder, head, labels, report.json and report.html.", default="not saved"
    )
    data: AnyPath | None = option(None, "Folder with the data of a benchmark.", "FOLDER", default="none")
    train: Sources | None = option(
        None,
        "Training file: CSV, TSV, JSONL, Parquet, CoNLL, CoNLL-U or SQuAD's JSON. In Python also a table: a frame, a "
        "dataset, mappings.",
        "FILE",
        default="the benchmark's",
    )
    dev: Sources | None = option(None, "Development file, to select the best step.", "FILE", default="a tenth of train")
    test: Sources | None = option(None, "Test file, scored once at the end.", "FILE", default="none")
    train_share: str | int | Sequence[str | int] | None = option(
        None,
        "Shares or numbers of training items, separated by commas (1%,10%,100% or 100,1000), for a learning curve: "
        "nested samples, stratified by label, a different one for each seed. The model of the largest share is saved.",
        "SHARES",
        default="all items",
    )
    scratch: bool = option(False, "Also train the same architecture from random weights, and report both.")


@dataclass(frozen=True, kw_only=True)
class ItemLimits(Options):
    """How many items of each task are used."""

    train_items: int | None = option(
        None, "Maximum number of training items per task, evenly spaced.", "N", default="the suite's, or all"
    )
    dev_items: int | None = option(
        None, "Maximum number of dev items per task, evenly spaced.", "N", default="the suite's, or all"
    )


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions(ItemLimits, FinetuneRunOptions):
    """What `benchmark` takes."""

    suite: str = dataclasses.field(
        kw_only=False,
        metadata=doc(
            "Suite of tasks: glue (nine tasks), elmo-six (a baseline, and the model's vectors beside it), wic (by "
            "cosine, frozen, tuned), babylm (nothing is fitted)."
        ),
    )
    data: AnyPath = dataclasses.field(metadata=doc("Folder with one subfolder per task.", "FOLDER"))
    tasks: Sequence[str] = option(
        (), "Tasks of the suite, separated by commas.", "NAMES", default="those with data", parse="names"
    )
    output: AnyPath | None = output_option(
        "Output file: .html (with a picture), .json or .md; or a folder for all three and one model per task.",
        default="not saved",
    )
    on_start: Callable[[str], None] | None = callback("Called with the name of each task as it begins.")

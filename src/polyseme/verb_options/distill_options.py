"""The options of distill, over texts and over the data of a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyseme.options import callback, doc, option, output_option, same
from polyseme.verb_options.model_options import CostOption, DeviceOption
from polyseme.verb_options.pretraining_options import PretrainOptions
from polyseme.verb_options.task_options import FinetuneTaskOptions, TaskDataOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polyseme.api import Model
    from polyseme.files.atomic import AnyPath
    from polyseme.files.reading_options import FieldName
    from polyseme.files.source_paths import Sources
    from polyseme.types import Progress

BY_TEACHER = "for texts, fitted to the budget; for a task, as in finetune"


@dataclass(frozen=True, kw_only=True)
class DistillTextOptions(DeviceOption, CostOption):
    """Options of a student that learns from raw text alone: those of pretrain."""

    budget: str | None = option(
        None, "Training budget for texts: 20min, 3e16flops, 1e9pieces, 5epochs, 1000steps.", "AMOUNT", default="20min"
    )
    stop_after: str | None = same(PretrainOptions, "stop_after")
    documents: str | None = same(PretrainOptions, "documents")
    held_out: float = same(PretrainOptions, "held_out")
    length: int | None = same(PretrainOptions, "length")
    optimizer: str | None = same(PretrainOptions, "optimizer")
    micro_batch_size: int | None = same(PretrainOptions, "micro_batch_size")
    objective: Mapping[str, Any] | None = option(
        None,
        "Change a setting of the objective: soft_weight=5, piece_weight=2, cosine_weight=1, soft_at=all, "
        "mask_rate=0.15; may be given several times.",
        "NAME=VALUE",
        default="DistilBERT's weights",
        parse="pairs",
    )
    log_every: int = same(PretrainOptions, "log_every")
    evaluate_every: int | None = same(PretrainOptions, "evaluate_every")
    checkpoint_every: int | None = same(PretrainOptions, "checkpoint_every")
    keep_checkpoints: int = same(PretrainOptions, "keep_checkpoints")
    workers: int = same(PretrainOptions, "workers")
    dry_run: bool = same(PretrainOptions, "dry_run")


@dataclass(frozen=True, kw_only=True)
class DistillTaskOptions(TaskDataOptions):
    """Options of a student of a model that finetune has written: those of finetune, and what is learned."""

    train: Sources | None = option(
        None,
        "Labeled training file of the teacher's task, as for finetune; may be combined with unlabeled texts.",
        "FILE",
        default="--data, or unlabeled texts with the teacher's predictions",
    )
    data: AnyPath | None = option(
        None, "Folder with the data of the benchmark that the teacher was fitted to.", "FOLDER", default="none"
    )
    dev: Sources | None = same(FinetuneTaskOptions, "dev")
    test: Sources | None = same(FinetuneTaskOptions, "test")
    gold_weight: float = option(
        0.5, "Weight of the loss on the labels, from 0 to 1; the loss on the teacher's scores has the rest.", "SHARE"
    )
    match: str | None = option(
        None,
        "What else the student matches: states (of the layers, as in TinyBERT) or relations (between queries, keys "
        "and values of the last layer, as in MiniLM).",
        "KIND",
        default="scores only",
    )
    match_weight: float = option(1.0, "Weight of the --match loss.", "WEIGHT")
    epochs: int | None = same(FinetuneTaskOptions, "epochs")
    evaluations: int | None = same(FinetuneTaskOptions, "evaluations")


@dataclass(frozen=True, kw_only=True)
class DistillOptions(DistillTaskOptions, DistillTextOptions):
    """What `distill` takes."""

    sources: Sources | None = dataclasses.field(
        default=None,
        kw_only=False,
        metadata=doc(
            "Files, folders or patterns of text, or the folder of a corpus (`build_corpus`); for a task, texts without "
            "labels. In Python also a frame, a dataset or a column of texts.",
            "[TEXTS]...",
        ),
    )
    output: AnyPath | None = output_option(
        "Folder of the run, with the student in model/; for a task model, folder of the student.", default="none"
    )
    model: AnyPath | Model | None = option(
        None,
        "Teacher: a masked or causal language model, or a task model written by finetune; a packaged model (see: "
        "polyseme models), a folder, or hub:owner/name.",
        "MODEL",
        default="none (required)",
        flags="-m --model",
    )
    layers: int | None = option(
        None,
        "Number of layers of the student. It is initialized with as many of the teacher's: the first, the last, and "
        "evenly spaced ones between them.",
        "N",
        default="half of the teacher's",
    )
    student: AnyPath | Model | None = option(
        None, "Existing model to train as the student; it must have the teacher's tokenizer.", "MODEL", default="none"
    )
    recipe: str | None = option(
        None, "Recipe of a new student of another shape; it gets the teacher's tokenizer.", "NAME", default="none"
    )
    shape: Mapping[str, Any] | None = same(PretrainOptions, "shape")
    temperature: float = option(2.0, "Temperature that divides the logits before they are compared.", "T")
    field: FieldName | None = option(None, "Field or column with the text.", "NAME", default="the only one")
    batch_size: int | None = option(None, "Batch size, in rows.", "N", default=BY_TEACHER)
    learning_rate: float | None = option(None, "Peak learning rate.", "RATE", default=BY_TEACHER)
    schedule: str | None = same(PretrainOptions, "schedule")
    warmup: float | None = same(PretrainOptions, "warmup")
    dtype: str = same(PretrainOptions, "dtype")
    compile: bool | None = same(PretrainOptions, "compile")
    seed: int = option(0, "Random seed.", "N")
    force: bool = option(False, "Replace the output if it exists.")
    on_report: Callable[[Any], None] | None = callback("Called with reports on the training.")
    progress: Progress | None = callback("Called with the number of bytes already in the corpus, and the total.")
    started: float | None = callback("When the work began, by `time.perf_counter()`. None: now.")

"""The options of distill."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyseme.options import callback, doc, option, output_option, same
from polyseme.verb_options.model_options import CostOption, DeviceOption
from polyseme.verb_options.pretraining_options import FITTED, PretrainOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polyseme.api import Model
    from polyseme.files.reading_options import FieldName
    from polyseme.files.source_paths import AnyPath, Sources
    from polyseme.types import Progress


@dataclass(frozen=True, kw_only=True)
class DistillTextOptions(DeviceOption, CostOption):
    """Options of a student that learns from raw text alone: those of pretrain."""

    recipe: str | None = option(
        None, "Recipe of a new student of another shape, with the teacher's tokenizer.", "NAME", default="none"
    )
    budget: str | None = option(
        None, "Budget of training on texts: 20min, 3e16flops, 1e9pieces, 5epochs, 1000steps.", "AMOUNT", default="20min"
    )
    stop_after: str | None = same(PretrainOptions, "stop_after")
    documents: str | None = same(PretrainOptions, "documents")
    held_out: float = same(PretrainOptions, "held_out")
    length: int | None = same(PretrainOptions, "length")
    optimizer: str | None = same(PretrainOptions, "optimizer")
    micro_batch_size: int | None = same(PretrainOptions, "micro_batch_size")
    shape: Mapping[str, Any] | None = same(PretrainOptions, "shape")
    objective: Mapping[str, Any] | None = option(
        None,
        "Change of the objective's settings: soft_weight=5, piece_weight=2, cosine_weight=1, soft_at=all, "
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
class DistillOptions(DistillTextOptions):
    """What `distill` takes."""

    sources: Sources | None = dataclasses.field(
        default=None,
        kw_only=False,
        metadata=doc(
            "Files, folders or patterns of text, or the folder of a corpus (`build_corpus`). In Python also a frame, a "
            "dataset or a column of texts.",
            "[TEXTS]...",
        ),
    )
    output: AnyPath | None = output_option("Folder of the run; its model/ is the student.", default="none")
    model: AnyPath | Model | None = option(
        None,
        "Teacher, a masked or causal language model: a packaged one (see: polyseme models), a folder, or "
        "hub:owner/name.",
        "MODEL",
        default="none: it must be named",
        flags="-m --model",
    )
    layers: int | None = option(
        None,
        "Layers of the student, which begins with as many of the teacher's: the first, the last, and evenly between.",
        "N",
        default="half of the teacher's",
    )
    student: AnyPath | Model | None = option(
        None, "Model that is trained as the student, with the teacher's tokenizer.", "MODEL", default="none"
    )
    temperature: float = option(2.0, "What logits are divided by before they are compared.", "T")
    field: FieldName | None = option(None, "Field or column with the text.", "NAME", default="the only one there is")
    batch_size: int | None = option(None, "Batch size, in rows.", "N", default=FITTED)
    learning_rate: float | None = option(None, "Peak learning rate.", "RATE", default=FITTED)
    schedule: str | None = same(PretrainOptions, "schedule")
    warmup: float | None = same(PretrainOptions, "warmup")
    dtype: str = same(PretrainOptions, "dtype")
    compile: bool | None = same(PretrainOptions, "compile")
    seed: int = option(0, "Seed of everything random.", "N")
    force: bool = option(False, "Replace the output if it exists.")
    on_report: Callable[[Any], None] | None = callback("Called with how training goes.")
    progress: Progress | None = callback("Called with the number of bytes that are in the corpus, and of all.")
    started: float | None = callback("When the work began, by `time.perf_counter()`. None: now.")

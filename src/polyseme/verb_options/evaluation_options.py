"""The options of the commands that use a task model, or evaluate any: predict, tradeoffs, evaluate."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyseme.files.reading_options import FieldName, ReadingOptions
from polyseme.options import Options, callback, doc, option, output_option
from polyseme.verb_options.model_options import (
    BYTES_DONE,
    IN_MEMORY,
    SOURCES,
    TYPED,
    ComputeOptions,
    DeviceOption,
    ForceOption,
    RayOption,
    model_option,
)
from polyseme.verb_options.task_options import TaskColumns
from polyseme.verb_options.text_options import MaskOptions

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.atomic import AnyPath
    from polyseme.files.source_paths import Sources
    from polyseme.filling.cloze_ranks import Among
    from polyseme.types import Progress


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ReadingOptions, DeviceOption, RayOption, ForceOption):
    """What `predict` takes."""

    sources: Sources = dataclasses.field(
        kw_only=False, metadata=doc(SOURCES + TYPED + IN_MEMORY, "INPUT...", parse="files or texts")
    )
    model: AnyPath | Model = dataclasses.field(
        metadata=doc(
            "Task model: a folder written by finetune; or several, separated by commas, whose probabilities are "
            "averaged.",
            "MODEL",
            flags="-m --model",
        )
    )
    output: AnyPath | None = output_option(
        "Output file: .jsonl, .tsv, .parquet, or .conll for tags.", default="printed"
    )
    second: str | None = option(None, "Field with the second text or the question.", "NAME", default="as in training")
    choices: str | Sequence[str] = option(
        (),
        "Fields with the choices, separated by commas, or one field with lists of choices.",
        "NAMES",
        default="as in training",
        parse="names",
    )
    marks: str | None = option(
        None,
        "Field with one number per word: 1 marks the predicate of semantic roles.",
        "NAME",
        default="as in training",
    )
    first_span: FieldName | None = option(
        None, "Field with the first span of an edge.", "NAME", default="as in training"
    )
    second_span: FieldName | None = option(
        None, "Field with the second span of an edge.", "NAME", default="as in training"
    )
    dtype: str = option(
        "auto",
        "Precision of the computation: fp32, bf16, int8 (on a CPU); auto is int8 if the weights are stored in int8, "
        "else fp32.",
        "DTYPE",
    )
    progress: Progress | None = callback(BYTES_DONE)


@dataclass(frozen=True, kw_only=True)
class PredictTextsOptions(Options):
    """What `Model.predict` takes."""

    texts: Sources = dataclasses.field(
        kw_only=False,
        metadata=doc(
            "Texts: strings, or lists of words; for two texts, pairs of them; for choices, pairs of a question and a "
            "list of choices; for edges, a text (or two) and two spans; or a table (a frame, an Arrow table, a "
            "dataset, mappings); or files."
        ),
    )
    field: str | None = option(
        None, "Field of the text, or of its words, in a table.", default="as in training, or the only one"
    )
    second: FieldName | None = option(None, "Field with the second text or the question.", default="as in training")
    choices: str | Sequence[str] = option((), "Fields with the choices, or the one with lists of them.")
    marks: FieldName | None = option(
        None, "Field with one number per word: 1 at the predicate.", default="as in training"
    )
    first_span: FieldName | None = option(None, "Field with the first span of an edge.", default="as in training")
    second_span: FieldName | None = option(None, "Field with the second span of an edge.", default="as in training")
    fields: str | Sequence[str] = option((), "Other fields to copy to the predictions, or all.")


@dataclass(frozen=True, kw_only=True)
class TradeoffsOptions(TaskColumns, ForceOption):
    """What `tradeoffs` takes."""

    name: Sources = dataclasses.field(
        kw_only=False,
        metadata=doc(
            "A file with labels (in Python also a table: a frame, a dataset, mappings), or the name of the model's "
            "benchmark.",
            "NAME|FILE",
        ),
    )
    model: AnyPath = dataclasses.field(
        metadata=doc("Task model: a folder written by finetune.", "MODEL", flags="-m --model")
    )
    also: AnyPath | Sequence[AnyPath] = option(
        (),
        "Further models for the same labels, such as pruned or distilled ones: folders, separated by commas.",
        "MODELS",
        parse="names",
    )
    forms: str | Sequence[str] = option(
        (),
        "Forms of the model, separated by commas: full (as stored), bf16, int8, onnx.",
        "NAMES",
        default="all",
        parse="names",
    )
    data: AnyPath | None = option(None, "Folder with the data of a benchmark.", "FOLDER", default="none")
    items: int | None = option(None, "Maximum number of items to predict, evenly spaced.", "N", default="all")
    rounds: int = option(3, "Number of times each form is timed, in alternation.", "N")
    output: AnyPath | None = output_option(
        "Output file: .json, .tsv, .html, .png or .svg; .jsonl has one line per item and form."
    )
    progress: Progress | None = callback(
        "Called with the number of finished items over all forms and rounds, and the total."
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(TaskColumns, MaskOptions, ComputeOptions, ForceOption):
    """What `evaluate` takes."""

    model: AnyPath | Model | None = model_option("evaluate")
    name: Sources = dataclasses.field(
        kw_only=False,
        metadata=doc(
            "A benchmark (blimp, babylm, lambada, wikitext2, agreement, wsc, gap, wnli, pairs, cloze, bleu), or a file "
            "of minimal pairs: a table with the columns good and bad, and group where there are several kinds. For a "
            "model that finetune has written, or several, separated by commas, whose probabilities are averaged: a "
            "file with labels (in Python also a table: a frame, a dataset, mappings), or the name of its benchmark.",
            "NAME|FILE",
        ),
    )
    data: AnyPath | None = option(None, "File or folder with the data of the benchmark.", "PATH", default="none")
    pairs: int | None = option(
        None,
        "Maximum number of pairs per group (for BLiMP: per paradigm), evenly spaced.",
        "N",
        default="all",
    )
    curve: bool = option(
        False,
        "Learning curve: evaluate all models that a pretraining run saved with --keep-at-words, and the final one.",
    )
    among: Among = option(
        "words",
        "For cloze: candidates that the answer is ranked among: words (all whole words), or answers (the "
        "answers of its group).",
        "CANDIDATES",
    )
    max_pieces: int | None = option(None, "For cloze: maximum number of pieces of a word.", "N", default="3")
    source: AnyPath | None = option(
        None, "For bleu: file with the texts to evaluate, one per line.", "FILE", default="none", flags="--in"
    )
    reference: AnyPath | Sequence[AnyPath] = option(
        (), "For bleu: file with the reference texts; may be given several times.", "FILE", parse="several"
    )
    output: AnyPath | None = output_option(
        "Output file: .json, .tsv, .html, .png or .svg; .jsonl has one line per item (with --curve: per model)."
    )
    progress: Progress | None = callback(
        "Called with the number of finished pieces (for a task: items), and the total."
    )

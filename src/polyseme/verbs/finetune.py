"""`finetune`: a model is fitted to a task. What it then predicts is in `predicting`, GLUE's nine tasks in `gluing`."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyseme import __version__
from polyseme.api import AnyPath, Model
from polyseme.bundle import Bundle, load_bundle
from polyseme.convert.hub import find_model
from polyseme.datasets.named_benchmarks import BENCHMARKS, read_benchmark
from polyseme.embedding.model_fingerprint import fingerprint
from polyseme.errors import OptionError, nearest
from polyseme.files.atomic import check_output
from polyseme.files.reading_options import Quotes
from polyseme.files.unfinished_folder import unfinished_work
from polyseme.parts.device import find_device
from polyseme.tasks.data_checks import Unseen, check_data
from polyseme.tasks.data_columns import Column
from polyseme.tasks.items import TaskData
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.own_data import read_own
from polyseme.training.ledger import Rates
from polyseme.transfer.finetune_report import FinetuneReport, page_of
from polyseme.transfer.finetune_settings import FinetuneSettings, settings_of
from polyseme.transfer.finetune_task import Finetuned, finetune_task
from polyseme.transfer.task_folder import PAGE, REPORT, save_task_model
from polyseme.transfer.train_seed import CHECKPOINT_SECONDS, Told
from polyseme.types import Progress

NO_MODEL = "none"
"""As the model: none; the head reads word vectors that it learns itself (`inputs`)."""


def finetune(
    task: str | TaskData,
    *,
    model: Model | AnyPath | None = None,
    output: AnyPath | None = None,
    data: AnyPath | None = None,
    train: AnyPath | None = None,
    dev: AnyPath | None = None,
    test: AnyPath | None = None,
    text: Column | None = None,
    second: Column | None = None,
    label: Column | None = None,
    choices: Sequence[Column] | Column | None = None,
    start: Column | None = None,
    marks: Column | None = None,
    regression: bool | None = None,
    separator: str | None = None,
    scheme: str | None = None,
    repair: bool = False,
    unseen: Unseen = "refuse",
    format: str | None = None,
    quotes: Quotes = "double",
    delimiter: str | None = None,
    frozen: bool = False,
    layer: str | int | None = None,
    stack: str | None = None,
    pool: str | None = None,
    readout: str | None = None,
    head: str | None = None,
    inner_width: int | None = None,
    reread_inputs: bool = False,
    inputs: str | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    head_learning_rate: float | None = None,
    layer_decay: float = 1.0,
    schedule: str = "linear",
    warmup: float = 0.1,
    gradual_unfreezing: bool = False,
    reinit_layers: int = 0,
    weight_decay: float = 0.01,
    max_grad_norm: float | None = 1.0,
    dropout: float | None = None,
    dtype: str = "auto",
    compile: bool | None = None,
    seeds: int | Sequence[int] = 1,
    max_pieces: int | None = None,
    stride: int = 128,
    evaluations: int = 1,
    device: str = "auto",
    cache: AnyPath | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    rates: Mapping[str, Any] | None = None,
    force: bool = False,
    on_report: Callable[[Told], None] | None = None,
    progress: Progress | None = None,
) -> FinetuneReport:
    """Fit a model to a task, frozen or fine-tuned, over one seed or several; the best on dev is kept.

    Work that was stopped is gone on with by the same call.

    Args:
        task: a benchmark by its name (rte, sst2, ud-ewt, squad …), or the kind of a task of one's own: classify, pair,
            tag, span or choose; or its data.
        model: a model, its folder, or `hub:owner/name`; "none" for a head over word vectors of its own.
        output: the folder for the model: encoder, head, labels, report.json and report.html. None: it is not kept.
        data: the folder with the data of a benchmark.
        train: a file to learn from: CSV, TSV, JSONL, Parquet, CoNLL, CoNLL-U or SQuAD's JSON.
        dev: a file that chooses the best step; None: a tenth of train.
        test: a file that is scored once, at the end.
        text: the column with the text, by name or counted from 1; likewise the others.
        second: the column with the second text, or the question on a passage.
        label: the column with what is to be predicted.
        choices: the columns with the choices, or the one with a list of them.
        start: the column with the character at which an answer starts.
        marks: the column with a number a word, as 1 at the predicate whose roles are asked for.
        regression: whether labels are numbers on a scale; None: if they look so.
        separator: what stands between several labels of one row.
        scheme: what tags that mark spans are turned into: BIO, BIOES or IOB1.
        repair: whether invalid tags are written anew and misplaced answers looked for, instead of refused.
        unseen: whether labels of dev and test that train lacks are refused, or kept, as always wrong.
        format: what the files are, where their ending does not say it.
        quotes: in CSV and TSV, whether double quotes enclose fields, or none do.
        delimiter: in CSV and TSV, what separates the fields.
        frozen: whether the encoder stays as it is; vectors are then computed once.
        layer: as for `Model.embed`; `mix` is learned. None: the top, or where the encoder is frozen, the mix.
        stack: of a model that has two, whose layers are read: encoder, or decoder, with the text on both sides. None:
            what suits the model and the task.
        pool: how the pieces of a word become one. None: the first one, or where the encoder is frozen, their mean.
        readout: what stands for a text: first, pooled, last, mean, max or concat. None: what suits the encoder.
        head: linear, mlp, bilstm, bilstm-attention, crf, bilstm-crf; or text: the decoder writes the label. None: what
            suits the task and the model.
        inner_width: of the head's own layer.
        reread_inputs: whether the head reads the words' vectors a second time, at its output (ELMo).
        inputs: char-cnn: word vectors and a character CNN that are learned with the head.
        epochs: how often the training items are gone through. None: what suits the encoder; so for `batch_size` and
            `learning_rate`.
        batch_size: items of a step.
        learning_rate: the highest learning rate.
        head_learning_rate: that of what is new; None: the same.
        layer_decay: by how much the rate falls from a layer to the one below.
        schedule: constant, linear, cosine, noam, slanted-triangular or warmup-stable-decay.
        warmup: the share of the steps (below 1), or the steps, in which the rate rises.
        gradual_unfreezing: whether layers are let learn one after another, from the top (gradual unfreezing).
        reinit_layers: how many of the top layers are drawn anew.
        weight_decay: of matrices; norms and biases have none.
        max_grad_norm: the largest norm of all gradients together.
        dropout: of the head.
        dtype: auto (bf16 on a GPU, else fp32), fp32 or bf16.
        compile: whether steps are recorded and replayed as CUDA graphs; None: on a GPU.
        seeds: how many runs, from seed 0 on, or which.
        max_pieces: of a row; longer texts are cut, which is said.
        stride: pieces by which the windows of a passage overlap.
        evaluations: how often an epoch dev is scored.
        device: as for `load`.
        cache: a folder for frozen vectors that outlives this call.
        checkpoint_seconds: between two checkpoints, at least.
        rates: what energy costs, as for `pretrain`.
        force: replace what is there under the name `output`.
        on_report: told how training goes.
        progress: told how many texts have their frozen vectors.
    """
    settings = settings_of(locals())
    run: dict[str, Any] = {
        "device": find_device(device),
        "cache": None if cache is None else Path(cache),
        "rates": Rates.told(rates),
        "checkpoint_seconds": checkpoint_seconds,
        "told": on_report,
        "progress": progress,
    }
    if output is not None:
        given = model.path if isinstance(model, Model) else model
        check_output(
            output, force=force, kind="folder", inputs=[given, data, train, dev, test], marks=["polyseme.json"]
        )
    columns: dict[str, Any] = {
        "text": text,
        "second": second,
        "label": label,
        "choices": choices,
        "start": start,
        "marks": marks,
        "regression": regression,
        "separator": separator,
        "scheme": scheme,
        "repair": repair,
        "unseen": unseen,
        "format": format,
        "quotes": quotes,
        "delimiter": delimiter,
    }
    read = _read_task(task, data, {"train": train, "dev": dev, "test": test}, columns)
    run["model_name"], bundle = _bundle(model, settings)
    if output is None:
        return finetune_task(read, bundle, settings, **run).report
    decides = _decides(read, bundle, settings, run["device"])
    with unfinished_work(output, decides, what="model", force=force) as folder:
        done = finetune_task(read, bundle, settings, folder=folder, **run)
        _write(done, output, columns if isinstance(task, str) and task in KINDS else {}, force=force)
    return done.report


def _read_task(
    task: str | TaskData, data: AnyPath | None, files: Mapping[str, AnyPath | None], columns: Mapping[str, Any]
) -> TaskData:
    """The data of a task, read and checked."""
    given = {split: file for split, file in files.items() if file is not None}
    if isinstance(task, TaskData):
        return _checked(task, columns["unseen"])
    if task in KINDS:
        if data is not None:
            raise OptionError(f"The data of a task of your own are files (train, dev, test), not a folder ({data}).")
        if "train" not in given:
            raise OptionError(f"There is nothing to learn {task!r} from. Name a file (train=…, --train FILE).")
        return read_own(task, given, **columns)
    if given:
        if task not in BENCHMARKS:
            raise OptionError(f"There is no kind of task {task!r}. {nearest(task, KINDS)}")
        raise OptionError(
            f"{task!r} is the name of a benchmark, whose data is a folder (data=…, --data FOLDER). For files of your "
            f"own name the kind of the task instead: {', '.join(KINDS)}."
        )
    try:
        return _checked(read_benchmark(task, data), "keep")
    except OptionError as error:
        raise OptionError(f"{error} For files of your own, name a kind: {', '.join(KINDS)}.") from None


def _checked(data: TaskData, unseen: Unseen) -> TaskData:
    notes = check_data(data, unseen=unseen)
    return replace(data, notes=(*data.notes, *notes)) if notes else data


def _bundle(model: Model | AnyPath | None, settings: FinetuneSettings) -> tuple[str, Bundle | None]:
    """The model to begin with, which stays as it is where it is the caller's."""
    if isinstance(model, Model):
        bundle = model.bundle
        return model.path or "a model", copy.deepcopy(bundle, {id(bundle.tokenizer): bundle.tokenizer}).float()
    if model is not None and str(model) == NO_MODEL:
        if settings.inputs is None:
            raise OptionError("Without a model a head needs inputs of its own. Ask for them: inputs='char-cnn'.")
        return "no language model", None
    folder = find_model(None if model is None else str(model))
    return str(model or "minilm"), load_bundle(folder)


def _decides(data: TaskData, bundle: Bundle | None, settings: FinetuneSettings, device: str) -> dict[str, Any]:
    """Everything that decides the result, as JSON."""
    digest = hashlib.sha256()
    for split, items in data.splits.items():
        digest.update(split.encode())
        for item in items:
            digest.update(
                repr((item.text, item.words, item.second, item.choices, item.marks, item.gold)).encode(
                    "utf-8", "surrogatepass"
                )
            )
    content = {
        "task": data.name,
        "kind": data.kind,
        "metrics": data.metrics,
        "data": digest.hexdigest(),
        **({} if bundle is None else {f"the model's {part}": each for part, each in fingerprint(bundle).items()}),
        **settings.to_json(),
        "device": device.partition(":")[0],
        "polyseme": __version__,
    }
    made: dict[str, Any] = json.loads(json.dumps(content))
    return made


def _write(done: Finetuned, output: AnyPath, columns: Mapping[str, Any], *, force: bool) -> None:
    report = done.report
    kept = {name: value for name, value in columns.items() if name not in ("regression", "unseen")}
    save_task_model(
        done.model,
        os.fspath(output),
        about={
            "name": report.task,
            "metrics": list(report.metrics),
            "labels": list(report.labels),
            "columns": kept,
            "settings": report.settings,
            "dev": dict(report.kept.dev),
        },
        files={
            REPORT: json.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n",
            PAGE: page_of(report),
        },
        force=force,
    )

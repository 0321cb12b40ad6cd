"""The verbs of transfer: `finetune` a model for a task, `predict` with it, and `glue`, which is finetune nine times."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polyseme import __version__
from polyseme.api import AnyPath, Model, find_device
from polyseme.bundle import Bundle, load_bundle, model_folder
from polyseme.convert.hub import find_model
from polyseme.cost import Cost
from polyseme.errors import InputError, OptionError, OutputError, PolysemeWarning, nearest
from polyseme.files.asked import Quotes, Split, Words
from polyseme.files.atomic import check_output, explained, whole_file
from polyseme.files.found import Sources
from polyseme.files.spool import clear_up
from polyseme.files.unfinished import locked, remove, settle, short, unfinished_folder
from polyseme.tasks.benchmark import Benchmark
from polyseme.tasks.checks import Unseen, check_data
from polyseme.tasks.items import KINDS, TaskData
from polyseme.tasks.named import BENCHMARKS, benchmark_folder, named_benchmark, read_benchmark
from polyseme.tasks.own import read_own
from polyseme.tasks.own_columns import Column
from polyseme.training.ledger import Rates
from polyseme.training.schedules import Schedule
from polyseme.transfer.finetuning import Finetuned, finetune_task
from polyseme.transfer.folder import PAGE, REPORT, load_task_model, save_task_model, weights_digest
from polyseme.transfer.glue import TASKS, GlueReport
from polyseme.transfer.learning import CHECKPOINT_SECONDS, Told
from polyseme.transfer.page import page_of
from polyseme.transfer.predicting import Columns, Predictor, predict_files
from polyseme.transfer.predictions import Prediction, check_predictions_output
from polyseme.transfer.report import FinetuneReport
from polyseme.transfer.settings import FinetuneSettings
from polyseme.types import Progress
from polyseme.vectors.fingerprint import fingerprint

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
    pool: str | None = None,
    readout: str | None = None,
    head: str | None = None,
    inner_width: int | None = None,
    again: bool = False,
    inputs: str | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    rate: float | None = None,
    head_rate: float | None = None,
    layer_decay: float = 1.0,
    schedule: str = "linear",
    warm_up: float = 0.1,
    gradual: bool = False,
    fresh_layers: int = 0,
    weight_decay: float = 0.01,
    clip: float | None = 1.0,
    dropout: float | None = None,
    dtype: str = "auto",
    compile: bool | None = None,
    seeds: int | Sequence[int] = 1,
    most_pieces: int | None = None,
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
        layer: as for `Model.embed`; `mix` is learnt. None: the top, or where the encoder is frozen, the mix.
        pool: how the pieces of a word become one. None: the first one, or where the encoder is frozen, their mean.
        readout: what stands for a text: first, pooled, last, mean, max or concat. None: what suits the encoder.
        head: linear, mlp, bilstm, bilstm-attention, crf or bilstm-crf. None: what suits the task.
        inner_width: of the head's own layer.
        again: whether the head reads the words' vectors a second time, at its output (ELMo).
        inputs: char-cnn: word vectors and a character CNN that are learnt with the head.
        epochs: how often the training items are gone through. None: what suits the encoder; so for `batch` and `rate`.
        batch: items of a step.
        rate: the highest learning rate.
        head_rate: that of what is new; None: the same.
        layer_decay: by how much the rate falls from a layer to the one below.
        schedule: constant, linear, cosine, noam, slanted-triangular or warm-up-stable-decay.
        warm_up: the share of the steps (below 1), or the steps, in which the rate rises.
        gradual: whether layers are let learn one after another, from the top (gradual unfreezing).
        fresh_layers: how many of the top layers are drawn anew.
        weight_decay: of matrices; norms and biases have none.
        clip: the largest norm of all gradients together.
        dropout: of the head.
        dtype: auto (bf16 on a GPU, else fp32), fp32 or bf16.
        compile: whether steps are recorded and replayed as CUDA graphs; None: on a GPU.
        seeds: how many runs, from seed 0 on, or which.
        most_pieces: of a row; longer texts are cut, which is said.
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
    settings = FinetuneSettings(
        frozen=frozen,
        layer=None if layer is None else str(layer),
        pool=pool,
        readout=readout,
        head=head,
        inner_width=inner_width,
        again=again,
        inputs=inputs,
        epochs=epochs,
        batch=batch,
        rate=rate,
        head_rate=head_rate,
        layer_decay=layer_decay,
        schedule=Schedule(kind=schedule, warm_up=warm_up),  # type: ignore[arg-type]
        gradual=gradual,
        fresh_layers=fresh_layers,
        weight_decay=weight_decay,
        clip=clip,
        dropout=dropout,
        dtype=dtype,  # type: ignore[arg-type]
        compile=compile,
        seeds=_seeds(seeds),
        most_pieces=most_pieces,
        stride=stride,
        evaluations=evaluations,
    )
    if output is not None:
        check_output(output, force=force, kind="folder")
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
    name, bundle = _bundle(model, settings)
    run: dict[str, Any] = {
        "model_name": name,
        "device": find_device(device),
        "cache": None if cache is None else Path(cache),
        "rates": Rates(**(rates or {})),
        "checkpoint_seconds": checkpoint_seconds,
        "told": on_report,
        "progress": progress,
    }
    if output is None:
        return finetune_task(read, bundle, settings, **run).report
    with _unfinished(output, _decides(read, bundle, settings, run["device"]), force=force) as folder:
        done = finetune_task(read, bundle, settings, folder=folder, **run)
        _write(done, output, columns if isinstance(task, str) and task in KINDS else {}, force=force)
    return done.report


# --- predict ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What was predicted, and what it cost; of what went to a file, the file has it alone."""

    predictions: list[Prediction]
    kind: str
    cost: Cost


def predict(
    sources: Sources,
    *,
    model: AnyPath,
    output: AnyPath | None = None,
    second: str | None = None,
    choices: str | Sequence[str] = (),
    field: str | None = None,
    id_field: str | None = None,
    fields: str | Sequence[str] = (),
    format: str | None = None,
    words: Words = "syntactic",
    split: Split = "line",
    quotes: Quotes = "double",
    delimiter: str | None = None,
    check_text: bool = True,
    device: str = "auto",
    dtype: str = "fp32",
    force: bool = False,
    progress: Progress | None = None,
) -> Predicted:
    """Let a task model judge every text of some files, in their order.

    Work that was stopped is gone on with by the same call.

    Args:
        sources: a path, folder, pattern or `-` for standard input, or several of them, as for `embed`.
        model: a folder that `finetune` has written.
        output: .jsonl, .tsv, .parquet, or .conll for tags; None: predictions are returned.
        second: the field with the second text, or the question.
        choices: the fields with the choices, or the one with a list of them.
        field: the field with the text, or with the list of its words.
        id_field: the field with the id of a text; None: its number, counted from 1.
        fields: names of other fields to keep beside the predictions, or "all".
        format: what the input is, where its ending does not say it: text, jsonl, csv, tsv, parquet, conll, conllu.
        words: in CoNLL-U, whether words are the syntactic words or the tokens of the surface.
        split: in plain text, what a text is: a line, a paragraph or the whole document.
        quotes: in CSV and TSV, whether double quotes enclose fields, or none do.
        delimiter: in CSV and TSV, what separates the fields.
        check_text: in CoNLL-U, whether a sentence whose words do not add up to its text is refused.
        device: as for `load`.
        dtype: fp32 or bf16.
        force: replace an output that is there, and start anew where unfinished work has other settings.
        progress: told how many bytes of the input are done, and of how many.
    """
    started = time.perf_counter()
    if dtype not in ("fp32", "bf16"):
        raise OptionError(f"There is no dtype {dtype!r} here. {nearest(dtype, ('fp32', 'bf16'))}")
    folder = model_folder(find_model(str(model)))
    chosen = find_device(device)
    listed = [os.fspath(one) for one in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    if output is not None:
        clear_up(output)
        check_output(output, force=force)
        for one in listed:
            if Path(one).exists() and Path(output).exists() and Path(one).samefile(output):
                raise OutputError(f"{output} is the input itself, and is not replaced. Choose another name.")
    loaded = load_task_model(folder, device=chosen)
    if output is not None:
        check_predictions_output(output, loaded.head.config)
    predictor = Predictor(loaded, bf16=dtype == "bf16")
    reading: dict[str, Any] = {
        "field": field,
        "id_field": id_field,
        "fields": (fields,) if isinstance(fields, str) else tuple(fields),
        "format": format,
        "words": words,
        "split": split,
        "quotes": quotes,
        "delimiter": delimiter,
        "check_text": check_text,
    }
    columns = Columns(second=second, choices=(choices,) if isinstance(choices, str) else tuple(choices))
    found, earlier = predict_files(
        predictor,
        listed,
        output,
        reading=reading,
        columns=columns,
        settings=lambda: {
            "model": weights_digest(loaded),
            "input": listed,
            **reading,
            "second": second,
            "choices": list(columns.choices),
            "dtype": dtype,
            "device": chosen.partition(":")[0],
            "polyseme": __version__,
        },
        force=force,
        progress=progress,
    )
    for note in predictor.notes():
        warnings.warn(f"{note}.", PolysemeWarning, stacklevel=2)
    cost = predictor.cost(time.perf_counter() - started + earlier)
    return Predicted(predictions=found, kind=loaded.config.kind, cost=cost)


# --- glue -------------------------------------------------------------------------------------------------------------


def glue(
    *,
    model: Model | AnyPath | None = None,
    data: AnyPath,
    tasks: Sequence[str] = (),
    output: AnyPath | None = None,
    seeds: int | Sequence[int] = 1,
    frozen: bool = False,
    layer: str | int | None = None,
    pool: str | None = None,
    readout: str | None = None,
    head: str | None = None,
    inner_width: int | None = None,
    again: bool = False,
    inputs: str | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    rate: float | None = None,
    head_rate: float | None = None,
    layer_decay: float = 1.0,
    schedule: str = "linear",
    warm_up: float = 0.1,
    gradual: bool = False,
    fresh_layers: int = 0,
    weight_decay: float = 0.01,
    clip: float | None = 1.0,
    dropout: float | None = None,
    dtype: str = "auto",
    compile: bool | None = None,
    most_pieces: int | None = None,
    stride: int = 128,
    evaluations: int = 1,
    device: str = "auto",
    cache: AnyPath | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    rates: Mapping[str, Any] | None = None,
    force: bool = False,
    on_start: Callable[[str], None] | None = None,
    on_report: Callable[[Told], None] | None = None,
    progress: Progress | None = None,
) -> GlueReport:
    """`finetune` over GLUE's nine tasks, and one table of all, beside what is published.

    What is not named here is as for `finetune`.

    Args:
        model: as for `finetune`.
        data: the folder with the tasks' folders.
        tasks: some of the nine; none: those whose data is there.
        output: a folder for a model a task, and for glue.json and glue.md; what is finished there is not done again.
        seeds: how many runs a task, or which.
        force: replace what is there under the name `output`.
        on_start: told which task begins.
        frozen: as for `finetune`.
        layer: as for `finetune`.
        pool: as for `finetune`.
        readout: as for `finetune`.
        head: as for `finetune`.
        inner_width: as for `finetune`.
        again: as for `finetune`.
        inputs: as for `finetune`.
        epochs: as for `finetune`.
        batch: as for `finetune`.
        rate: as for `finetune`.
        head_rate: as for `finetune`.
        layer_decay: as for `finetune`.
        schedule: as for `finetune`.
        warm_up: as for `finetune`.
        gradual: as for `finetune`.
        fresh_layers: as for `finetune`.
        weight_decay: as for `finetune`.
        clip: as for `finetune`.
        dropout: as for `finetune`.
        dtype: as for `finetune`.
        compile: as for `finetune`.
        most_pieces: as for `finetune`.
        stride: as for `finetune`.
        evaluations: as for `finetune`.
        device: as for `finetune`.
        cache: as for `finetune`.
        checkpoint_seconds: as for `finetune`.
        rates: as for `finetune`.
        on_report: as for `finetune`.
        progress: as for `finetune`.
    """
    settings = {name: value for name, value in locals().items() if name not in _OF_GLUE}
    chosen = [named_benchmark(task) for task in tasks] or [BENCHMARKS[name] for name in TASKS]
    foreign = [benchmark.name for benchmark in chosen if not benchmark.glue]
    if foreign:
        raise OptionError(f"{foreign[0]!r} is none of GLUE's tasks. {nearest(foreign[0], TASKS)}")
    there = [benchmark for benchmark in chosen if tasks or _is_there(benchmark, data)]
    if not there:
        raise InputError(f"{data} holds the data of none of GLUE's tasks ({', '.join(TASKS)}).")
    notes = [f"No data of {benchmark.name}: left out." for benchmark in chosen if benchmark not in there]
    folder = None if output is None else Path(output)
    if folder is not None:
        if force and folder.exists():
            check_output(folder, force=True, kind="folder")
            shutil.rmtree(folder)
        with explained(folder):
            folder.mkdir(exist_ok=True)
        decides = {name: value for name, value in settings.items() if name not in _BESIDE_GLUE}
        named = (model.path or "a model") if isinstance(model, Model) else str(model or "minilm")
        asked = {"model": named, "seeds": _seeds(seeds), **decides}
        settle(folder, json.loads(json.dumps(asked)), what="table", force=force)
    reports: dict[str, FinetuneReport] = {}
    for benchmark in there:
        if on_start is not None:
            on_start(benchmark.name)
        place = None if folder is None else folder / benchmark.name
        if place is not None and (place / REPORT).is_file():
            reports[benchmark.name] = FinetuneReport.from_json(json.loads((place / REPORT).read_text(encoding="utf-8")))
            continue
        reports[benchmark.name] = finetune(
            benchmark.name, model=model, data=data, output=place, seeds=seeds, force=force, **settings
        )
    first = next(iter(reports.values()))
    report = GlueReport(model=first.model, how=first.how, reports=reports, notes=tuple(notes))
    if folder is not None:
        for name, content in (("glue.json", json.dumps(report.to_json(), indent=2)), ("glue.md", report.markdown())):
            with whole_file(folder / name, force=True) as made:
                made.write_text(content + "\n", encoding="utf-8")
    return report


_OF_GLUE = frozenset({"model", "data", "tasks", "output", "seeds", "force", "on_start"})
_BESIDE_GLUE = frozenset({"device", "cache", "checkpoint_seconds", "rates", "on_report", "progress"})
"""Settings that decide no figure."""


def _is_there(benchmark: Benchmark, data: AnyPath) -> bool:
    try:
        benchmark_folder(benchmark, data)
    except InputError:
        return False
    return True


# --- what the verbs share ---------------------------------------------------------------------------------------------


def _seeds(given: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(given, int):
        if given < 1:
            raise OptionError(f"There must be one seed at least. Got {given} instead.")
        return tuple(range(given))
    return tuple(given)


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
        kinds = ", ".join(KINDS)
        raise OptionError(
            f"{task!r} is the name of a benchmark, whose data is a folder (data=…, --data FOLDER). For files of your "
            f"own name the kind of the task instead: {kinds}."
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


@contextmanager
def _unfinished(output: AnyPath, settings: Mapping[str, Any], *, force: bool) -> Iterator[Path]:
    """Where work is kept until the output has its name; it goes then."""
    folder = unfinished_folder(output)
    with explained(folder):
        folder.mkdir(exist_ok=True)
    with locked(folder):
        settle(folder, settings, what="model", force=force)
        try:
            yield folder
        except BaseException as error:
            note = f"What was done is kept in {short(folder)}: the same command goes on from there."
            error.__notes__ = [*getattr(error, "__notes__", ()), note]  # type: ignore[attr-defined]
            raise
        remove(folder)


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

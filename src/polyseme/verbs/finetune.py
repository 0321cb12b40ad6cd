"""`finetune`: a model is fitted to a task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from polyseme import __version__
from polyseme.api import Model
from polyseme.bundle import Bundle
from polyseme.convert.hub import find_model
from polyseme.convert.sentence_transformers import MODEL_CARD
from polyseme.datasets.named_benchmarks import BENCHMARKS, read_benchmark
from polyseme.embedding.model_fingerprint import fingerprint
from polyseme.errors import OptionError, nearest
from polyseme.files.atomic import AnyPath, check_output, whole_folder
from polyseme.files.in_memory import inputs_of, names_of
from polyseme.files.source_paths import Sources
from polyseme.files.unfinished_folder import clear_up, unfinished_work, whole_output
from polyseme.model_folder import CARD, MEMBERS, load_bundle
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.parts.device import find_device
from polyseme.tasks.items import TaskData
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.own_data import checked_data, read_own
from polyseme.tasks.train_samples import ALL, TrainSamples, train_shares
from polyseme.training.energy_ledger import Rates
from polyseme.transfer.finetune_card import task_card_of
from polyseme.transfer.finetune_report import FinetuneReport, curve_picture, page_of
from polyseme.transfer.finetune_settings import FinetuneSettings, settings_of
from polyseme.transfer.finetune_task import FinetuneResult, FinetuneRun, finetune_task
from polyseme.transfer.share_curve import check_scratch, finetune_shares
from polyseme.transfer.stacked_inputs import InputModel, folders_of, load_inputs
from polyseme.transfer.task_ensemble import check_joinable, joint_report, model_names
from polyseme.transfer.task_folder import CURVE, PAGE, REPORT, save_task_model
from polyseme.verb_options.task_options import FinetuneTaskOptions, TaskDataOptions

NO_MODEL = "none"
"""As the model: none; the head reads word vectors that it learns itself (`inputs`)."""


@flat(FinetuneTaskOptions)
def finetune(options: FinetuneTaskOptions) -> FinetuneReport:
    """Fit a model to a task, frozen or fine-tuned, over one seed or several; the best on dev is kept.

    Several models, with commas between them, are fitted one after another, and answer together by the mean of their
    probabilities. Interrupted work is resumed by the same call.
    """
    settings = settings_of(options)
    shares = train_shares(options.train_share or (ALL if options.scratch else None))
    device, rates = find_device(options.device), Rates.of(options.cost_rates)
    task, model, output = options.task, options.model, options.output
    files = {"train": options.train, "dev": options.dev, "test": options.test}
    models = [model] if isinstance(model, Model) or model is None else list(model_names(str(model)))
    if output is not None:
        paths = [each.path if isinstance(each, Model) else each for each in models]
        named = [name for file in files.values() if file is not None for name in names_of(inputs_of(file))]
        inputs = [*paths, options.data, *named, *folders_of(settings.inputs)]
        clear_up(output)
        check_output(output, force=options.force, kind="folder", inputs=inputs, marks=["polyseme.json"])
    columns = options.values(TaskDataOptions)
    read = read_task(task, options.data, files, columns)
    if len(models) > 1:
        check_joinable(read.kind)
        if shares:
            raise OptionError("A learning curve (train_share, scratch) is that of one model. Name one model.")
    bundles = dict(_bundle(each, settings) for each in models)
    run = FinetuneRun(
        model_name=", ".join(bundles),
        device=device,
        cache=None if options.cache is None else Path(options.cache),
        rates=rates,
        stacked=load_inputs(settings.inputs),
        checkpoint_seconds=options.checkpoint_seconds,
        on_report=options.on_report,
        progress=options.progress,
    )
    if len(models) > 1:
        return _fit_together(read, bundles, settings, run, options, columns)
    [bundle] = bundles.values()
    fit: Callable[..., FinetuneResult] = finetune_task
    if shares:
        TrainSamples.of(shares, read.splits["train"], settings.seeds, read.name)
        fit = partial(finetune_shares, shares=shares, scratch=options.scratch)
    if options.scratch:
        check_scratch(bundle, settings)
    if output is None:
        return fit(read, bundle, settings, run=run).report
    decides = decisive_settings(read, [bundle], settings, device, run.stacked or ())
    decides |= {"train_share": [share.name for share in shares], "scratch": options.scratch}
    with unfinished_work(output, decides, noun="model", force=options.force) as folder:
        done = fit(read, bundle, settings, run=replace(run, folder=folder))
        with whole_output(folder, output, kind="folder", force=options.force) as path:
            write_finetuned(done, path, _own_columns(task, columns), output)
    return done.report


def _fit_together(
    data: TaskData, bundles: Mapping[str, Bundle | None], settings: FinetuneSettings, run: FinetuneRun,
    options: FinetuneTaskOptions, columns: Mapping[str, Any],
) -> FinetuneReport:  # fmt: skip
    """Fit models one after another, each with all seeds, and write them into one folder (`transfer.task_ensemble`)."""

    def fit(folder: Path | None) -> list[FinetuneResult]:
        places = [None if folder is None else folder / str(number + 1) for number in range(len(bundles))]
        return [
            finetune_task(
                data, bundle, settings,
                replace(run, model_name=name, folder=place, part=name),
            )
            for (name, bundle), place in zip(bundles.items(), places, strict=True)
        ]  # fmt: skip

    output = options.output
    if output is None:
        return joint_report(data, fit(None), list(bundles))
    decides = decisive_settings(data, list(bundles.values()), settings, run.device, run.stacked or ())
    with unfinished_work(output, decides, noun="models", force=options.force) as work:
        fitted = fit(work)
        report = joint_report(data, fitted, list(bundles))
        with whole_output(work, output, kind="folder", force=options.force) as path, whole_folder(path) as folder:
            members = [str(number + 1) for number in range(len(fitted))]
            for each, name in zip(fitted, members, strict=True):
                write_finetuned(each, folder / name, _own_columns(options.task, columns), Path(output) / name)
            card = {"format": 1, MEMBERS: members}
            (folder / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
            for name, content in _report_files(report).items():
                (folder / name).write_text(content, encoding="utf-8")
    return report


def _own_columns(task: str | TaskData, columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """The columns that a model of the user's own files is kept with; a benchmark has none."""
    return columns if isinstance(task, str) and task in KINDS else {}


def read_task(
    task: str | TaskData, data: AnyPath | None, files: Mapping[str, Sources | None], columns: Mapping[str, Any]
) -> TaskData:
    """The data of a task, read and checked."""
    named = {split: file for split, file in files.items() if file is not None}
    if isinstance(task, TaskData):
        return checked_data(task, unseen=columns["unseen"])
    if task in KINDS:
        if data is not None:
            raise OptionError(f"The data of a task of your own are files (train, dev, test), not a folder ({data}).")
        if "train" not in named:
            raise OptionError(f"There is nothing to learn {task!r} from. Name a file (train=…, --train FILE).")
        return read_own(task, named, **columns)
    if named:
        if task not in BENCHMARKS:
            raise OptionError(f"There is no kind of task {task!r}. {nearest(task, KINDS)}")
        raise OptionError(
            f"{task!r} is the name of a benchmark, whose data is a folder (data=…, --data FOLDER). For files of your "
            f"own name the kind of the task instead: {', '.join(KINDS)}."
        )
    try:
        return checked_data(read_benchmark(task, data), unseen="keep")
    except OptionError as error:
        raise OptionError(f"{error} For files of your own, name a kind: {', '.join(KINDS)}.") from None


def _bundle(model: Model | AnyPath | None, settings: FinetuneSettings) -> tuple[str, Bundle | None]:
    """The model to begin with, which stays as it is where it is the caller's."""
    if isinstance(model, Model):
        return model.path or "a model", model.bundle.copied().float()
    if model is not None and str(model) == NO_MODEL:
        if settings.inputs is None:
            raise OptionError(
                "Without a model, the head needs inputs of its own. Set them: inputs='char-cnn', 'glove.txt,char-cnn' "
                "(--inputs)."
            )
        return "no language model", None
    name = str(model_or_default("finetune", model))
    return name, load_bundle(find_model(name))


def decisive_settings(
    data: TaskData,
    bundles: Sequence[Bundle | None],
    settings: FinetuneSettings,
    device: str,
    stacked: Sequence[InputModel],
) -> dict[str, Any]:
    """Everything that decides the result, as JSON."""
    digest = hashlib.sha256()
    for split, items in data.splits.items():
        digest.update(split.encode())
        for item in items:
            digest.update(
                repr((item.text, item.words, item.second, item.choices, item.marks, item.spans, item.gold)).encode(
                    "utf-8", "surrogatepass"
                )
            )
    content = {
        "task": data.name,
        "kind": data.kind,
        "metrics": data.metrics,
        "data": digest.hexdigest(),
        **{
            f"{'the model' if len(bundles) == 1 else f'model {number}'}'s {part}": hash
            for number, bundle in enumerate(bundles, 1)
            if bundle is not None
            for part, hash in fingerprint(bundle).items()
        },
        **{
            f"the {part} of the input {each.name}": hash
            for each in stacked
            for part, hash in fingerprint(each.bundle).items()
        },
        **settings.to_json(),
        "device": device.partition(":")[0],
        "polyseme": __version__,
    }
    return json.loads(json.dumps(content))  # type: ignore[no-any-return]


def write_finetuned(done: FinetuneResult, path: AnyPath, columns: Mapping[str, Any], output: AnyPath) -> None:
    """Write the model of a fine-tuning, its report and its card into a new folder; the card calls it `output`."""
    report = done.report
    used = {name: value for name, value in columns.items() if name not in ("regression", "unseen")}
    save_task_model(
        done.model,
        path,
        card={
            "name": report.task,
            "metrics": list(report.metrics),
            "labels": list(report.labels),
            "columns": used,
            "settings": report.settings,
            "dev": dict(report.best.dev),
        },
        files={**_report_files(report), MODEL_CARD: task_card_of(report, done.model.bundle, output)},
    )


def _report_files(report: FinetuneReport) -> dict[str, str]:
    """The report as JSON and as a page, and the picture of a learning curve."""
    return {
        REPORT: json.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n",
        PAGE: page_of(report),
        **({CURVE: curve_picture(report)} if report.curve else {}),
    }

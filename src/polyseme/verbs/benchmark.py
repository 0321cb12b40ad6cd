"""`benchmark`: a suite of tasks, in one table."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polyseme.api import Model, folder_of
from polyseme.convert.hub import find_model
from polyseme.datasets.named_benchmarks import BENCHMARKS, benchmark_folder, named_benchmark, read_benchmark
from polyseme.datasets.suites import SUITES, Strategy, Suite, SuiteTask
from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.atomic import AnyPath, check_output, explained, note_finished, parents_of, whole_file
from polyseme.files.unfinished_folder import (
    check_ours,
    clear_up,
    discard,
    has_work,
    prepare,
    remove,
    unfinished_work,
    whole_output,
)
from polyseme.json_reading import damage_reported, load_json
from polyseme.options import check_choice, flat
from polyseme.packaged_models import model_or_default
from polyseme.parts.device import find_device
from polyseme.tasks.items import Item, TaskData
from polyseme.training.energy_ledger import Rates
from polyseme.transfer.benchmark_table import BenchmarkReport, TaskResult
from polyseme.transfer.finetune_report import FinetuneReport
from polyseme.transfer.finetune_settings import FinetuneSettings, settings_of
from polyseme.transfer.task_folder import REPORT
from polyseme.verb_options.task_options import BenchmarkOptions, FinetuneOptions, FinetuneRunOptions, ItemLimits
from polyseme.verbs.evaluate import evaluate
from polyseme.verbs.finetune import NO_MODEL, finetune

ENDINGS = (".html", ".json", ".md")
"""Of outputs that are one file; any other is a folder with all three, and one model per task."""
IN_FOLDER = "benchmark"
_ITEMS = tuple(each.name for each in dataclasses.fields(ItemLimits))


@flat(BenchmarkOptions)
def benchmark(options: BenchmarkOptions) -> BenchmarkReport:
    """Fit a model to each task of a suite, and report all results in one table, beside published ones.

    Tasks whose data is missing are left out and named. Interrupted work is resumed by the same call, by task and seed;
    finished tasks of an output folder are not computed again, unless `force` replaces them. Other options are those of
    `finetune`.

        >>> table = polyseme.benchmark("glue", model="models/mine", data="data/tasks", seeds=5)     # doctest: +SKIP
        >>> print(table.markdown())                                                                 # doctest: +SKIP
    """
    suite, settings = check_benchmark(options)
    model: AnyPath | Model = model_or_default("evaluate" if suite.evaluation else "benchmark", options.model)
    name = (model.path or "a model") if isinstance(model, Model) else str(model)
    if not isinstance(model, Model) and name != NO_MODEL:
        find_model(name)
    tasks, notes = _tasks(suite, options.tasks, options.data)
    record = {"suite": suite.name, "model": name, **settings.to_json(), **options.values(ItemLimits)}
    with _folder(options.output, record, [options.data, folder_of(model)], force=options.force) as folder:
        if suite.evaluation:
            results, of_evaluation = _score_suite(suite, tasks, dataclasses.replace(options, model=model))
            notes += of_evaluation
        else:
            results = {task.name: _fit_task(suite, task, options, model, folder) for task in tasks}
        report = BenchmarkReport(suite=suite.name, model=name, results=results, notes=notes)
        if options.output is not None and folder is not None:
            _write(report, Path(options.output), folder, force=options.force)
    return report


# --- tasks ------------------------------------------------------------------------------------------------------------


def check_benchmark(options: BenchmarkOptions) -> tuple[Suite, FinetuneSettings]:
    """The suite and the settings of its fine-tunings; options that cannot be are refused, and so are missing data."""
    check_choice("suite", options.suite, SUITES)
    suite = SUITES[options.suite]
    settings = settings_of(options)
    find_device(options.device)
    Rates.of(options.cost_rates)
    _check_options(suite, options)
    _tasks(suite, options.tasks, options.data)
    return suite, settings


def _check_options(suite: Suite, options: BenchmarkOptions) -> None:
    """Refuse an option that the suite decides, or has no use for."""
    changed = options.changed(FinetuneOptions)
    if suite.evaluation:
        useless = [*changed, *(name for name in _ITEMS if getattr(options, name) is not None)]
        if useless:
            raise OptionError(f"The suite {suite.name} fits nothing, so {useless[0]} means nothing. Leave it out.")
    decided = [name for strategy in suite.strategies for name in strategy.settings if name in changed]
    if decided:
        strategies = ", ".join(strategy.name for strategy in suite.strategies)
        raise OptionError(f"The suite {suite.name} decides {decided[0]} ({strategies}). Leave it out.")
    if any("model" in strategy.settings for strategy in suite.strategies) and options.model == NO_MODEL:
        raise OptionError(f"The suite {suite.name} compares a model with none. Name a model with -m (model=…).")
    for name in _ITEMS:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise OptionError(f"The option {name} must be at least 1. Got {value} instead.")


def _tasks(suite: Suite, names: Sequence[str], data: AnyPath) -> tuple[tuple[SuiteTask, ...], tuple[str, ...]]:
    """The tasks to fit to, whose data is there, and notes on the others."""
    if suite.evaluation:
        for name in names:
            check_choice(f"task of {suite.noun}", name, suite.names)
        return tuple(task for task in suite.tasks if task.name in names or not names), ()
    chosen = [named_benchmark(name, among=suite.names) for name in names]
    for each in chosen:
        if each.name not in suite.names:
            raise OptionError(f"{each.name!r} is no task of {suite.noun}. {nearest(each.name, suite.names)}")
        benchmark_folder(each, data)
    if chosen:
        of_suite = {task.name: task for task in suite.tasks}
        return tuple(of_suite[each.name] for each in chosen), ()
    there = tuple(task for task in suite.tasks if _is_there(task, data))
    if not there:
        raise InputError(f"{data} holds no data of {suite.noun} ({', '.join(suite.names)}).")
    missing = [task.name for task in suite.tasks if task not in there]
    return there, (f"No data, so left out: {', '.join(missing)}.",) if missing else ()


def _is_there(task: SuiteTask, data: AnyPath) -> bool:
    try:
        benchmark_folder(BENCHMARKS[task.name], data)
    except InputError:
        return False
    return True


def _fit_task(
    suite: Suite, task: SuiteTask, options: BenchmarkOptions, model: AnyPath | Model, folder: Path | None
) -> dict[str, TaskResult]:
    """A task in each of the suite's strategies."""
    results: dict[str, TaskResult] = {}
    data: TaskData | None = None
    for strategy in suite.strategies:
        if options.on_start is not None:
            options.on_start(f"{task.name}, {strategy.name}" if strategy.name else task.name)
        place = None if folder is None else folder / task.name / strategy.name.replace(" ", "-")
        if place is not None:
            clear_up(place)
        if place is not None and (place / REPORT).is_file():
            with damage_reported(place / REPORT, "Remove its folder, and run the command again."):
                report = FinetuneReport.from_json(load_json(place / REPORT, kind=dict))
        else:
            data = data or _sample(read_benchmark(task.name, options.data), options, task)
            report = finetune(data, output=place, unseen="keep", **_options(options, task, strategy, model))
        results[strategy.name] = TaskResult.of_fit(report, prefers_test=suite.prefers_test)
    return results


def _options(options: BenchmarkOptions, task: SuiteTask, strategy: Strategy, model: AnyPath | Model) -> dict[str, Any]:
    """What `finetune` is called with: the user's options, the task's where there are none, the strategy's."""
    named = options.changed(FinetuneOptions)
    own = {name: value for name, value in task.settings.items() if name not in named}
    return {**options.values(FinetuneRunOptions), "model": model, **own, **strategy.settings}


def _sample(data: TaskData, options: BenchmarkOptions, task: SuiteTask) -> TaskData:
    """The data with at most so many items of train and dev as the user or the suite says."""
    most = {"train": options.train_items or task.train_items, "dev": options.dev_items or task.dev_items}
    splits, notes = dict(data.splits), list(data.notes)
    for split, count in most.items():
        items = splits.get(split, ())
        if count is not None and len(items) > count:
            splits[split] = _space_evenly(items, count)
            notes.append(f"{len(splits[split]):,} of {len(items):,} items of {split}, evenly spaced.")
    sampled = tuple(name for name in splits if name in data.sampled or len(splits[name]) < len(data.splits[name]))
    return dataclasses.replace(data, splits=splits, sampled=sampled, notes=tuple(notes))


def _space_evenly(items: Sequence[Item], count: int) -> list[Item]:
    """At most so many items, evenly spaced; those of one text (questions on a passage) stay together."""
    texts: dict[str, list[Item]] = {}
    for item in items:
        texts.setdefault(item.text, []).append(item)
    groups = list(texts.values())
    n_groups = -(-count * len(groups) // len(items))
    chosen = [groups[number * len(groups) // n_groups] for number in range(n_groups)]
    return [item for group in chosen for item in group][:count]


def _score_suite(
    suite: Suite, tasks: Sequence[SuiteTask], options: BenchmarkOptions
) -> tuple[dict[str, dict[str, TaskResult]], tuple[str, ...]]:
    """The groups of an evaluation, and notes on it."""
    if options.on_start is not None:
        options.on_start(suite.evaluation)
    report = evaluate(
        suite.evaluation, model=options.model, data=options.data, device=options.device, progress=options.progress
    )
    there = {line.name for line in report.lines}
    results = {task.name: {"": TaskResult.of_evaluation(report, task.name)} for task in tasks if task.name in there}
    if not results:
        raise InputError(f"{options.data} has no data of {', '.join(task.name for task in tasks)}.")
    return results, (f"Scored {report.method}.", *report.notes)


# --- the output -------------------------------------------------------------------------------------------------------


def _write(report: BenchmarkReport, output: Path, folder: Path, *, force: bool) -> None:
    """The file that is named, or all of them in the folder."""
    written = {".html": report.page, ".json": lambda: json.dumps(report.to_json(), indent=2), ".md": report.markdown}
    if output.suffix in ENDINGS:
        with whole_output(folder, output, kind="file", force=force) as path:
            path.write_text(written[output.suffix]().rstrip("\n") + "\n", encoding="utf-8")
        return
    for ending, content in written.items():
        with whole_file(output / f"{IN_FOLDER}{ending}", force=True) as path:
            path.write_text(content().rstrip("\n") + "\n", encoding="utf-8")
    note_finished(output)


@contextmanager
def _folder(
    output: AnyPath | None, settings: Mapping[str, Any], inputs: Sequence[AnyPath | None], *, force: bool
) -> Iterator[Path | None]:
    """Where the models of tasks go: the output itself, or for one file the folder of unfinished work beside it.

    What was done there earlier must have these settings. A new folder that stays unused is removed.
    """
    if output is None:
        yield None
        return
    folder = Path(output)
    if folder.suffix in ENDINGS:
        clear_up(output)
        check_output(output, force=force, inputs=inputs)
        with unfinished_work(output, settings, noun="table", force=force) as unfinished:
            yield unfinished
        return
    if force and folder.exists():
        marks = ["settings.json", f"{IN_FOLDER}.json"]
        check_output(folder, force=True, kind="folder", inputs=inputs, marks=marks)
        check_ours(folder, noun="table")
        discard(folder)
    new = not folder.exists()
    with parents_of(folder):
        with explained(folder):
            folder.mkdir(exist_ok=True)
        prepare(folder, settings, noun="table", force=force)
        try:
            yield folder
        except BaseException:
            if new and not has_work(folder):
                remove(folder)
            raise

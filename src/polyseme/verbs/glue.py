"""`glue`: `finetune` nine times, in one table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polyseme.api import AnyPath, Model, folder_of
from polyseme.convert.hub import find_model
from polyseme.datasets.benchmark import Benchmark
from polyseme.datasets.named_benchmarks import BENCHMARKS, benchmark_folder, named_benchmark
from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.atomic import check_output, explained, parents_of, whole_file
from polyseme.files.unfinished_folder import check_ours, discard, has_work, prepare, remove
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.parts.device import find_device
from polyseme.training.energy_ledger import Rates
from polyseme.transfer.finetune_report import FinetuneReport
from polyseme.transfer.finetune_settings import settings_of
from polyseme.transfer.glue_table import TASKS, GlueReport
from polyseme.transfer.task_folder import REPORT
from polyseme.verb_options.task_options import FinetuneRunOptions, GlueOptions
from polyseme.verbs.finetune import NO_MODEL, finetune


@flat(GlueOptions)
def glue(options: GlueOptions) -> GlueReport:
    """`finetune` over GLUE's nine tasks, and one table of all, beside what is published.

    What is finished in `output` is not computed again, unless `force` replaces it. Other options are as for `finetune`.

        >>> table = polyseme.glue(model="models/mine", data="data/tasks", seeds=5)            # doctest: +SKIP
        >>> print(table.markdown())                                                           # doctest: +SKIP
    """
    data = options.data
    model: AnyPath | Model = model_or_default("glue", options.model)
    settings = settings_of(options)
    find_device(options.device)
    Rates.of(options.cost_rates)
    named = (model.path or "a model") if isinstance(model, Model) else str(model)
    if not isinstance(model, Model) and named != NO_MODEL:
        find_model(named)
    there, notes = _tasks(options.tasks, data)
    reports: dict[str, FinetuneReport] = {}
    needed = [data, folder_of(model)]
    with _folder(options.output, {"model": named, **settings.to_json()}, needed, force=options.force) as folder:
        for benchmark in there:
            if options.on_start is not None:
                options.on_start(benchmark.name)
            place = None if folder is None else folder / benchmark.name
            if place is not None and (place / REPORT).is_file():
                before = json.loads((place / REPORT).read_text(encoding="utf-8"))
                reports[benchmark.name] = FinetuneReport.from_json(before)
                continue
            shared = {**options.values(FinetuneRunOptions), "model": model}
            reports[benchmark.name] = finetune(benchmark.name, data=data, output=place, **shared)
        first = next(iter(reports.values()))
        report = GlueReport(model=first.model, mode=first.mode, reports=reports, notes=notes)
        if folder is not None:
            written = {"glue.json": json.dumps(report.to_json(), indent=2), "glue.md": report.markdown()}
            for name, content in written.items():
                with whole_file(folder / name, force=True) as path:
                    path.write_text(content + "\n", encoding="utf-8")
    return report


def _tasks(names: Sequence[str], data: AnyPath) -> tuple[list[Benchmark], tuple[str, ...]]:
    """The tasks to fit to, whose data is there, and notes on the others."""
    chosen = [named_benchmark(name, among=TASKS) for name in names]
    for benchmark in chosen:
        if benchmark.name not in TASKS:
            raise OptionError(f"{benchmark.name!r} is none of GLUE's tasks. {nearest(benchmark.name, TASKS)}")
        benchmark_folder(benchmark, data)
    if chosen:
        return chosen, ()
    nine = [BENCHMARKS[name] for name in TASKS]
    there = [benchmark for benchmark in nine if _is_there(benchmark, data)]
    if not there:
        raise InputError(f"{data} holds the data of none of GLUE's tasks ({', '.join(TASKS)}).")
    return there, tuple(f"No data of {benchmark.name}: left out." for benchmark in nine if benchmark not in there)


def _is_there(benchmark: Benchmark, data: AnyPath) -> bool:
    try:
        benchmark_folder(benchmark, data)
    except InputError:
        return False
    return True


@contextmanager
def _folder(
    output: AnyPath | None, settings: Mapping[str, Any], inputs: Sequence[AnyPath | None], *, force: bool
) -> Iterator[Path | None]:
    """Where models and table go; what was done there earlier must have these settings. Unused, a new one goes again."""
    if output is None:
        yield None
        return
    folder = Path(output)
    if force and folder.exists():
        check_output(folder, force=True, kind="folder", inputs=inputs, marks=["settings.json", "glue.json"])
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

"""One run of a sweep, in its folder: the command itself, and what follows it with its model.

request.json    what is run, which decides whether a run that is there is this one
result.json     the results of every step so far: a run that is resumed repeats none
run/            the folder of the run, as its command writes it
log.txt         what the process printed
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from polyseme import __version__
from polyseme.errors import InputError, ModelError, PolysemeError, PolysemeWarning
from polyseme.files.source_paths import FileName
from polyseme.json_reading import load_json
from polyseme.metrics.evaluation_report import Report
from polyseme.metrics.sampling_error import sampling_error
from polyseme.options import fields_of
from polyseme.parts.device import find_device
from polyseme.printable import visible
from polyseme.recipes.recipe_table import COUNTED
from polyseme.sweeps.sweep_report import Figure, RunCost, RunResult, State
from polyseme.training.effects import CHECKPOINTS
from polyseme.training.energy_ledger import Ledger, Rates
from polyseme.training.energy_meter import Meter
from polyseme.training.run_folder import LEDGER, RUN, Run, write_json
from polyseme.training.run_job import PausedRun
from polyseme.transfer.benchmark_table import BenchmarkReport
from polyseme.transfer.finetune_report import FinetuneReport
from polyseme.transfer.task_folder import REPORT
from polyseme.verb_options.pretraining_options import PretrainOptions
from polyseme.verb_options.task_options import FinetuneTaskOptions
from polyseme.verbs.benchmark import benchmark
from polyseme.verbs.evaluate import evaluate
from polyseme.verbs.finetune import finetune
from polyseme.verbs.pretrain import pretrain

REQUEST, RESULT, PLACE, LOG, LOCK = "request.json", "result.json", "run", "log.txt", "lock"
HELD_OUT = "held-out loss"
STOPPED = "The time was over; the same command resumes it."
NO_MEMORY = "out of memory"

Say = Callable[[str], None]
Figures = dict[str, Figure]


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What one run is."""

    verb: str
    name: str
    settings: Mapping[str, Any]
    """Those that vary, as tables show them."""
    seed: int
    options: Mapping[str, Any]
    """Of the command, but for the output and the seed; as JSON has them."""
    then: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """Commands that follow, with their options."""
    side_by_side: int = 1
    """Runs that the device has at once."""

    @classmethod
    def read(cls, folder: Path) -> RunRequest:
        """The request in a run's folder."""
        try:
            return cls(**load_json(folder / REQUEST, kind=dict))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(
                f"{folder / REQUEST} is damaged ({error}). Remove {folder}, and the same command repeats that run."
            ) from None

    def write(self, folder: Path) -> None:
        """Put it into a run's folder."""
        folder.mkdir(exist_ok=True)
        write_json(folder / REQUEST, asdict(self))


class PausedError(PolysemeError):
    """The time of a run was over before its end."""


@dataclass
class _Steps:
    """The results of the steps of a run, in its folder."""

    folder: Path
    done: dict[str, dict[str, Any]]
    message: str = ""
    warnings: list[str] = field(default_factory=list)
    """Of the step that is being taken."""

    @classmethod
    def read(cls, folder: Path) -> _Steps:
        try:
            content = load_json(folder / RESULT, kind=dict)
            return cls(folder, content["steps"], content["message"])
        except (OSError, ValueError, KeyError):
            return cls(folder, {})

    def write(self) -> None:
        write_json(self.folder / RESULT, {"steps": self.done, "message": self.message})

    def add(self, key: str, figures: Figures, cost: RunCost, notes: Sequence[str] = ()) -> None:
        content = {"figures": {name: each.to_json() for name, each in figures.items()}, "cost": cost.to_json()}
        self.done[key] = {**content, "notes": list(notes), "warnings": self.warnings, "polyseme": __version__}
        self.warnings = []
        self.write()

    @contextlib.contextmanager
    def warned(self) -> Iterator[None]:
        """Within this block, what polyseme warns of is part of the result, too."""
        with warnings.catch_warnings():
            show = warnings.showwarning

            def collect(message: Warning | str, category: type[Warning], *place: Any) -> None:
                if issubclass(category, PolysemeWarning):
                    self.warnings.append(str(message))
                show(message, category, *place)

            warnings.showwarning = collect  # type: ignore[assignment]
            yield


def _keys(request: RunRequest) -> list[str]:
    """Under which the result of each step is kept: the run's, then those of what follows it."""
    return [request.verb, *(json.dumps(each, sort_keys=True) for each in request.then)]


def result_of(folder: Path, *, message: str = "") -> RunResult:
    """The results of a run so far; `message`: why its process ended, where that is known."""
    request, steps = RunRequest.read(folder), _Steps.read(folder)
    done = [steps.done[key] for key in _keys(request) if key in steps.done]
    figures: Figures = {}
    cost = RunCost(currency=done[0]["cost"]["currency"]) if done else RunCost()
    for step in done:
        for name, each in step["figures"].items():
            figures[_free(name, figures)] = Figure.from_json(each)
        cost = cost.add(RunCost.from_json(step["cost"]))
    message = message or steps.message
    state: State = "finished" if len(done) == 1 + len(request.then) else "failed" if message else "unfinished"
    return RunResult(
        name=request.name,
        settings=request.settings,
        seed=request.seed,
        folder=str(folder),
        state="unfinished" if message == STOPPED and state == "failed" else state,
        figures=figures,
        cost=cost,
        message="" if state == "finished" else message,
        notes=tuple(note for step in done for note in step["notes"]),
        warnings=tuple(text for step in done for text in step["warnings"]),
        version=done[0]["polyseme"] if done else "",
    )


def _free(name: str, names: Mapping[str, Any]) -> str:
    number = next(number for number in range(1, len(names) + 2) if number == 1 or f"{name} ({number})" not in names)
    return name if name not in names else f"{name} ({max(number, 2)})"


def carry_out(folder: Path, *, started: float | None = None, stop_after: float | None = None, say: Say) -> RunResult:
    """Carry out what is left of a run; one that fails is reported by its result, and raises nothing."""
    request, steps = RunRequest.read(folder), _Steps.read(folder)
    started = time.perf_counter() if started is None else started
    deadline = math.inf if stop_after is None else started + stop_after
    steps.message = ""
    try:
        for key, step in zip(_keys(request), [None, *request.then], strict=True):
            if key in steps.done:
                continue
            if time.perf_counter() > deadline:
                raise PausedError(STOPPED)
            with steps.warned():
                if step is None:
                    steps.add(key, *_FIRST[request.verb](request, folder / PLACE, started, stop_after, say))
                else:
                    say(f"{step[0]} …")
                    steps.add(key, *_follow(request, folder / PLACE, *step))
    except Exception as error:  # noqa: BLE001 - reported with the others' results
        if not isinstance(error, PolysemeError):
            sys.stderr.write(visible(traceback.format_exc()))
        shortage = isinstance(error, torch.OutOfMemoryError) or "too little memory" in str(error)
        text = str(error) if isinstance(error, PolysemeError) else f"{type(error).__name__}: {error}"
        steps.message = f"{text} ({NO_MEMORY})" if shortage else text
        steps.write()
    return result_of(folder)


# --- the command of the sweep -----------------------------------------------------------------------------------------


def _pretrain(
    request: RunRequest, place: Path, started: float, stop_after: float | None, say: Say
) -> tuple[Figures, RunCost]:
    if not ((place / RUN).is_file() and Run.open(place).finished):
        options = _restore_types(request.options, PretrainOptions)
        stops: dict[str, Any] = (
            {} if stop_after is None or options.get("recipe") in COUNTED else {"stop_after": f"{stop_after:g}s"}
        )
        report = lambda each: say(f"step {each.done:,}/{each.n_steps:,}, loss {each.loss:.3f}")  # noqa: E731
        result = pretrain(**options, **stops, seed=request.seed, output=place, on_report=report, started=started)
        if isinstance(result, PausedRun):
            raise PausedError(STOPPED)
    shutil.rmtree(place / CHECKPOINTS, ignore_errors=True)  # a finished run has no use for them
    ledger = Ledger.from_json(load_json(place / LEDGER, kind=dict))
    figures = {} if ledger.held_out is None else {HELD_OUT: Figure(value=ledger.held_out, unit="nats")}
    return figures, RunCost.of(ledger, side_by_side=request.side_by_side)


def _finetune(
    request: RunRequest, place: Path, started: float, stop_after: float | None, say: Say
) -> tuple[Figures, RunCost]:
    if not (place / REPORT).is_file():
        report = lambda each: say(f"step {each.done:,}/{each.n_steps:,}")  # noqa: E731
        finetune(
            **_restore_types(request.options, FinetuneTaskOptions), seeds=[request.seed], output=place, on_report=report
        )
    read = FinetuneReport.from_json(load_json(place / REPORT, kind=dict))
    return finetuning_figures(read), RunCost.of(read.ledger, side_by_side=request.side_by_side)


_FIRST = {"pretrain": _pretrain, "finetune": _finetune}


def _restore_types(options: Mapping[str, Any], record: Any) -> dict[str, Any]:
    """Options from JSON, in which names of files are those, and not texts."""
    files = {each.name for each in fields_of(record) if "Sources" in str(each.type)}

    def name(value: Any) -> Any:
        return [FileName(each) for each in value] if isinstance(value, list) else FileName(value)

    return {key: name(value) if key in files and value is not None else value for key, value in options.items()}


# --- what follows it --------------------------------------------------------------------------------------------------


def _follow(
    request: RunRequest, model: Path, verb: str, options: Mapping[str, Any]
) -> tuple[Figures, RunCost, list[str]]:
    """What a command makes of the run's model; a model that it is not for has no figures, and a note says so."""
    device = find_device(options.get("device") or request.options.get("device") or "auto")
    rates = Rates.of(request.options.get("cost_rates"))
    meter, began = Meter(device, rates=rates), time.perf_counter()
    figures: Figures = {}
    notes: list[str] = []
    try:
        figures = FOLLOWING[verb](model, {"device": device, **options})
    except ModelError as error:
        notes.append(f"{request.name}, {verb}: {error}")
    seconds = time.perf_counter() - began
    ledger = Ledger.of(
        pieces=0, flops=0.0, seconds=seconds, steps=0, device=device, joules=meter.stop(), measured=meter.measured,
        rates=rates,
    )  # fmt: skip
    return figures, RunCost.of(ledger, side_by_side=request.side_by_side), notes


def _evaluate(model: Path, options: Mapping[str, Any]) -> Figures:
    report: Report = evaluate(**options, model=model)
    column = next(iter(report.columns))
    return {
        " ".join(
            [report.evaluation, *([line.name] if len(report.widest) > 1 else []), column.replace("_", " ")]
        ): Figure(value=value, unit="share" if report.shares else "", error=_of_interval(line.figures))
        for line in report.widest
        if (value := line.figures[column]) is not None
    }


def _of_interval(figures: Mapping[str, float | None]) -> float | None:
    """The standard error of a figure with an interval of 95%."""
    low, high = figures.get("low"), figures.get("high")
    return None if low is None or high is None else (high - low) / (2 * 1.96)


def _benchmark(model: Path, options: Mapping[str, Any]) -> Figures:
    report: BenchmarkReport = benchmark(
        **options, model=model, output=model.parent / f"{options['suite']}.json", force=True
    )
    figures: Figures = {}
    errors: dict[str, float | None] = {}
    for task in report.results:
        result = report.result(task)
        value = result.summary().median
        errors[task] = sampling_error(result.metric, value, result.sizes.get(result.split, 0))
        figures[f"{task} {result.metric}"] = Figure(value=value, unit="share", error=errors[task])
    mean = report.mean()
    if mean is not None:
        known = [each for task in report.mean_tasks if (each := errors[task]) is not None]
        error = math.hypot(*known) / len(known) if len(known) == len(report.mean_tasks) else None
        figures = {f"{report.suite} mean": Figure(value=mean, unit="share", error=error), **figures}
    return figures


def finetuning_figures(report: FinetuneReport, task: str = "") -> Figures:
    """The metrics of every split, with their sampling errors; of several seeds their median."""
    return {
        f"{task} {metric} on {split}".lstrip(): Figure(
            value=summary.median, unit="share", error=sampling_error(metric, summary.median, report.sizes.get(split, 0))
        )
        for split in report.splits
        for metric, summary in report.split(split).items()
    }


def _finetuned_further(model: Path, options: Mapping[str, Any]) -> Figures:
    report = finetune(**options, model=model)
    return finetuning_figures(report, report.task)


FOLLOWING: Mapping[str, Callable[[Path, Mapping[str, Any]], Figures]] = {
    "evaluate": _evaluate,
    "benchmark": _benchmark,
    "finetune": _finetuned_further,
}
"""Commands that may follow a run."""


# --- a process of its own ---------------------------------------------------------------------------------------------


def serve(started: float) -> None:
    """A run in a process of its own, which ends with the one that started it; what it says goes there as lines."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that started it decides
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until a process of a sweep that was killed has ended, too
        stop_after = None if math.isinf(seconds) else seconds

        def say(text: str) -> None:
            with contextlib.suppress(BrokenPipeError):
                lines.write(f"{text}\n")

        carry_out(folder, started=started, stop_after=stop_after, say=say)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)

"""`sweep`: a command over a grid of settings and seeds, in one table and one picture."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from polyseme.errors import OptionError, OutputError, PolysemeError, add_note, nearest
from polyseme.files.atomic import check_output, whole_file
from polyseme.files.unfinished_folder import check_ours, discard, has_work, locked, prepare, remove
from polyseme.json_reading import load_json
from polyseme.options import arguments_doc, check_choice, check_names, check_types, signature_of
from polyseme.parts.device import find_device
from polyseme.sweeps.grid import Point, format_value, grid_points, placed
from polyseme.sweeps.run_queue import RunExit, RunQueue, SweepProgress
from polyseme.sweeps.sweep_report import MADE_BY, RunResult, Sweep
from polyseme.training.budget import parse_time
from polyseme.verb_options.evaluation_options import EvaluateOptions
from polyseme.verb_options.sweep_options import SweepOptions
from polyseme.verb_options.task_options import BenchmarkOptions, FinetuneTaskOptions
from polyseme.verbs.benchmark import check_benchmark
from polyseme.verbs.evaluate import check_evaluation
from polyseme.verbs.sweep_run import FOLLOWING, LOG, NO_MEMORY, STOPPED, RunRequest, carry_out, result_of
from polyseme.verbs.swept_verbs import SWEPT, SweptVerb, as_json

ENDING = ".html"
ENDINGS = (".json", ".tsv", ".svg", ENDING)
"""Of the files of a sweep."""
RUNS = ".runs"
"""Of the folder with its runs."""
MOST_ON_A_GPU = 4
GPU_BYTES_PER_RUN = 16 << 30
NOT_DECIDING = ("device", "workers", "cost_rates", "cache", "checkpoint_seconds", "log_every", "tensorboard")
"""Options that do not change the result of a run."""
_THEIRS = {"evaluate": EvaluateOptions, "benchmark": BenchmarkOptions, "finetune": FinetuneTaskOptions}


def _document(function: Callable[..., Sweep]) -> Callable[..., Sweep]:
    """The function with the sweep's own options in its signature and its documentation."""
    (*first, last), own = inspect.signature(function).parameters.values(), signature_of(SweepOptions).parameters
    function.__signature__ = inspect.Signature([*first, *own.values(), last], return_annotation="Sweep")  # type: ignore[attr-defined]
    described = arguments_doc(SweepOptions).removeprefix("Args:\n")
    text = inspect.cleandoc(function.__doc__ or "")
    function.__doc__ = text.replace("    options:", f"{described}\n    options:")
    return function


@_document
def sweep(verb: str, argument: Any = None, /, **options: Any) -> Sweep:
    """Run a command over a grid of settings and seeds, and compare all runs in one table.

    Every run has a folder of its own, and runs go side by side. The same call resumes a sweep that was stopped; with
    further values, rows or seeds it adds runs. A run that fails is reported by its result, and the others go on.

        >>> result = polyseme.sweep("pretrain", "texts/", recipe="bert-tiny", seeds=2,              # doctest: +SKIP
        ...                         over={"mask_rate": [0.05, 0.15, 0.4]}, output="sweep.html")
        >>> result.summary("held-out loss", mask_rate=0.15).mean                                    # doctest: +SKIP

    Args:
        verb: The command: pretrain or finetune.
        argument: Its argument: texts or a corpus; a task.
        options: Any other option of the command, which all runs have.
    """
    swept, own, base = _read(verb, argument, options)
    points = grid_points(own.over, own.rows)
    seeds = _seeds(own.seeds)
    then = [_check_following(each) for each in own.then]
    seconds = None if own.stop_after is None else parse_time(own.stop_after, "stop_after")
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    places = _places(swept, base, points)
    of_points = [_of_point(swept, point, base, places) for point in points]
    device = find_device(base.get("device", "auto"))
    n_runs = len(points) * len(seeds)
    time_budget = swept.has_time_budget(of_points)
    jobs = _jobs(own.jobs, device, n_runs, time_budget=time_budget)
    names = dict.fromkeys(name for point in points for name in point.changes)
    notes = swept.notes(names, places)
    if time_budget and jobs > 1 and device != "cpu":
        notes.append(f"{jobs} runs shared the device, and each had only a part of it within its time.")
    with _folder(own, swept) as folder:
        of_points = swept.shared(of_points, folder, own.progress)
        requests = [
            RunRequest(
                verb=verb,
                name=point.name(seed),
                settings=json.loads(json.dumps(point.settings)),
                seed=seed,
                options=of_point,
                then=then,
                side_by_side=max(jobs, 1) if device != "cpu" else 1,
            )
            for (point, of_point), seed in itertools.product(zip(points, of_points, strict=True), seeds)
        ]
        folders = _write_requests(requests, folder)
        results = _run_all(folders, jobs, deadline, own.on_report)
        result = Sweep(
            verb=verb,
            title=f"{verb} over {', '.join(dict.fromkeys(name for point in points for name in point.settings))}",
            runs=tuple(results[request.name] for request in requests),
            notes=tuple(notes),
        )
        _write(result, own.output)
    return result


# --- what is to be run ------------------------------------------------------------------------------------------------


def _read(verb: str, argument: Any, options: Mapping[str, Any]) -> tuple[SweptVerb, SweepOptions, dict[str, Any]]:
    """The command, the sweep's own options, and those of the command that all runs have."""
    check_choice("command to sweep", verb, SWEPT)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise OptionError("A sweep starts its own processes. Run the command without torchrun.")
    swept, signature = SWEPT[verb], signature_of(SweepOptions)
    own = {name: value for name, value in options.items() if name in signature.parameters}
    theirs = {name: value for name, value in options.items() if name not in own}
    check_names(f"sweep {verb}", theirs, dict.fromkeys([*swept.own, *swept.decided, swept.seed]))
    if "output" not in own:
        raise OptionError("There is no place for the sweep. Name its page with -o NAME.html (output=…).")
    check_types(f"sweep {verb}", signature.bind(**own))
    base = swept.read({**({} if argument is None else {swept.first: argument}), **theirs})
    return swept, SweepOptions(**own), base


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers or len(set(numbers)) < len(numbers):
        raise OptionError(f"The seeds must be a number from 1 on, or different seeds. Got {seeds!r} instead.")
    return numbers


def _places(swept: SweptVerb, base: Mapping[str, Any], points: Sequence[Point]) -> dict[str, Any]:
    """Where each setting that varies belongs."""
    names = list(dict.fromkeys(name for point in points for name in point.changes))
    plain = {name: name.replace("-", "_") for name in names}
    every: dict[str, dict[str, Any]] = {}
    for point in points:
        own = {plain[name]: value for name, value in point.changes.items() if plain[name] in swept.own}
        options = swept.read({**base, **own})
        every[format_value(options)] = options
    decided = [*swept.decided, *signature_of(SweepOptions).parameters, swept.seed]
    return dict(placed(names, swept.own, swept.mappings(every.values()), decided))


def _of_point(swept: SweptVerb, point: Point, base: Mapping[str, Any], places: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a point's runs, checked as far as can be before they begin."""
    options = swept.read(point.options(base, places))
    try:
        swept.check(options)
    except PolysemeError as error:
        settings = ", ".join(f"{name}={format_value(value)}" for name, value in point.settings.items())
        raise type(error)(f"Of the sweep, {settings}: {error}") from None
    return options


def _check_following(command: Any) -> tuple[str, dict[str, Any]]:
    """A command that follows each run, with its options, checked."""
    if not (isinstance(command, Sequence) and len(command) == 2 and isinstance(command[1], Mapping)):
        raise OptionError(
            f"What follows a run is a pair of a command and its options: ('evaluate', {{'name': 'blimp'}}). Got "
            f"{command!r} instead."
        )
    verb, options = command
    if verb not in FOLLOWING:
        raise OptionError(f"{verb!r} cannot follow a run. {nearest(verb, FOLLOWING)}")
    for name in ("model", "output", "force"):
        if name in options:
            raise OptionError(f"The option {name!r} of {verb} is set by the sweep itself. Leave it out.")
    signature = signature_of(_THEIRS[verb])
    check_names(verb, options, signature.parameters)
    check_types(verb, signature.bind_partial(**options))
    read = {name: as_json(name, value) for name, value in options.items()}
    try:
        signature.bind(**read)
    except TypeError as error:
        raise OptionError(f"What follows a run, {verb}: {error}. Give it.") from None
    _CHECKS[verb](read)
    return verb, read


_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
    "evaluate": lambda options: check_evaluation(EvaluateOptions(**options)),
    "benchmark": lambda options: check_benchmark(BenchmarkOptions(**options)),
    "finetune": SWEPT["finetune"].check,
}


def _jobs(requested: int | None, device: str, n_runs: int, *, time_budget: bool) -> int:
    """How many runs go side by side."""
    if requested is not None:
        if requested < 0:
            raise OptionError(f"The number of jobs must be 0 or more. Got {requested} instead.")
        return min(requested, n_runs)
    if torch.device(device).type != "cuda":
        return min(torch.get_num_threads(), n_runs)
    memory = torch.cuda.get_device_properties(torch.device(device)).total_memory
    return 1 if time_budget else max(min(MOST_ON_A_GPU, memory // GPU_BYTES_PER_RUN, n_runs), 1)


# --- the folder -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _folder(options: SweepOptions, swept: SweptVerb) -> Iterator[Path]:
    """The folder of the runs: a new one, or that of a sweep which was stopped or is to be continued."""
    output = Path(options.output)
    if output.suffix != ENDING:
        raise OptionError(f"The output of a sweep is a page, NAME{ENDING}. Got {str(output)!r} instead.")
    folder = output.with_suffix(RUNS)
    check_ours(folder, noun="sweep")
    files = [output.with_suffix(ending) for ending in ENDINGS]
    for file in files:
        check_output(file, force=options.force or _is_ours(output))
    if options.force and folder.exists():
        with locked(folder, noun="sweep"):
            discard(folder)
    with locked(folder, noun="sweep"):
        prepare(folder, {"sweep": swept.name}, noun="sweep", force=False)
        try:
            yield folder
        except BaseException as error:
            if has_work(folder):
                add_note(error, f"Finished runs are kept in {folder}: the same command resumes the sweep.")
            else:
                remove(folder)
            raise


def _is_ours(output: Path) -> bool:
    """Whether a sweep has written these files, and its runs are still there."""
    try:
        content = load_json(output.with_suffix(".json"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and MADE_BY in content and output.with_suffix(RUNS).is_dir()


def _write_requests(requests: Sequence[RunRequest], folder: Path) -> dict[str, Path]:
    """The folders of the runs; one that is there with other options is refused."""
    folders = {request.name: folder / request.name for request in requests}
    for request in requests:
        place = folders[request.name]
        if (place / "request.json").is_file():
            _refuse_others(place, RunRequest.read(place), request)
    for request in requests:
        request.write(folders[request.name])
    return folders


def _refuse_others(place: Path, before: RunRequest, request: RunRequest) -> None:
    theirs, mine = (
        {name: value for name, value in each.options.items() if name not in NOT_DECIDING} for each in (before, request)
    )
    different = [
        f"{name} was {format_value(theirs.get(name))} and is {format_value(mine.get(name))}"
        for name in sorted({*theirs, *mine})
        if theirs.get(name) != mine.get(name)
    ]
    if different:
        raise OutputError(
            f"{place} is a run with other settings: {'; '.join(different)}. Give those it had, choose another name for "
            "the output, or begin the sweep from scratch with --force (force=True)."
        )


def _write(result: Sweep, output: Any) -> None:
    content = {
        ".html": result.page,
        ".json": lambda: json.dumps(result.to_json(), indent=2, ensure_ascii=False) + "\n",
        ".tsv": result.tsv,
        ".svg": result.picture,
    }
    for ending in ENDINGS:
        with whole_file(Path(output).with_suffix(ending), force=True) as path:
            path.write_text(content[ending](), encoding="utf-8")


# --- the runs ---------------------------------------------------------------------------------------------------------


def _run_all(
    folders: Mapping[str, Path], jobs: int, deadline: float, on_report: Callable[[SweepProgress], None] | None
) -> dict[str, RunResult]:
    """Carry out what is left; the results of all by name."""
    results = {name: result_of(folder) for name, folder in folders.items()}
    running: dict[str, str] = {}

    def report(ended: str = "") -> None:
        if on_report is not None:
            done = [each for each in results.values() if each.state == "finished"]
            failed = [each for each in results.values() if each.state == "failed" and each.name not in running]
            on_report(SweepProgress(len(results), len(done), len(failed), dict(running), ended))

    def say(name: str, line: str) -> None:
        running[name] = line
        report()

    def end(name: str, how_ended: RunExit | None) -> None:
        running.pop(name, None)
        message = ""
        if how_ended is not None and how_ended.exit_code != 0:
            message = STOPPED if how_ended.stopped else _fate(folders[name], how_ended.exit_code)
        results[name] = result_of(folders[name], message=message)
        report(_figures_of(results[name]))

    left = {name: folders[name] for name, each in results.items() if each.state != "finished"}
    if jobs == 0:
        for name, folder in left.items():
            seconds = deadline - time.monotonic()
            if seconds > 0:
                say(name, "")
                stop_after = None if math.isinf(seconds) else seconds
                carry_out(folder, stop_after=stop_after, say=functools.partial(say, name))
                end(name, None)
        return results
    threads = max(torch.get_num_threads() // jobs, 1)
    RunQueue(jobs, threads, deadline, say, LOG).run(left, end)
    crowded = {name: folders[name] for name in left if NO_MEMORY in results[name].message}
    if crowded and jobs > 1:  # alone, they may fit
        RunQueue(1, torch.get_num_threads(), deadline, say, LOG).run(crowded, end)
    return results


def _figures_of(result: RunResult) -> str:
    if result.state != "finished":
        return f"{result.name}: {result.state}{f' ({result.message})' if result.message else ''}"
    figures = [f"{name} {each.value:.4g}" for name, each in result.figures.items()]
    return f"{result.name}: {', '.join(figures) or 'finished'}"


def _fate(folder: Path, exit_code: int) -> str:
    ending = f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
    return f"Its process {ending}; see {folder / LOG}."

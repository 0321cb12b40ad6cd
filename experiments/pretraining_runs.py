"""What the pretraining experiments share: a run that is trained in slices, and what came of it in figures."""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tables import data_folder, machine

import polyseme
from polyseme.corpus.corpus import Corpus
from polyseme.errors import ModelError
from polyseme.metrics.evaluation_report import Report
from polyseme.scoring.choose_scorer import can_score
from polyseme.sweeps.run_queue import SweepProgress
from polyseme.sweeps.sweep_report import Sweep
from polyseme.training.budget import parse_time
from polyseme.training.effects import read_log
from polyseme.training.energy_ledger import Ledger
from polyseme.training.run_folder import LEDGER, RUN

PREDICTING = (
    ("masked",),
    ("causal",),
    ("forward", "backward"),
    ("streams",),
    ("permuted",),
    ("denoising",),
    ("spans",),
)
"""The parts of losses that predict pieces; those of one group count alike."""
CLOSED = ("news-01",)
"""Texts of the data folder without an open license."""
ROWS_AT_ONCE = 256
"""Rows of 128 that a run of a sweep has on its device at once, so that eight runs fit a GPU of 140 GB."""
WITHOUT_A_SOURCE = "it reads a source, so a sentence alone has no likelihood"


class Clock:
    """The time that this command may take: a slice, counted from when the script began."""

    def __init__(self, started: float, seconds: float | None) -> None:
        self.started = started
        self.seconds = seconds

    def has(self, seconds: float) -> bool:
        """Whether so much time is left."""
        return self.seconds is None or time.perf_counter() - self.started + seconds <= self.seconds

    @property
    def stop_after(self) -> str | None:
        """The slice as `pretrain` takes it."""
        return None if self.seconds is None else f"{self.seconds:g}s"


def with_stored_runs(sweep: Sweep, stored: Sweep, rows: Sequence[str]) -> Sweep:
    """The sweep with the runs that earlier commands, with other rows or on another machine, have finished."""
    runs = {run.name: run for run in sweep.runs}
    runs |= {run.name: run for run in stored.runs if run.name not in runs or runs[run.name].state != "finished"}
    ordered = sorted(runs.values(), key=lambda run: (rows.index(run.settings["row"]), run.seed))
    return dataclasses.replace(sweep, runs=tuple(ordered))


def what_is_left(slice_of_time: str | None, started: float) -> str | None:
    """A slice without the time since `started` (by `time.monotonic`), as `sweep` takes it."""
    if slice_of_time is None:
        return None
    return f"{max(parse_time(slice_of_time, 'stop_after') - (time.monotonic() - started), 1.0):.0f}s"


def print_ended(progress: SweepProgress) -> None:
    """A line for each run of a sweep that has ended."""
    if progress.ended:
        print(f"{progress.n_done} of {progress.n_runs}. {progress.ended}", flush=True)


def corpus_files(leave_out: Sequence[str] = ()) -> list[str]:
    """The texts of the data folder, without those whose names begin like this."""
    files = sorted((data_folder().parent / "corpus").glob("*.txt.xz"))
    chosen = [str(file) for file in files if not file.name.startswith(tuple(leave_out))]
    if not chosen:
        raise SystemExit(f"There are no texts (*.txt.xz) in {data_folder().parent / 'corpus'}.")
    return chosen


def is_finished(run: Path) -> bool:
    """Whether a run has reached its end."""
    return (run / RUN).is_file() and bool(json.loads((run / RUN).read_text())["finished"])


def train(run: Path, texts: Sequence[str], clock: Clock, **settings: Any) -> bool:
    """Train a run to its end or to the end of the slice, from where it is; whether it is finished.

    The first slice counts from the start of the script, so that imports and the building of the corpus are in the
    budget.
    """
    if is_finished(run):
        return True
    if (run / RUN).is_file():
        result = polyseme.pretrain(resume=run, stop_after=clock.stop_after, started=clock.started)
    else:
        result = polyseme.pretrain(
            list(texts), output=run, stop_after=clock.stop_after, started=clock.started, **settings
        )
    return isinstance(result, Ledger)


def figures_of(run: Path) -> dict[str, Any]:
    """A finished run in figures: held-out loss beside the unigram entropy, size, cost, and its curve."""
    content = json.loads((run / RUN).read_text())
    ledger = Ledger.from_json(json.loads((run / LEDGER).read_text()))
    log = read_log(run)
    job = content["settings"]
    corpus = Corpus.open(run / "corpus" if (run / "corpus").is_dir() else job["corpus"])
    held_out = next(line["held_out"] for line in reversed(log) if "held_out" in line)
    if ledger.held_out is None or ledger.unigram_entropy is None:
        raise SystemExit(f"{run} has no held-out loss that can be compared with the unigram entropy.")
    return {
        "settings": job,
        "n_steps": content["n_steps"],
        "versions": content["versions"],
        "machine": machine("torch"),
        "parameters": {
            folder.name: polyseme.load(folder, device="cpu").bundle.n_parameters() for folder in model_folders(run)
        },
        "train_pieces": corpus.n_pieces("train"),
        "epochs": ledger.pieces / max(corpus.n_pieces("train"), 1),
        "vocabulary": corpus.tokenizer.n_pieces,
        "held_out": held_out,
        "held_out_loss": ledger.held_out,
        "unigram_entropy": ledger.unigram_entropy,
        "below_unigram": ledger.unigram_entropy - ledger.held_out,
        "pieces_per_second": ledger.pieces / ledger.seconds,
        "curve": [
            [line["step"], line["pieces"], line["seconds"], predicting(line["held_out"])]
            for line in log
            if "held_out" in line
        ],
        "ledger": ledger.to_json(),
    }


def predicting(losses: Mapping[str, float]) -> float:
    """The part of a loss that predicts pieces: of ELECTRA the generator's, of two directions the mean of both."""
    for names in PREDICTING:
        if all(name in losses for name in names):
            return statistics.fmean(losses[name] for name in names)
    raise SystemExit(f"No part of the loss predicts pieces: {', '.join(losses)}.")


def model_folders(run: Path) -> list[Path]:
    """The models that a run has written: its own, and a generator's."""
    return [run / name for name in ("model", "generator") if (run / name).is_dir()]


def blimp_of(run: Path, pairs: int | None = None) -> dict[str, Any]:
    """BLiMP by BabyLM's convention: of masked models with one piece hidden at a time, and with whole words hidden."""
    for folder in model_folders(run):
        bundle = polyseme.load(folder, device="cpu").bundle
        if bundle.decoder is not None:
            return {"missing": WITHOUT_A_SOURCE}
        if can_score(bundle):
            hides = ("piece", "word") if bundle.config.direction == "both" else (None,)
            return {"model": folder.name, **{hide or "causal": _blimp(folder, hide, pairs) for hide in hides}}
    return {"missing": "none of the run's models predicts pieces"}


def _blimp(folder: Path, hide: str | None, pairs: int | None) -> dict[str, Any]:
    on_gpu = torch.cuda.is_available()
    report: Report = polyseme.evaluate(
        "babylm", model=folder, data=data_folder(), hide=hide, pairs=pairs, dtype="bf16" if on_gpu else "fp32"
    )
    assert report.cost is not None
    return {
        **{name: report["blimp"][name] for name in ("accuracy", "low", "high", "ties")},
        "phenomena": {line.name: line.figures["accuracy"] for line in report.lines if line.level == "phenomenon"},
        "method": report.method,
        "notes": list(report.notes),
        "seconds": report.cost.seconds,
        "dtype": "bf16" if on_gpu else "fp32",
    }


def glue_of(run: Path, tasks: Sequence[str], seeds: int, clock: Clock, reserve: float) -> dict[str, Any] | None:
    """The mean over tasks on dev, task by task as long as `reserve` seconds are left; None: not all are done yet."""
    model = run / "model"
    for number in range(len(tasks)):
        if not clock.has(reserve):
            return None
        try:
            report = polyseme.benchmark(
                "glue", model=model, data=data_folder(), tasks=tasks[: number + 1], seeds=seeds, output=run / "glue"
            )
        except ModelError as error:
            return {"missing": str(error)}
    return report.to_json()

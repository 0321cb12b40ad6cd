"""Where the experiment of a claim runs: its folder, its data and seeds, its size, and the time that is left.

Runs are kept in one folder, by name; claims that name the same run share it. A finished run is not repeated.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyseme import __version__
from polyseme.claims.data_sources import DATA
from polyseme.errors import InputError, PolysemeError
from polyseme.json_reading import load_json
from polyseme.parts.device import find_device
from polyseme.sweeps.grid import ROW
from polyseme.sweeps.run_queue import SweepProgress
from polyseme.sweeps.sweep_report import Figure, RunCost, RunResult
from polyseme.training.energy_ledger import Ledger
from polyseme.training.energy_meter import Meter
from polyseme.training.run_folder import write_json
from polyseme.types import Progress
from polyseme.verbs.finetune import finetune
from polyseme.verbs.sweep import sweep
from polyseme.verbs.sweep_run import PLACE, STOPPED, PausedError, finetuning_figures

MEASURED = "measured"
"""The folder with what was measured besides sweeps."""
Figures = Mapping[str, Figure]


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Folder, data, size and remaining time of the experiment of one claim."""

    claim: str
    folder: Path
    data: Path
    n_seeds: int
    small: bool = False
    factor: float = 1.0
    """The budget, as a multiple of the smallest honest one."""
    device: str = "auto"
    jobs: int | None = None
    deadline: float = math.inf
    """By `time.monotonic`."""
    on_report: Callable[[SweepProgress], None] | None = None
    progress: Progress | None = None

    @property
    def tasks(self) -> str:
        """The folder of the tasks' data."""
        return str(self.data / "tasks")

    @property
    def seeds(self) -> range:
        return range(self.n_seeds)

    def texts(self, *names: str) -> list[str]:
        """Files of raw text by name; without names, all texts but news-01, which has no open license."""
        if names:
            return [str(self.file("corpus", f"{name}.")) for name in names]
        every = sorted((self.data / "corpus").glob("*.xz"))
        return [str(each) for each in every if "news-01" not in each.name]

    def file(self, folder: str, beginning: str) -> Path:
        """The file of a folder of the data whose name begins so."""
        matches = sorted((self.data / folder).glob(f"{beginning}*"))
        if len(matches) != 1:
            raise InputError(
                f"The claim {self.claim!r} needs one file whose name begins with {beginning!r} in "
                f"{self.data / folder}, and there are {len(matches)}. That folder is {DATA[folder]}."
            )
        return matches[0]

    def budget(self, amount: float, unit: str) -> str:
        """An amount of work, scaled by the budget of the claim."""
        return f"{amount * self.factor:.6g}{unit}"

    def sweep(self, name: str, verb: str, argument: Any, **options: Any) -> list[RunResult]:
        """The finished runs of a sweep; claims that use the same name share its folder."""
        seconds = self._seconds_left()
        result = sweep(
            verb,
            argument,
            **{"seeds": self.n_seeds, **options},
            output=self.folder / f"{name}.html",
            device=self.device,
            jobs=self.jobs,
            stop_after=None if math.isinf(seconds) else f"{seconds:.0f}s",
            on_report=self.on_report,
            **({"progress": self.progress} if verb == "pretrain" else {}),
        )
        failed = result.of_state("failed")
        if failed:
            raise PolysemeError(f"Of the claim {self.claim}, the run {failed[0].name} failed: {failed[0].message}")
        if result.of_state("unfinished"):
            raise PausedError(STOPPED)
        return [dataclasses.replace(run, folder=str(Path(run.folder).relative_to(self.folder))) for run in result.runs]

    def model(self, run: RunResult) -> Path:
        """The folder of the model of a run."""
        return self.folder / run.folder / PLACE

    def measure_rows(
        self, rows: Iterable[str], figures: Callable[[str, int], Figures], *, shared: str = ""
    ) -> list[RunResult]:
        """Rows that no sweep has, with every seed; `figures` computes those of a row and a seed (see `measure`)."""
        return [
            self.measure(row, seed, functools.partial(figures, row, seed), shared=shared)
            for row in rows
            for seed in self.seeds
        ]

    def measure(
        self, row: str, seed: int, figures: Callable[[], Figures], *, shared: str = "", notes: Sequence[str] = ()
    ) -> RunResult:
        """A row that no sweep has, with one seed: figures and cost, which are computed once and stored.

        Args:
            row: the name of the row in tables.
            seed: the seed.
            figures: a function that computes the figures.
            shared: the name under which several claims share the measurement; empty: only this claim uses it.
            notes: what readers must know of the figures; `figures` may add to it.
        """
        name = f"{shared or self.claim}.{row}.{seed}".replace("/", "-")
        file = self.folder / MEASURED / f"{name}.json"
        if not file.is_file():
            self._seconds_left()  # pauses if there are none
            meter, began = Meter(self._device()), time.perf_counter()
            values = figures()
            ledger = Ledger.of(
                pieces=0, flops=0.0, seconds=time.perf_counter() - began, steps=0, device=self._device(),
                joules=meter.stop(), measured=meter.measured,
            )  # fmt: skip
            record = RunResult(
                name=name,
                settings={ROW: row},
                seed=seed,
                folder=f"{MEASURED}/{file.name}",
                state="finished",
                figures=values,
                cost=RunCost.of(ledger),
                notes=tuple(notes),
                version=__version__,
            )
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, json.loads(json.dumps(dataclasses.asdict(record))))
        try:
            return RunResult.from_json(load_json(file, kind=dict))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{file} is damaged ({type(error).__name__}: {error}). Remove it, and the same command measures it "
                "again."
            ) from None

    def finetune(self, row: str, seed: int, task: str, *, shared: str = "", **options: Any) -> RunResult:
        """A row that is a model fitted to a task, with that seed; a note says if it learned nothing."""
        notes: list[str] = []

        def figures() -> Figures:
            report = finetune(task, data=self.tasks, seeds=[seed], device=self.device, **options)
            if report.n_failed:
                notes.append(f"{row}, seed {seed}: no better on dev than {report.baseline_name or 'knowing no text'}.")
            return finetuning_figures(report, task)

        return self.measure(row, seed, figures, shared=shared, notes=notes)

    def _device(self) -> str:
        return str(find_device(self.device))

    def _seconds_left(self) -> float:
        seconds = self.deadline - time.monotonic()
        if seconds < 1:
            raise PausedError(STOPPED)
        return seconds


def pretraining_rows(runs: Sequence[RunResult]) -> list[RunResult]:
    """Runs of pretraining as rows beside those of their models on a task, with their losses and costs."""
    return [dataclasses.replace(run, settings={ROW: f"{run.settings[ROW]}: pretraining"}) for run in runs]


def with_measured(run: RunResult, measured: RunResult) -> RunResult:
    """A run together with later measurements: their figures, and their cost."""
    return dataclasses.replace(run, figures={**run.figures, **measured.figures}, cost=run.cost.add(measured.cost))


def of_row(runs: Sequence[RunResult], row: str, seed: int) -> RunResult:
    """The run of a row with a seed."""
    return next(run for run in runs if run.settings[ROW] == row and run.seed == seed)

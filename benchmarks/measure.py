"""What the benchmarks share: alternating runs, figures beside their floors, and the line that names the machine.

A script prints its tables. With `--figures FILE` it also appends each of its figures to FILE as a line of JSON, which
is how `quick.py` reads them. A script that cannot run here (no GPU, no data, no peer) says so in a sentence and ends
with code 0, so that `make bench` goes through all of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measured figure, and its floor where it has one."""

    what: str
    peer: str
    """What it was compared with, and with which settings."""
    value: float
    unit: str = "×"
    floor: float | None = None
    aim: float | None = None
    at_most: bool = False
    """The floor is the largest accepted value, not the smallest."""
    rounds: tuple[float, ...] = ()
    """The same figure in each of the rounds whose medians were compared."""
    note: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the floor is reached; None without a floor."""
        if self.floor is None:
            return None
        return self.value <= self.floor if self.at_most else self.value >= self.floor

    def shown(self) -> str:
        """The value, with the lowest and the highest of the rounds."""
        digits = 0 if self.unit == "ms" else 2
        spread = f" ({min(self.rounds):.{digits}f}–{max(self.rounds):.{digits}f})" if len(self.rounds) > 1 else ""
        return f"{self.value:.{digits}f} {self.unit}{spread}"

    def floor_shown(self) -> str:
        """The floor and the aim; empty without a floor."""
        if self.floor is None:
            return ""
        aim = "" if self.aim is None else f", aim {self.aim:g}"
        return f"{'at most ' if self.at_most else ''}{self.floor:g}{aim}"

    def line(self) -> str:
        """All of it in one line."""
        beside = f" [{self.peer}]" if self.peer else ""
        floor = "" if self.floor is None else f"; floor {self.floor_shown()}: {'' if self.reached else 'not '}reached"
        return f"{self.what}: {self.shown()}{beside}{floor}{f'; {self.note}' if self.note else ''}"


def ratio(
    every: Mapping[str, Sequence[float]], over: str, under: str, *, what: str, peer: str, floor: float | None = None,
    aim: float | None = None, at_most: bool = False, note: str = "",
) -> Figure:  # fmt: skip
    """The median of one route divided by that of another. `every` has the seconds of each round, by route."""
    pairs = zip(every[over], every[under], strict=True)
    return Figure(
        what=what,
        peer=peer,
        value=statistics.median(every[over]) / statistics.median(every[under]),
        rounds=tuple(above / below for above, below in pairs),
        floor=floor,
        aim=aim,
        at_most=at_most,
        note=note,
    )


def add_figures_option(parser: argparse.ArgumentParser) -> None:
    """`--figures FILE`, which `publish` takes."""
    parser.add_argument(
        "--figures", type=Path, metavar="FILE", help="append each figure to this file, as a line of JSON"
    )


def publish(figures: Iterable[Figure], file: Path | None) -> None:
    """Print figures, and append them to the file of `--figures`."""
    for figure in figures:
        print(figure.line(), flush=True)
        if file is not None:
            with file.open("a", encoding="utf-8") as opened:
                opened.write(json.dumps(dataclasses.asdict(figure)) + "\n")


def read_figures(lines: Iterable[str]) -> list[Figure]:
    """Figures from the lines that `publish` wrote."""
    return [Figure(**{**fields, "rounds": tuple(fields["rounds"])}) for fields in map(json.loads, lines)]


def skip(reason: str) -> NoReturn:
    """End the script without failing."""
    print(f"skipped: {reason}")
    raise SystemExit(0)


def need(*packages: str) -> None:
    """End the script without failing if a package is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            skip(f"{package} is not installed")


def data_folder(*within: str) -> Path:
    """The folder of POLYSEME_DATA, or one within it; where there is none, the script ends without failing."""
    if "POLYSEME_DATA" not in os.environ:
        skip("POLYSEME_DATA does not name a folder of data")
    folder = Path(os.environ["POLYSEME_DATA"], *within)
    if not folder.exists():
        skip(f"there is no {folder}")
    return folder


def alternate(
    runs: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm_ups: int | Mapping[str, int] = 1,
    processor: dict[str, float] | None = None,
    every: dict[str, list[float]] | None = None,
) -> dict[str, float]:
    """Median seconds of each route. Routes alternate, so that other load on the machine affects all alike.

    Args:
        runs: the routes.
        rounds: how often each is timed.
        warm_ups: how often each route runs before it is timed; by route, where they differ (1 for those not named).
        processor: takes the median seconds of the processor, which count all threads and ended child processes, and no
            waiting.
        every: takes the seconds of each round.
    """
    for name, run in runs.items():
        for _ in range(warm_ups if isinstance(warm_ups, int) else warm_ups.get(name, 1)):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    of_processor: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            started, processor_started = time.perf_counter(), processor_seconds()
            run()
            seconds[name].append(time.perf_counter() - started)
            of_processor[name].append(processor_seconds() - processor_started)
    if processor is not None:
        processor.update({name: statistics.median(each) for name, each in of_processor.items()})
    if every is not None:
        every.update(seconds)
    return {name: statistics.median(each) for name, each in seconds.items()}


def processor_seconds() -> float:
    """Seconds of the processor that this process and its ended children have used."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def machine(*packages: str) -> str:
    """Processor, threads, Python and package versions."""
    import torch

    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        name = next(
            (line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line), name
        )
    if torch.cuda.is_available():
        name = f"{torch.cuda.get_device_name()}, {name}"
    installed = [package for package in packages if importlib.util.find_spec(package.replace("-", "_")) is not None]
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in installed)
    return f"{name}, {torch.get_num_threads()} threads, Python {platform.python_version()}, {versions}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

"""What the benchmarks share: alternating runs, medians, and the line that names machine and versions."""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def alternate(
    runs: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm_ups: int = 1,
    processor: dict[str, float] | None = None,
) -> dict[str, float]:
    """Median seconds of each route. Routes alternate, so that other load on the machine affects all alike.

    `processor` takes the median seconds of the processor, which count all threads and no waiting.
    """
    for run in runs.values():
        for _ in range(warm_ups):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    of_processor: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            started, processor_started = time.perf_counter(), time.process_time()
            run()
            seconds[name].append(time.perf_counter() - started)
            of_processor[name].append(time.process_time() - processor_started)
    if processor is not None:
        processor.update({name: statistics.median(each) for name, each in of_processor.items()})
    return {name: statistics.median(each) for name, each in seconds.items()}


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
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
    return f"{name}, {torch.get_num_threads()} threads, Python {platform.python_version()}, {versions}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

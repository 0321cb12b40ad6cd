"""What benchmarks share that have one go at a GPU: parts of which some may fail, and the kernels of a step."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import machine


def since_start() -> float:
    """Seconds since this process began, imports and all; 0 where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError):
        return 0.0
    return seconds if 0 < seconds < 120 else 0.0


class Report:
    """Parts of the run: each result is printed and written as soon as it is there, and so is a failure."""

    def __init__(self, name: str, out: Path | None, until: float) -> None:
        if out is None and "OUT" in os.environ:
            out = Path(os.environ["OUT"]) / f"{name}.json"
        self.out = out
        self.until = until
        self.results: list[dict[str, Any]] = []
        self.failed = False

    def part(self, name: str, run: Callable[[], dict[str, Any]], *, least: float = 2) -> dict[str, Any] | None:
        """The result of `run`; None where it failed, or where less than `least` seconds are left."""
        started = time.monotonic()
        if self.until - started < least:
            self.add({"part": name, "error": "there was no time left"})
            self.failed = True
            return None
        try:
            result = run()
        except Exception:  # noqa: BLE001 - whatever it was, the next part may well run
            self.failed = True
            self.add({"part": name, "error": traceback.format_exc()[-3000:]})
            print(traceback.format_exc(), flush=True)
            return None
        self.add({"part": name, "seconds": round(time.monotonic() - started, 1), **result})
        return result

    def add(self, result: dict[str, Any]) -> None:
        self.results.append(result)
        shown = {name: value for name, value in result.items() if not isinstance(value, list) or len(value) < 9}
        print(json.dumps(shown)[:600], flush=True)
        if self.out is not None:
            self.out.write_text(json.dumps({"machine": machine("torch"), "results": self.results}))


def kernels_of(replay: Callable[[], None], n_steps: int) -> list[list[str]]:
    """The kernels of a step that take longest in all: name, how many, microseconds of one and of all."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        replay()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    kernels: dict[str, list[float]] = {}
    for event in profile.events() or []:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels.setdefault(event.name[:70], []).append(event.device_time)
    longest = sorted(kernels.items(), key=lambda item: -sum(item[1]))
    everything = [time for each in kernels.values() for time in each]
    return [
        [name, f"{len(each) / n_steps:g}", f"{sum(each) / len(each):.2f}", f"{sum(each) / n_steps:.1f}"]
        for name, each in [*longest[:15], ("all", everything)]
    ]

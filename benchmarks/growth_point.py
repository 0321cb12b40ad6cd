"""The points of a job of growth.py, each in a process of its own: time and memory of one call.

    python benchmarks/growth_point.py JOB SIZE,… FOLDER [TEXTS...]     # prints a JSON object per size

The process loads modules, and is forked for each size. Inputs are made by yet another process than the one that
measures, so that their making leaves nothing in its memory.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from growth_inputs import Place
from growth_jobs import JOBS, Job, Seconds, cpu_seconds
from measure import machine

PAGE_BYTES = resource.getpagesize()
SAMPLE_SECONDS = 0.05


def measure(job: Job, size: int, place: Place) -> dict[str, float]:
    """Seconds and memory of one call; `private` is memory that is not pages of mapped files.

    The CPU time of looking at memory is not counted, except in steps of training, which measure themselves.
    """
    call = job.prepare(place, size)
    if job.warms_up:
        job.prepare(place, job.sizes[0]).run()
    before, private = resident()
    privates, ended, of_sampling = [private], threading.Event(), [0.0]

    def sample() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            privates.append(resident()[1])
            of_sampling[0] = time.thread_time()

    thread = threading.Thread(target=sample)
    forget_peak()
    thread.start()
    cpu, wall = cpu_seconds(), time.perf_counter()
    result = call.run()
    privates.append(resident()[1])  # while the result is there
    cpu, wall = cpu_seconds() - cpu - of_sampling[0], time.perf_counter() - wall
    spent = Seconds(cpu / call.n_times, wall / call.n_times)
    peak = peak_bytes()
    ended.set()
    thread.join()
    spent = result if isinstance(result, Seconds) else spent
    return {
        "size": size,
        "cpu_seconds": spent.cpu,
        "seconds": spent.wall,
        "before": before,
        "peak": peak,
        "private_before": private,
        "private": max(privates),
    }


def resident() -> tuple[int, int]:
    """Resident memory in bytes, and what of it is not pages of mapped files."""
    pages = [int(each) for each in Path("/proc/self/statm").read_text().split()]
    return pages[1] * PAGE_BYTES, (pages[1] - pages[2]) * PAGE_BYTES


def peak_bytes() -> int:
    """The highest resident memory since `forget_peak`, as the kernel counts it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def forget_peak() -> None:
    """Let the peak be what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def in_child(work: Callable[[], object]) -> None:
    """Do this in a forked process; end with it if it fails."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        try:
            work()
            sys.stdout.flush()
        except SystemExit as error:
            print(error, file=sys.stderr)
            os._exit(1)
        except BaseException:  # noqa: BLE001 - nothing may leave a forked process but its exit code
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(1)


def main() -> None:
    """Measure sizes of a job."""
    name, sizes, folder, *texts = sys.argv[1:]
    place, job = Place(Path(folder), [Path(each) for each in texts]), JOBS[name]
    place.folder.mkdir(parents=True, exist_ok=True)
    try:
        in_child(lambda: job.prepare(place, job.sizes[0]))
        job.prepare(place, job.sizes[0])  # for the modules that this loads
        about = {"machine": machine("torch")}
        for size in map(int, sizes.split(",")):
            in_child(lambda size=size: job.prepare(place, size))
            in_child(lambda size=size: print(json.dumps({**measure(job, size, place), **about})))
            place.clear()
    finally:
        place.clear()


if __name__ == "__main__":
    main()

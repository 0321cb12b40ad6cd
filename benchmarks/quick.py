"""Every ratio of a CPU beside its peer and its floor, in one table, in at most ten minutes on two cores.

Each part is one of the other scripts with a smaller load, in a process of its own, with its own time limit; the command
is printed, so that a part can be repeated alone or with a larger load. A peer stands as it comes and at its best
ordinary settings (sorted, grouped, compiled), with a row for each. Figures are printed as soon as they are known, and
all of them at the end: the ratio of medians (in parentheses the lowest and the highest of the rounds), the floor and
whether it is reached, and the seconds of the part. What is not measured at this load is listed below the table.

A figure below its floor is reported and is no failure. A part that fails is reported with its error, and the next one
runs; the exit status is 1 then. `make bench` runs all scripts with their whole load, `gpu_floors.py` the figures of a
GPU, and `generate.py --device cuda` generation on one.

    POLYSEME_DATA=... python benchmarks/quick.py [--only PART ...] [--json FILE] [--seconds 600] [--cores 2]
    POLYSEME_DATA=... python benchmarks/quick.py --only embed generate --json ratios.json
    make bench-quick ONLY="embed generate" JSON=ratios.json

`--tiny` runs all parts with next to no load, to try the script itself; its ratios mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from measure import Figure, read_figures, table
from quick_parts import GPU_SCRIPTS, NOT_RATIOS, PARTS, Part

FOLDER = Path(__file__).resolve().parent


PACKAGES = ("torch", "transformers", "sentence-transformers", "datasets", "gensim")
LEAST = 5.0
"""Seconds that must be left for a part to be started."""


@dataclass(kw_only=True)
class Result:
    """What came of a part."""

    part: Part
    command: str
    outcome: Literal["measured", "skipped", "stopped", "failed", "interrupted"] = "measured"
    reason: str = ""
    figures: list[Figure] = field(default_factory=list)
    seconds: float = 0.0
    output: str = ""


def run_part(part: Part, *, tiny: bool, limit: float) -> Result:
    """Run its script, and print its figures while it runs."""
    options = part.options(tiny=tiny)
    result = Result(part=part, command=shown_command(part, tiny=tiny))
    compiled = Path(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
    # What a stopped script leaves is removed with the folder; compiled code is used again, as torch does by itself.
    places = {"TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(compiled))}
    began, pending = time.monotonic(), ""
    with tempfile.TemporaryDirectory() as place:
        figures, output = Path(place, "figures.jsonl"), Path(place, "output.txt")
        figures.touch()
        with figures.open(encoding="utf-8") as known, output.open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, str(FOLDER / part.script), *options, "--figures", str(figures)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **places, "TMPDIR": place, **part.environment},
                start_new_session=True,  # so that it is stopped with the processes that it started
            )
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=min(0.5, max(began + limit - time.monotonic(), 0.0)))
                    whole, _, pending = (pending + known.read()).rpartition("\n")
                    collect(result, whole.splitlines())
                    if process.returncode is not None or time.monotonic() - began >= limit:
                        break
            except KeyboardInterrupt:
                result.outcome = "interrupted"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        result.seconds = time.monotonic() - began
        result.output = output.read_text(encoding="utf-8", errors="replace")
    judge(result, process.returncode, limit)
    return result


def collect(result: Result, lines: Sequence[str]) -> None:
    """Add figures to a result, and print them."""
    for figure in read_figures(lines):
        result.figures.append(figure)
        print(f"   {figure.line()}", flush=True)


def judge(result: Result, code: int, limit: float) -> None:
    """Find out whether a script that ended was successful, and print the reason if not."""
    lines = [line.strip() for line in result.output.splitlines() if line.strip()]
    if result.outcome == "interrupted":
        result.reason = f"after {result.seconds:.0f} s"
    elif code == -signal.SIGKILL and result.seconds >= limit:
        result.outcome, result.reason = "stopped", f"it took longer than {limit:.0f} s"
    elif code:
        status = f"signal {-code}" if code < 0 else f"exit status {code}"
        result.outcome, result.reason = "failed", f"{lines[-1]} ({status})" if lines else status
        print("\n".join(f"   | {line}" for line in result.output.rstrip().splitlines()[-20:]))
    elif not result.figures:
        skipped = [line.removeprefix("skipped: ") for line in lines if line.startswith("skipped: ")]
        result.outcome = "skipped" if skipped else "failed"
        result.reason = skipped[0] if skipped else "it printed no figures"
    if result.reason:
        print(f"   {result.outcome}: {result.reason}")
    print(f"   {result.seconds:.0f} s\n", flush=True)


def shown_command(part: Part, *, tiny: bool) -> str:
    """The command that repeats a part alone."""
    variables = [f"{name}={value}" for name, value in part.environment.items()]
    return " ".join([*variables, "python", f"benchmarks/{part.script}", *part.options(tiny=tiny)])


def rows_of(results: Sequence[Result]) -> list[list[str]]:
    """The table's rows; the seconds of a part stand in its first one."""
    rows = []
    verdicts = {True: "yes", False: "**no**", None: ""}
    for result in results:
        lines = [
            [figure.what, figure.shown(), figure.peer, figure.floor_shown(), verdicts[figure.reached]]
            for figure in result.figures
        ]
        if result.reason:
            lines.append([result.part.name, f"{result.outcome}: {result.reason}", "", "", ""])
        for number, line in enumerate(lines):
            rows.append([*line, f"{result.seconds:.0f}" if number == 0 else ""])
    return rows


def print_table(results: Sequence[Result], names: Sequence[str]) -> None:
    """All figures, and what is missing."""
    print(table(["what", "measured", "peer", "floor", "reached", "seconds"], rows_of(results)))
    judged = [figure.reached for result in results for figure in result.figures if figure.reached is not None]
    print(f"\n{sum(judged)} of {len(judged)} floors reached; {sum(each.seconds for each in results):.0f} s.")
    print("\nNot measured at this load:")
    done = {result.part.name for result in results}
    for result in results:
        if result.part.left_out:
            print(f"- {result.part.name}: {result.part.left_out}")
    for name in names:
        if name not in done:
            print(f"- {name}: interrupted before its start")
    others = [part.name for part in PARTS if part.name not in names]
    if others:
        print(f"- parts that were not asked for: {', '.join(others)}")
    for script, reason in NOT_RATIOS.items():
        print(f"- benchmarks/{script}: {reason}")
    print(f"- on a GPU: {', '.join(GPU_SCRIPTS)}; gpu_floors.py prints the figures of a GPU beside their floors")


def json_of(results: Sequence[Result], machine: str, settings: argparse.Namespace) -> dict[str, Any]:
    """All of it, for `--json`."""
    parts = [
        {
            "part": each.part.name,
            "command": each.command,
            "outcome": each.outcome,
            "reason": each.reason,
            "seconds": round(each.seconds, 1),
            "left_out": each.part.left_out,
            "figures": [{**asdict(figure), "reached": figure.reached} for figure in each.figures],
            "output": each.output,
        }
        for each in results
    ]
    return {"machine": machine, "cores": settings.cores, "tiny": settings.tiny, "parts": parts}


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write beside, then rename."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(path)


def use_cores(count: int) -> str:
    """Let this process and those that it starts use so many cores; which ones, in words."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(count)
    if not hasattr(os, "sched_setaffinity"):
        return f"{count} threads (this system does not bind processes to cores)"
    allowed = sorted(os.sched_getaffinity(0))
    by_core: dict[str, int] = {}
    for number in allowed:
        siblings = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        by_core.setdefault(siblings.read_text() if siblings.exists() else str(number), number)
    first = [*by_core.values(), *(number for number in allowed if number not in by_core.values())][:count]
    os.sched_setaffinity(0, first)
    few = "" if len(first) == count else f"; {count} were asked for"
    return f"{count} threads on processors {', '.join(map(str, sorted(first)))} of {len(allowed)}{few}"


def machine_here() -> tuple[str, str]:
    """The instruction set that torch uses; processor and versions. A process of its own loads torch."""
    program = (
        "import torch; from measure import machine; "
        f"print(torch.backends.cpu.get_cpu_capability()); print(machine{PACKAGES})"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=True)
    capability, line = ended.stdout.splitlines()
    return capability, line


def read_options() -> argparse.Namespace:
    """The command line."""
    parts = "\n".join(f"  {part.name:17} {part.script} {part.load}" for part in PARTS)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=f"parts:\n{parts}"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="PART",
        choices=[part.name for part in PARTS],
        help="run these parts (default: all)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to this file")
    parser.add_argument("--seconds", type=float, default=600, help="stop after this time (default: 600)")
    parser.add_argument("--cores", type=int, default=2, help="cores to use (default: 2, those of the floors)")
    parser.add_argument("--tiny", action="store_true", help="next to no load, to try the script; ratios mean nothing")
    settings = parser.parse_args()
    if settings.cores < 1:
        parser.error(f"--cores must be at least 1; {settings.cores} was given.")
    if settings.json is not None and (settings.json.is_dir() or not settings.json.absolute().parent.is_dir()):
        parser.error(f"--json must name a file in a folder that exists; {settings.json} was given.")
    return settings


def main() -> int:
    """Run the parts, print, write; 1 if a part failed."""
    settings = read_options()
    began = time.monotonic()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a GPU has its own script
    cores = use_cores(settings.cores)
    busy = os.getloadavg()[0]
    capability, line = machine_here()
    machine = f"{capability}, {line}"
    print(f"{machine}\n{cores}; load average before the start {busy:.1f}")
    if busy > 0.5:
        print("Other work uses the cores: ratios compare routes in turns, but may differ from those of quiet cores.")
    if settings.tiny:
        print("Tiny loads: the ratios mean nothing.")
    print(flush=True)
    chosen = [part for part in PARTS if settings.only is None or part.name in settings.only]
    results: list[Result] = []
    for part in chosen:
        print(f"{part.name}: {shown_command(part, tiny=settings.tiny)}", flush=True)
        left = settings.seconds - (time.monotonic() - began)
        if part.capability not in ("", capability):
            reason = f"this processor has no {part.capability}"
            results.append(Result(part=part, command="", outcome="skipped", reason=reason))
            print(f"   skipped: {reason}\n", flush=True)
        elif left < LEAST:
            results.append(Result(part=part, command="", outcome="stopped", reason="no time was left"))
            print("   stopped: no time was left\n", flush=True)
        else:
            limit = left if settings.tiny else min(part.limit, left)
            results.append(run_part(part, tiny=settings.tiny, limit=limit))
        if settings.json is not None:
            write_json(settings.json, json_of(results, machine, settings))
        if results[-1].outcome == "interrupted":
            break
    print_table(results, [part.name for part in chosen])
    outcomes = {result.outcome for result in results}
    return 130 if "interrupted" in outcomes else int("failed" in outcomes)


if __name__ == "__main__":
    sys.exit(main())

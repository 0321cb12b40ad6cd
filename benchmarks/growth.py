"""Time and memory of every job against the size of its work, and whether both grow as they should.

    POLYSEME_DATA=… python benchmarks/growth.py run                          # what is stored is not measured again
    python benchmarks/growth.py run --quick --texts news.txt.xz              # four jobs at small sizes, in a minute
    python benchmarks/growth.py table --docs docs/growth.md --pictures docs/assets

Texts are the files that `--texts` names, or those of POLYSEME_DATA's `corpus`. The jobs are in growth_jobs.py. Each
size of a job runs in a process of its own, on one thread, after the smallest size has run there once, not measured.
CPU time is that of all threads and child processes; it is what is fitted, since the machine may be busy, and time by
the clock stands beside it. Memory is the peak of resident memory, as the kernel counts it, and the same without pages
of mapped files, looked at every 0.05 s. Each job has a file in `experiments/results/growth` (`--results`); inputs,
indexes and models, six gigabytes in all, are kept in `--work`.

The rule, from before the runs. *Time* is linear if the slope of log CPU time against log size, by least squares over
the upper half of the sizes, is from 0.85 to 1.15. *Memory* without mapped files is flat if over the upper half its peak
grows by no more than 32 MiB, or by no more than a quarter of what the call adds at the first of these sizes. What is
expected of each job stands beside it in growth_jobs.py, and the table marks what is not so. What is calculated for ten
million uses continues the fitted line of time, and the straight line through the peaks of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from growth_jobs import JOBS
from growth_page import markdown, write_pictures

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results" / "growth"
MARKS = ("<!-- growth: begin -->", "<!-- growth: end -->")
QUICK = {name: JOBS[name].sizes[:3] for name in ("embed", "embed, one text", "step, by layers", "similar")}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")


def file_of(name: str, folder: Path) -> Path:
    """The file of a job's points."""
    return folder / f"{re.sub('[^a-z]+', '_', name)}.json"


def points_of(name: str, folder: Path) -> list[dict[str, Any]]:
    """The stored points of a job."""
    file = file_of(name, folder)
    points: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["points"] if file.exists() else []
    return points


def store(name: str, point: dict[str, Any], folder: Path) -> None:
    """Add a point to those of a job."""
    by_size = {each["size"]: each for each in [*points_of(name, folder), point]}
    points = [by_size[size] for size in sorted(by_size)]
    folder.mkdir(parents=True, exist_ok=True)
    content = {"job": name, "unit": JOBS[name].unit, "per": JOBS[name].per, "points": points}
    part = file_of(name, folder).with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    part.rename(file_of(name, folder))


def measured(name: str, sizes: Sequence[int], work: Path, texts: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """The points of a job, as growth_point.py prints them."""
    arguments = [name, ",".join(map(str, sizes)), *map(str, [work, *texts])]
    line = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("growth_point.py")), *arguments]
    with subprocess.Popen(line, env={**os.environ, **ONE_THREAD}, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for each in process.stdout:
            yield json.loads(each)
    if process.returncode:
        raise SystemExit(f"{name} ended with exit code {process.returncode}. The same command resumes.")


def run(options: argparse.Namespace) -> None:
    """Measure every point that is not stored."""
    if not Path("/proc/self/clear_refs").exists():
        raise SystemExit("The peak of a single call is read from /proc, which only Linux has. Run this on Linux.")
    texts = options.texts or texts_of_corpus()
    jobs = QUICK if options.quick else {name: job.sizes for name, job in JOBS.items()}
    for name, sizes in jobs.items():
        stored = {point["size"] for point in points_of(name, options.results)}
        left = [size for size in sizes if size not in stored and size <= (options.most or size)]
        if not left or (options.only and name not in options.only):
            continue
        for point in measured(name, left, options.work, texts):
            store(name, point, options.results)
            size = f"{point['size']:,} {JOBS[name].unit}s"
            print(f"{name}, {size}: {point['cpu_seconds']:.3g} s of CPU time", flush=True)


def texts_of_corpus() -> list[Path]:
    """The files of the corpus."""
    folder = os.environ.get("POLYSEME_DATA")
    files = sorted(Path(folder, "corpus").glob("*.txt.xz")) if folder else []
    if not files:
        raise SystemExit("There are no texts. Name files with --texts, or the folder of the data in POLYSEME_DATA.")
    return files


def fill(docs: Path, text: str) -> None:
    """Put the tables between the marks of a page."""
    page = docs.read_text(encoding="utf-8")
    between = re.compile(f"(?<={re.escape(MARKS[0])}\n).*?(?={re.escape(MARKS[1])})", re.DOTALL)
    if not between.search(page):
        raise SystemExit(f"{docs} has no place for the tables: {MARKS[0]} … {MARKS[1]}.")
    docs.write_text(between.sub(lambda _: f"\n{text}\n\n", page), encoding="utf-8")


def tables(options: argparse.Namespace) -> None:
    """Print the tables, and fill the page and draw the pictures that are named."""
    results = {name: points_of(name, options.results) for name in JOBS}
    machines = list(dict.fromkeys(point["machine"] for points in results.values() for point in points))
    if not machines:
        raise SystemExit(f"{options.results} holds no results.")
    pictures = {} if options.pictures is None else write_pictures(results, options.pictures)
    text = "\n\n".join(markdown(results, pictures, "; ".join(machines)))
    print(text)
    if options.docs is not None:
        fill(options.docs, text)


def main() -> None:
    """Measure, or make the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help=f"default: {RESULTS.relative_to(ROOT)}; with --quick, in --work")
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--only", nargs="+", choices=list(JOBS), metavar="JOB")
    runner.add_argument("--most", type=int, help="leave out larger sizes")
    runner.add_argument("--quick", action="store_true", help="four jobs at small sizes, then the tables")
    runner.add_argument("--texts", nargs="+", type=Path, help="text files, which may be compressed as .xz")
    runner.add_argument("--work", type=Path, default=Path("growth-work"), help="folder of inputs, six gigabytes")
    filler = commands.add_parser("table")
    filler.add_argument("--docs", type=Path, help="page to fill, such as docs/growth.md")
    filler.add_argument("--pictures", type=Path, help="folder of the pictures, such as docs/assets")
    options = parser.parse_args()
    quick = options.command == "run" and options.quick
    options.results = options.results or (options.work / "results" if quick else RESULTS)
    if options.command == "run":
        run(options)
    if options.command == "table" or quick:
        tables(argparse.Namespace(docs=None, pictures=None, **vars(options)) if quick else options)


if __name__ == "__main__":
    main()

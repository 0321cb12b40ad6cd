"""Memory, file handles and temporary files of `embed`, `score` and `predict` over millions of words.

    python experiments/soak.py run --words 5000000     # all three in turn; a verb that is done is not repeated
    python experiments/soak.py run --only score        # one of them
    python experiments/soak.py table                   # the table, and docs/assets/soak.svg

POLYSEME_DATA names the folder of the data: lines of its `corpus`, drawn by a seed until they have so many words.
`embed` is MiniLM's, `score` the packaged decoder's, and `predict` that of a head over frozen MiniLM, fitted to 2,000
sentences of SST-2. Each verb runs in a process of its own. Every half second its resident memory, its open files, and
the files in its folder for temporary files are recorded, with the rows read by then. A run that was stopped is resumed
by the same command: what is finished is kept in `--work`, and further points are added to the same file. Each verb is
written to `experiments/results/soak/VERB.json` (`--results`).

The rule, from before the run: memory is flat if its peak over the last nine tenths of the rows, the writing of the end
excepted, is at most 1.25 times its peak over the first tenth; no handle and no temporary file may be left that was not
there after the first tenth.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geometry import lines_of_corpus, sample
from tables import data_folder, lines_of, machine, table

import polyseme
from polyseme.plots.colors import group_color
from polyseme.plots.similarity_heatmaps import FAINT, FigurePage, figure_bytes

RESULTS = Path(__file__).parent / "results" / "soak"
PICTURE = Path(__file__).parents[1] / "docs" / "assets" / "soak.svg"
MEBIBYTE = 2**20
SEED = 7
SECONDS_BETWEEN = 0.5
MOST_POINTS = 400
FLAT = 1.25
VERBS: dict[str, dict[str, Any]] = {
    "embed": {"model": "minilm", "output": "vectors", "store": "fp16", "shard_rows": 50_000},
    "score": {"model": "english-decoder", "output": "scores.parquet"},
    "predict": {"model": "task", "output": "predictions.parquet"},
}
CHILD = """
import json, sys, time
import polyseme

verb, source, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
cost = getattr(polyseme, verb)(source, **settings, device="cpu", progress=lambda done, total: print(done, flush=True))
print("finished", flush=True)
"""


# --- one verb ---------------------------------------------------------------------------------------------------------


def fit(folder: Path) -> None:
    """A task model: a head over frozen MiniLM, fitted to a few sentences of SST-2."""
    if folder.exists():
        return
    header, *rows = lines_of(data_folder() / "sst2" / "train.tsv")
    train = folder.with_name("sst2.tsv")
    train.write_text("\n".join([header, *rows[:2000]]) + "\n", encoding="utf-8")
    polyseme.finetune(
        "classify", train=train, text="sentence", label="label", model="minilm", frozen=True, epochs=2, output=folder,
        device="cpu",
    )  # fmt: skip


def write_input(path: Path, n_words: int) -> None:
    """The texts, one per line; they are the same each time."""
    if not path.exists():
        part = path.with_suffix(".part")
        part.write_text("\n".join(sample(lines_of_corpus(), SEED, n_words)) + "\n", encoding="utf-8")
        part.rename(path)


def soak(verb: str, source: Path, work: Path) -> dict[str, Any]:
    """Run a verb and record it; points of an earlier part of the same run are kept."""
    settings = {**VERBS[verb], "output": str(work / VERBS[verb]["output"])}
    if settings["model"] == "task":
        settings["model"] = str(work / "task")
    log, progress, temporary = work / f"{verb}.points.jsonl", work / f"{verb}.progress", work / f"{verb}.tmp"
    temporary.mkdir(exist_ok=True)
    ends = [*itertools.accumulate(len(line) for line in source.open("rb"))]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    before = sum(json.loads(line)["seconds"] for line in log.open()) if log.exists() else 0.0
    with log.open("a") as points, progress.open("w") as written:
        command = [sys.executable, "-c", CHILD, verb, str(source), json.dumps(settings)]
        with subprocess.Popen(command, stdout=written, env=environment) as process:
            last, used = time.monotonic(), 0.0
            while process.poll() is None:
                time.sleep(SECONDS_BETWEEN)
                found = look(process.pid, progress, ends, temporary)
                if found is not None:
                    now = time.monotonic()
                    cpu = found.pop("cpu_seconds")
                    points.write(json.dumps({**found, "seconds": now - last, "cpu_seconds": cpu - used}) + "\n")
                    points.flush()
                    last, used = now, cpu
    if process.returncode:
        raise SystemExit(f"{verb} ended with exit code {process.returncode}. The same command resumes it.")
    found = [json.loads(line) for line in log.open()]
    left = sorted(each.name for each in [*temporary.iterdir(), *work.glob("*.unfinished"), *work.glob(".*.part")])
    return {
        "verb": verb,
        "rows": len(ends),
        "words": sum(len(line.split()) for line in source.open(encoding="utf-8")),
        "seconds": sum(each["seconds"] for each in found),
        "cpu_seconds": sum(each["cpu_seconds"] for each in found),
        "resumed_after_seconds": before or None,
        "written_bytes": size_of(Path(settings["output"])),
        "left_over": left,
        "points": thinned(found),
        "machine": machine("torch"),
    }


def look(pid: int, progress: Path, ends: Sequence[int], temporary: Path) -> dict[str, Any] | None:
    """Rows read, resident memory in bytes, processor time, open and temporary files; None: ended, or not begun."""
    lines = [line for line in progress.read_text().splitlines()[-2:] if line.isdigit()]
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        handles = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]  # its own, and of children
    except (OSError, IndexError):
        return None
    if not pages:  # it has ended, and nobody has asked yet how
        return None
    rows = bisect.bisect_right(ends, int(lines[-1])) if lines else 0
    files = sum(each.is_file() for each in temporary.rglob("*"))
    return {
        "rows": rows,
        "bytes": pages * os.sysconf("SC_PAGE_SIZE"),
        "cpu_seconds": sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"),
        "handles": handles,
        "temporary": files,
    }


def thinned(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most so many points; of those that go, the highest figures stay."""
    size = max(1, -(-len(points) // MOST_POINTS))
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        {"rows": group[-1]["rows"]}
        | {name: max(each[name] for each in group) for name in ("bytes", "handles", "temporary")}
        for group in groups
    ]


def size_of(path: Path) -> int:
    return sum(each.stat().st_size for each in [path, *path.rglob("*")] if each.is_file())


def run(options: argparse.Namespace) -> None:
    """Each verb that has no result yet."""
    work = options.work / str(options.words)
    work.mkdir(parents=True, exist_ok=True)
    options.results.mkdir(parents=True, exist_ok=True)
    source = work / "texts.txt"
    write_input(source, options.words)
    for verb in options.only or VERBS:
        result = options.results / f"{verb}.json"
        if result.exists() and json.loads(result.read_text())["words"] >= options.words:
            print(f"{verb}: {result} is there")
            continue
        if verb == "predict":
            fit(work / "task")
        found = soak(verb, source, work)
        result.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{verb}: {found['words']:,} words in {found['seconds']:,.0f} s", flush=True)


# --- the table --------------------------------------------------------------------------------------------------------


def parts(result: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """The points of the first tenth of the rows, of the others, and of the writing of the end."""
    points, last = result["points"], max(each["rows"] for each in result["points"])
    first = [each for each in points if 0 < each["rows"] <= last / 10] or points[:1]
    others = [each for each in points if last / 10 < each["rows"] < last]
    return first, others, [each for each in points if each["rows"] == last]


def is_flat(result: dict[str, Any]) -> bool:
    first, others, _ = parts(result)
    return peak(others or first, "bytes") <= FLAT * peak(first, "bytes")


def peak(points: Sequence[dict[str, Any]], name: str) -> int:
    return max(each[name] for each in points)


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """A row per verb."""
    rows = []
    for result in results:
        first, others, end = parts(result)
        rows.append(
            [
                f"`{result['verb']}`",
                f"{result['words']:,}",
                f"{result['seconds'] / 60:.1f}",
                f"{result['cpu_seconds'] / 60:.1f}",
                *(f"{peak(each or first, 'bytes') / MEBIBYTE:,.0f}" for each in (first, others, end)),
                "yes" if is_flat(result) else "no",
                f"{peak(first, 'handles')} → {peak(others or first, 'handles')}",
                f"{peak(result['points'], 'temporary')}; {len(result['left_over'])} left",
            ]
        )
    head = [
        "",
        "words",
        "minutes",
        "CPU minutes",
        "MiB, first tenth",
        "MiB, after it",
        "MiB, at the end",
        "flat",
        "open files",
        "temporary files",
    ]
    return f"{table(head, rows)}\n\n{results[0]['machine']}"


def picture(results: Sequence[dict[str, Any]]) -> bytes:
    """Resident memory against rows."""
    page = FigurePage()
    page.resize(7.2, 3.4)
    axes = page.axes(0.8, 0.25, 5.0, 2.5)
    for number, result in enumerate(results):
        points = [each for each in result["points"] if each["rows"] and each["bytes"]]
        rows, mebibytes = [each["rows"] / 1e3 for each in points], [each["bytes"] / MEBIBYTE for each in points]
        axes.plot(rows, mebibytes, color=group_color(number), linewidth=1.3, label=result["verb"])
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("rows read, thousands", fontsize=9, color=FAINT)
    axes.set_ylabel("resident memory, MiB", fontsize=9, color=FAINT)
    axes.tick_params(labelsize=8, colors=FAINT)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure_bytes(page.figure, "svg")


def results_of(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads((folder / f"{verb}.json").read_text()) for verb in VERBS if (folder / f"{verb}.json").exists()]
    if not found:
        raise SystemExit(f"{folder} holds no results.")
    return found


def main() -> None:
    """Run, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--words", type=int, default=5_000_000)
    runner.add_argument("--only", nargs="+", choices=list(VERBS))
    runner.add_argument("--work", type=Path, default=Path("soak-work"), help="folder of inputs and outputs, gigabytes")
    commands.add_parser("table").add_argument("--picture", type=Path, default=PICTURE)
    options = parser.parse_args()
    if options.command == "run":
        run(options)
        return
    results = results_of(options.results)
    print(markdown(results))
    options.picture.write_bytes(picture(results))


if __name__ == "__main__":
    main()

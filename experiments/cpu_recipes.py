"""What five minutes on two CPU cores teach: each tiny recipe, its held-out loss, and what it makes of fixed prompts.

    POLYSEME_DATA=... python experiments/cpu_recipes.py -o runs/cpu [--recipes modern-tiny gpt-tiny] [--budget 5min]
    python experiments/cpu_recipes.py -o runs/cpu --page docs/tiny.md          # only the page, from what is there

The budget is all in, from the start of Python to the saved model. Every run is a process of its own, bound to two cores
with as many threads; as many as fit the cores run side by side, and `--cores 4-15` keeps others free. The text is the
first 6 MB of books (`--bytes`), or with `--whole` the whole corpus. Outputs are unedited.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tables import table

RECIPES = ("modern-tiny", "bert-tiny", "gpt-tiny", "elmo-tiny", "electra-tiny")
RESULTS = Path(__file__).parent / "results" / "cpu"
CHILD = Path(__file__).parent / "cpu_recipe_run.py"
CORES_EACH = 2


def texts_of(options: argparse.Namespace) -> list[str]:
    """The files to train on; a part of the books is cut out at the end of a paragraph."""
    if options.texts:
        return [str(text) for text in options.texts]
    folder = Path(os.environ.get("POLYSEME_DATA") or sys.exit("POLYSEME_DATA must name the folder of the data."))
    if options.whole:
        return [str(file) for file in sorted((folder / "corpus").glob("*.txt.xz"))]
    part = options.output / f"books-{options.bytes}.txt"
    if not part.is_file():
        with lzma.open(folder / "corpus" / "books-00.txt.xz") as file:
            text = file.read(options.bytes)
        part.write_bytes(text[: text.rfind(b"\n\n") + 1])
    return [str(part)]


def parse_cores(text: str) -> list[int]:
    """Numbers and ranges of cores: `0,1,4-7`."""
    ranges = [part.partition("-") for part in text.split(",")]
    return [number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)]


def train_all(options: argparse.Namespace) -> None:
    """Every recipe in a process of its own, as many at once as there are pairs of cores."""
    texts = texts_of(options)
    cores = parse_cores(options.cores) if options.cores else sorted(os.sched_getaffinity(0))
    places = [cores[at : at + CORES_EACH] for at in range(0, len(cores) - CORES_EACH + 1, CORES_EACH)]
    if not places:
        sys.exit(f"A run is bound to {CORES_EACH} cores, and there are {len(cores)}.")
    waiting, running = list(options.recipes), {}
    while waiting or running:
        while waiting and places:
            recipe, place = waiting.pop(0), places.pop(0)
            line = [sys.executable, CHILD, recipe, *texts, "-o", options.output, "--results", options.results]
            line += ["--budget", options.budget, "--seed", options.seed]
            process = start(line, options.output / f"{recipe}.log", place)
            running[process] = (recipe, place)
            print(f"{recipe}: on cores {', '.join(map(str, place))}", flush=True)
        time.sleep(0.2)
        for process in [each for each in running if each.poll() is not None]:
            recipe, place = running.pop(process)
            places.append(place)
            state = "done" if process.returncode == 0 else f"failed, see {options.output / f'{recipe}.log'}"
            print(f"{recipe}: {state}", flush=True)


def start(line: Sequence[object], log: Path, cores: Sequence[int]) -> subprocess.Popen[bytes]:
    """A process on these cores alone, which it inherits from this one, with as many threads and without a GPU."""
    threads = {name: str(len(cores)) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")}
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        with log.open("w") as file:
            return subprocess.Popen(
                list(map(str, line)),
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **threads, "CUDA_VISIBLE_DEVICES": ""},
            )
    finally:
        os.sched_setaffinity(0, own)


def page_of(results: list[dict[str, Any]]) -> str:
    """The page for the docs."""
    head = ["recipe", "parameters", "steps", "pieces read", "held-out loss", "unigram entropy", "nats below"]
    rows = [
        [
            f"`{each['recipe']}`",
            " + ".join(f"{count / 1e6:.2f}M" for count in each["parameters"].values()),
            f"{each['n_steps']:,}",
            f"{each['ledger']['pieces'] / 1e6:.1f}M",
            f"{each['held_out_loss']:.2f}",
            f"{each['unigram_entropy']:.2f}",
            f"**{each['below_unigram']:.2f}**",
        ]
        for each in results
    ]
    seconds = ", ".join(f"{each['ledger']['total_seconds']:.0f}" for each in results)
    first = results[0]
    machines: dict[str, list[str]] = {}
    for each in results:
        machines.setdefault(each["machine"], []).append(each["recipe"])
    where = "; ".join(f"{', '.join(names)} on {machine}" for machine, names in machines.items())
    parts = [
        f"# Five minutes on {first['cores']} CPU cores",
        f"Each tiny recipe trained by `experiments/cpu_recipes.py` with a budget of {first['request']['budget']}, all "
        f"in ({seconds} seconds), on {', '.join(first['texts'])}; {where}. The prompts were fixed before "
        "any training, and the outputs are unedited.",
        table(head, rows),
    ]
    for each in results:
        parts.append(f"## {each['recipe']}")
        for output in each["outputs"]:
            name = "" if output["model"] == "model" else f"The {output['model']} "
            right = f" ({output['n_right']} of {len(output['rows'])} first)" if "n_right" in output else ""
            parts.append(f"{name}{output['kind']}{right}:".capitalize())
            parts.append(table(output["columns"], [[_cell(cell) for cell in row] for row in output["rows"]]))
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    """A text within a table: as it is, but on one line, and with marks that Markdown would take for its own."""
    one_line = text.replace("\r", " ").replace("\n", " ⏎ ").strip()
    return "".join(f"\\{mark}" if mark in "|*_`<>[]#" else mark for mark in one_line)


def main() -> None:
    """Train, question, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES))
    parser.add_argument("--budget", default="5min")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bytes", type=int, default=6_000_000, help="of the books")
    parser.add_argument("--whole", action="store_true", help="the whole corpus")
    parser.add_argument("--texts", nargs="*", help="texts of your own")
    parser.add_argument("--cores", help="cores to use, as in 4-15 (default: all)")
    parser.add_argument("--page", type=Path, help="write the page there, from the results that are there")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.page is None:
        train_all(options)
    files = [options.results / f"{recipe}.json" for recipe in options.recipes]
    results = [json.loads(file.read_text()) for file in files if file.is_file()]
    if not results:
        sys.exit(f"There are no results in {options.results}.")
    page = options.page or options.results / "page.md"
    page.write_text(page_of(results), encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()

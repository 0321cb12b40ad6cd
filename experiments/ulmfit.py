"""ULMFiT (Howard and Ruder 2018) on IMDb and TREC: few labels against training from scratch, and each step left out.

    python experiments/ulmfit.py corpus -o runs/ulmfit                                   # once, on the CPU
    python experiments/ulmfit.py general forwards -o runs/ulmfit --budget 9min           # and: general backwards
    python experiments/ulmfit.py rest -o runs/ulmfit --jobs 12 [--tasks imdb]            # everything else, in parallel
    python experiments/ulmfit.py table

POLYSEME_DATA names the folder of the data. The general language model reads its `corpus/` without news-01; the target
language models read the training texts of a task without their labels (never those of test). `rest` starts a process
for each target language model that a row left needs, and then one for each row, task and seed that is left, which
`target` and `row` run one at a time:

    python experiments/ulmfit.py target imdb forwards -o runs/ulmfit --budget 10epochs
    python experiments/ulmfit.py row no-unfreezing imdb 0 -o runs/ulmfit

Every result is a file in `experiments/results/ulmfit/` (`--results`), and what is there is not run again. Rows `full`,
`backwards` and `scratch` are learning curves over 1%, 10% and 100% of the labels, with a sample for each seed; the
others leave one step out, at 100%. Of each run dev chooses the epoch, and test is scored once. Rows of a task belong
together only if they began with the same general models; `full-earlier` did with others, and is in no table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from tables import data_folder, machine, table

import polyseme
from polyseme.bundle import new_bundle
from polyseme.datasets.named_benchmarks import read_benchmark
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.tasks.items import TaskData

RESULTS = Path(__file__).parent / "results" / "ulmfit"
TASKS = ("imdb", "trec")
WAYS = ("forwards", "backwards")
SHARES = ("1%", "10%", "100%")
SCRATCH: dict[str, Any] = {"gradual_unfreezing": False, "layer_decay": 1.0, "learning_rate": 1e-3}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "full": ("target-forwards", {}),
    "backwards": ("target-backwards", {}),
    "scratch": ("random", SCRATCH),
    "no-general": ("target-only", {}),
    "no-target": ("forwards", {}),
    "no-discriminative": ("target-forwards", {"layer_decay": 1.0}),
    "no-triangle": ("target-forwards", {"schedule": "constant", "warmup": 0.0}),
    "no-unfreezing": ("target-forwards", {"gradual_unfreezing": False}),
    "no-concat": ("target-forwards", {"readout": "last"}),
}
"""Row → the language model that it begins with, and the options that differ from `--ulmfit`."""
CURVES = ("full", "backwards", "scratch")
"""Rows over all shares; they come first, since they take longest."""
NAMES = {
    "full": "ULMFiT, forwards",
    "backwards": "ULMFiT, backwards",
    "ensemble": "ULMFiT, both",
    "scratch": "from scratch",
    "no-general": "without the general language model",
    "no-target": "without the target language model",
    "no-discriminative": "without discriminative rates",
    "no-triangle": "without the slanted triangle (a constant rate)",
    "no-unfreezing": "without gradual unfreezing",
    "no-concat": "without concat pooling (the last state)",
}


class Runs:
    """Where language models and classifiers are."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder: Path = options.output
        self.folder.mkdir(parents=True, exist_ok=True)

    def corpus(self) -> None:
        """Build the corpus of the general language models."""
        texts = sorted(path for path in (data_folder().parent / "corpus").glob("*.xz") if "news-01" not in path.name)
        texts = texts[:1] if self.options.small else texts
        limit = {"limit": 200_000, "vocab_size": 2000} if self.options.small else {"vocab_size": 30_000}
        polyseme.build_corpus(texts, output=self.folder / "corpus", tokenizer="words", frame="lm", reuse=True, **limit)

    def general(self, way: str) -> None:
        """Train a general language model in one direction."""
        self._pretrain(
            self.folder / "corpus", way, recipe=self.options.recipe, shape={"reads": way}, batch_size=self.options.rows
        )

    def target(self, task: str, model: str) -> None:
        """Train a general language model further on the texts of a task; `only`: train a new one on those alone."""
        texts = self.folder / f"{task}.txt"
        data = self.data(task)
        items = [item for split in ("train", "dev") for item in data.splits[split]]
        texts.write_text("\n\n".join(" ".join(item.text.split()) for item in items) + "\n", encoding="utf-8")
        if model == "only":
            tokenizer = str(self.folder / "forwards" / "model")
            self._pretrain(texts, f"{task}-only", recipe=self.options.recipe, tokenizer=tokenizer)
        else:
            self._pretrain(texts, f"{task}-{model}", recipe="ulmfit-target", model=self.folder / model)

    def _pretrain(self, source: Path, name: str, **settings: Any) -> None:
        if (self.folder / name / "model").exists():
            return
        if self.options.small:
            settings |= {"batch_size": 2, "length": 16}
        started = time.perf_counter()
        ledger = polyseme.pretrain(
            source, output=self.folder / name, budget=self.options.budget, device=self.options.device, **settings
        )
        record = {"seconds": time.perf_counter() - started, "machine": machine("torch"), "ledger": ledger.to_json()}  # type: ignore[union-attr]
        keep(self.options.results, f"pretrain.{name}", record)
        print(f"{name}: {ledger}", flush=True)

    def data(self, task: str) -> TaskData:
        data = read_benchmark(task, data_folder())
        if not self.options.small:
            return data
        splits = {
            split: [dataclasses.replace(item, text=" ".join(item.text.split()[:80])) for item in items[:40]]
            for split, items in data.splits.items()
        }
        return dataclasses.replace(data, splits=splits)

    def begin(self, task: str, start: str, seed: int) -> Path:
        """The language model that a row begins with."""
        if start != "random":
            return self.folder / start.replace("target-", f"{task}-")
        trained = load_bundle(self.folder / "forwards" / "model")
        torch.manual_seed(seed)
        fresh = new_bundle(trained.family, trained.config, list(trained.outputs), trained.tokenizer, tied=trained.tied)
        place = self.folder / f"{task}-random-{seed}"
        save_bundle(fresh, place, force=True)
        return place

    def row(self, row: str, task: str, seed: int) -> None:
        """Fit a classifier, and write what came of it."""
        name = f"{task}.{row}.{seed}"
        if (self.options.results / f"{name}.json").exists():
            return
        start, changes = ROWS[row]
        shares = ["50%", "100%"] if self.options.small else list(SHARES) if row in CURVES else ["100%"]
        settings = {**changes, **({"epochs": 2} if self.options.small else {})}
        started = time.perf_counter()
        report = polyseme.finetune(
            self.data(task),
            model=self.begin(task, start, seed),
            output=self.folder / name,
            ulmfit=True,
            unseen="keep",
            train_share=shares,
            seeds=[seed],
            device=self.options.device,
            force=True,
            **settings,
        )
        result = {
            "shares": {
                point.share: {
                    "n": point.n_items,
                    "dev": point.seeds[0].dev["accuracy"],
                    "test": point.seeds[0].others["test"]["accuracy"],
                    "epochs": point.settings["epochs"],
                    "seconds": point.seeds[0].seconds,
                }
                for point in report.curve
            },
            "settings": {name: value for name, value in report.settings.items() if value is not None},
            "seconds": time.perf_counter() - started,
            "machine": machine("torch"),
        }
        keep(self.options.results, name, result)

    def ensemble(self, task: str, seed: int) -> None:
        """Score the mean of the forward and the backward classifier of all labels."""
        name = f"{task}.ensemble.{seed}"
        models = ",".join(str(self.folder / f"{task}.{row}.{seed}") for row in ("full", "backwards"))
        report = polyseme.evaluate(task, model=models, data=data_folder(), device=self.options.device)
        splits = {line.name: line.figures["accuracy"] for line in report.lines}
        keep(self.options.results, name, {"shares": {"100%": {split: splits.get(split) for split in ("dev", "test")}}})

    # --- all of it ----------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Every target language model that is needed, then every row that is left, so many processes at once."""
        options = self.options
        rows = self._left(list(ROWS))
        starts = sorted({(task, ROWS[row][0]) for _, row, task, _ in rows})
        targets = [
            ("target", task, start.removeprefix("target-")) for task, start in starts if start.startswith("target-")
        ]
        for jobs in (targets, rows, self._left(["ensemble"])):
            with ThreadPoolExecutor(options.jobs) as pool:
                codes = list(pool.map(self._start, jobs))
            failed = [" ".join(job) for job, code in zip(jobs, codes, strict=True) if code]
            if failed:
                raise SystemExit(f"These failed; the same command runs them again: {'; '.join(failed)}")

    def _left(self, rows: Sequence[str]) -> list[tuple[str, str, str, str]]:
        """The rows that have no result yet, with task and seed."""
        return [
            ("row", row, task, str(seed))
            for row in rows
            for task in self.options.tasks
            for seed in range(self.options.seeds)
            if not (self.options.results / f"{task}.{row}.{seed}.json").exists()
        ]

    def _start(self, job: Sequence[str]) -> int:
        options = self.options
        common = ["-o", options.output, "--results", options.results, "--device", options.device]
        common += ["--recipe", options.recipe, *(["--small"] if options.small else [])]
        common += ["--budget", options.target_budget] if job[0] == "target" else []
        log = self.folder / f"{'.'.join(job)}.log"
        with log.open("w") as file:
            command = [sys.executable, __file__, *job, *map(str, common)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            code = subprocess.run(command, stdout=file, stderr=file, env=environment, check=False).returncode
        print(f"{' '.join(job)}: {'done' if code == 0 else f'failed, see {log}'}", flush=True)
        return code


def keep(results: Path, name: str, result: dict[str, Any]) -> None:
    """Write one result."""
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def markdown(results: Path, split: str = "test") -> str:
    """The curves, and what each step is worth: mean and standard deviation over seeds, in percent."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for file in sorted(results.glob("*.*.*.json")):
        task, row, _ = file.stem.split(".")
        for share, figures in json.loads(file.read_text(encoding="utf-8"))["shares"].items():
            if figures.get(split) is not None:
                found.setdefault((task, row, share), []).append(100 * figures[split])

    def cell(task: str, row: str, share: str) -> str:
        values = found.get((task, row, share), [])
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        return f"{statistics.mean(values):.1f}{spread}" if values else ""

    shares = sorted({share for _, _, share in found}, key=lambda share: float(share.rstrip("%")))
    curve = [[NAMES[row], *(cell(task, row, share) for task in TASKS for share in shares)] for row in CURVES]
    steps = [[NAMES[row], *(cell(task, row, "100%") for task in TASKS)] for row in NAMES]
    return "\n\n".join(
        [
            table(["accuracy", *(f"{task}, {share}" for task in TASKS for share in shares)], curve),
            table(["accuracy, 100%", *TASKS], [line for line in steps if any(line[1:])]),
        ]
    )


def main() -> None:
    """Run a part, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("corpus", "general", "target", "row", "rest", "table"))
    parser.add_argument("what", nargs="*", help="general: WAY; target: TASK WAY; row: ROW TASK SEED")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/ulmfit"))
    parser.add_argument("--budget", default="9min", help="of a language model")
    parser.add_argument("--target-budget", default="10epochs", help="of each target language model of `rest`")
    parser.add_argument("--recipe", default="awd-lstm")
    parser.add_argument("--rows", type=int, default=192, help="of a step of a general language model")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, help="of `rest`")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--small", action="store_true", help="a little of everything, to try the script out")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.command == "table":
        print(markdown(options.results))
        return
    runs, what = Runs(options), options.what
    if options.command == "row" and what[0] == "ensemble":
        runs.ensemble(what[1], int(what[2]))
    elif options.command == "row":
        runs.row(what[0], what[1], int(what[2]))
    else:
        getattr(runs, options.command)(*what)


if __name__ == "__main__":
    main()

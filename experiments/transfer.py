"""The figures of transfer: tasks × models × frozen or fine-tuned × seeds, as JSON and as Markdown tables for the docs.

Each finished task is written at once, and the same command skips it. With `--workers` several processes share the
tasks, since small models leave a GPU idle.

    python experiments/transfer.py --data data/tasks -o out/ --tasks sst2 mrpc stsb cola rte --seeds 5 --tuned
    python experiments/transfer.py --data data/tasks -o out/ --tasks wnut17 wikigold --seeds 5 --entities -m elmo-dir/
    python experiments/transfer.py -o out/ --tables
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import polyseme
from polyseme.datasets.named_benchmarks import BENCHMARKS
from polyseme.datasets.suites import SUITES
from polyseme.transfer.finetune_report import FinetuneReport

SHORT = SUITES["glue"].mean_over
SPECIAL: dict[str, dict[str, Any]] = {
    "squad": {"epochs": 2},
    "squad2": {"epochs": 2},
    "imdb": {"batch_size": 16, "max_pieces": 256},
}
"""Settings of single tasks."""


def runs_of(options: argparse.Namespace) -> list[tuple[str, str, dict[str, Any]]]:
    """Name of each run, its task and its settings."""
    strategies: list[tuple[str, dict[str, Any]]] = []
    if options.tuned:
        strategies.append(("tuned", {}))
    if options.frozen:
        strategies.append(("frozen", {"frozen": True}))
    if options.layers:
        strategies += [
            ("frozen-mix", {"frozen": True, "layer": "mix", "head": "linear"}),
            ("frozen-top", {"frozen": True, "layer": "-1", "head": "linear"}),
        ]
    if options.entities:
        strategies += [
            ("char-cnn", {"model": "none", "inputs": "char-cnn", "head": "bilstm-crf"}),
            ("char-cnn+frozen", {"frozen": True, "inputs": "char-cnn", "head": "bilstm-crf"}),
        ]
    changes = {name: json.loads(value) if _is_json(value) else value for name, value in options.set}
    label = Path(options.model).name if options.model else "minilm"
    runs = []
    for task in options.tasks:
        for strategy, settings in strategies:
            name = f"{task}.{'none' if settings.get('model') == 'none' else label}.{strategy}{options.suffix}"
            runs.append((name, task, {"model": options.model, **SPECIAL.get(task, {}), **settings, **changes}))
    return runs


def fit(name: str, task: str, settings: dict[str, Any], options: argparse.Namespace) -> None:
    """One run, written when it is finished."""
    place = Path(options.output) / f"{name}.json"
    if place.is_file() and not options.force:
        return
    started = time.perf_counter()
    try:
        report = polyseme.finetune(
            task, data=options.data, seeds=options.seeds, device=options.device, cache=options.cache, **settings
        )
    except Exception as error:  # noqa: BLE001 (one failing task must not stop the others)
        print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
        return
    place.write_text(json.dumps(report.to_json()) + "\n")
    figures = "; ".join(f"{metric} {100 * each.median:.1f}" for metric, each in report.dev.items())
    print(f"{name}: {figures} ({time.perf_counter() - started:.0f} s)", flush=True)


def run_all(runs: list[tuple[str, str, dict[str, Any]]], options: argparse.Namespace) -> None:
    for name, task, settings in runs:
        fit(name, task, settings, options)


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(folder: Path) -> str:
    """All runs of a folder as Markdown: one line per run and split, and the mean over GLUE's small tasks."""
    reports = {
        file.stem: FinetuneReport.from_json(json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))
    }
    head = ["task", "model", "strategy", "split", "figure", "median", "lowest", "highest", "spread", "seeds", "failed"]
    lines = [head, ["---"] * len(head)]
    for name, report in reports.items():
        task, _, rest = name.partition(".")
        model, _, strategy = rest.rpartition(".")
        for split in report.splits:
            mark = " (sample)" if split in report.sampled or ("train" in report.sampled and split == "dev") else ""
            for metric, each in report.split(split).items():
                figures = [f"{100 * value:.1f}" for value in (each.median, each.lowest, each.highest, each.spread)]
                counts = [str(len(report.seeds)), str(report.n_failed)]
                lines.append([task, model, strategy, f"{split}{mark}", metric, *figures, *counts])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{text}\n\n{means(reports)}\n{mixes(reports)}"


def means(reports: dict[str, FinetuneReport]) -> str:
    """The mean over GLUE's tasks with complete training sets: ours on dev, the published ones on test."""
    scores: dict[tuple[str, str], dict[str, float]] = {}
    for name, report in reports.items():
        task, _, rest = name.partition(".")
        if task in SHORT:
            scores.setdefault((rest.rpartition(".")[0], rest.rpartition(".")[2]), {})[task] = report.dev[
                BENCHMARKS[task].metrics[0]
            ].median
    published = {"ELMo": 68.3, "GPT": 71.0, "BERT-base": 77.3}
    lines = [f"Mean over {', '.join(SHORT)}: medians of ours on dev, the published ones on test."]
    for (model, strategy), figures in scores.items():
        if len(figures) == len(SHORT):
            lines.append(f"- {model}, {strategy} (dev): {100 * sum(figures.values()) / len(SHORT):.1f}")
    lines += [f"- {model} (test): {published[model]}" for model in SUITES["glue"].shown_models]
    return "\n".join(lines) + "\n"


def mixes(reports: dict[str, FinetuneReport]) -> str:
    """The learned weights of the layers."""
    lines = []
    for name, report in reports.items():
        mix = report.best.mix
        if mix is not None:
            shares = ", ".join(f"{layer}: {share:.2f}" for layer, share in mix["shares"].items())
            lines.append(f"- {name}: γ {mix['gamma']:.2f}; {shares}")
    return "Learned mixes:\n" + "\n".join(lines) + "\n" if lines else ""


def _is_json(value: str) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--data")
    parser.add_argument("-m", "--model")
    parser.add_argument("--tasks", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--frozen", action="store_true")
    parser.add_argument("--layers", action="store_true", help="scalar mix against the top layer, linear heads")
    parser.add_argument(
        "--entities", action="store_true", help="BiLSTM + char-CNN + CRF, alone and with frozen vectors"
    )
    parser.add_argument("--set", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    parser.add_argument("--suffix", default="")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cache")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--tables", action="store_true", help="only print the tables")
    options = parser.parse_args()
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    if not options.tables:
        runs = runs_of(options)
        if options.workers == 1:
            run_all(runs, options)
        else:
            context = multiprocessing.get_context("spawn")
            workers = [
                context.Process(target=run_all, args=(runs[number :: options.workers], options))
                for number in range(options.workers)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
    text = tables(folder)
    (folder / "tables.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()

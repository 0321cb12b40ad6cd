"""The figures of transfer: tasks × models × frozen or tuned × seeds, as JSON and as Markdown tables for the docs.

One process goes through all of them; each finished task is written at once, and is not done again when the same command
is given once more. With `--workers` several processes share the tasks, since small models leave a GPU idle.

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
from polyseme.transfer.finetune_report import FinetuneReport
from polyseme.transfer.glue_table import SHORT, SHOWN_MODELS, counted

SPECIAL: dict[str, dict[str, Any]] = {
    "squad": {"epochs": 2},
    "squad2": {"epochs": 2},
    "imdb": {"batch_size": 16, "max_pieces": 256},
}
"""What a task has of its own."""


def runs_of(asked: argparse.Namespace) -> list[tuple[str, str, dict[str, Any]]]:
    """Name of the run, task, settings."""
    hows: list[tuple[str, dict[str, Any]]] = []
    if asked.tuned:
        hows.append(("tuned", {}))
    if asked.frozen:
        hows.append(("frozen", {"frozen": True}))
    if asked.layers:
        hows += [
            ("frozen-mix", {"frozen": True, "layer": "mix", "head": "linear"}),
            ("frozen-top", {"frozen": True, "layer": "-1", "head": "linear"}),
        ]
    if asked.entities:
        hows += [
            ("char-cnn", {"model": "none", "inputs": "char-cnn", "head": "bilstm-crf"}),
            ("char-cnn+frozen", {"frozen": True, "inputs": "char-cnn", "head": "bilstm-crf"}),
        ]
    changes = {name: json.loads(value) if _is_json(value) else value for name, value in asked.set}
    label = Path(asked.model).name if asked.model else "minilm"
    made = []
    for task in asked.tasks:
        for how, settings in hows:
            name = f"{task}.{'none' if settings.get('model') == 'none' else label}.{how}{asked.suffix}"
            made.append((name, task, {"model": asked.model, **SPECIAL.get(task, {}), **settings, **changes}))
    return made


def fit(name: str, task: str, settings: dict[str, Any], asked: argparse.Namespace) -> None:
    """One run, written when it is done."""
    place = Path(asked.output) / f"{name}.json"
    if place.is_file() and not asked.force:
        return
    started = time.perf_counter()
    try:
        report = polyseme.finetune(
            task, data=asked.data, seeds=asked.seeds, device=asked.device, cache=asked.cache, **settings
        )
    except Exception as error:  # noqa: BLE001 (one task that fails must not take the others with it)
        print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
        return
    place.write_text(json.dumps(report.to_json()) + "\n")
    figures = "; ".join(f"{metric} {100 * each.median:.1f}" for metric, each in report.dev.items())
    print(f"{name}: {figures} ({time.perf_counter() - started:.0f} s)", flush=True)


def share(mine: list[tuple[str, str, dict[str, Any]]], asked: argparse.Namespace) -> None:
    for name, task, settings in mine:
        fit(name, task, settings, asked)


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(folder: Path) -> str:
    """All runs of a folder as Markdown: one line a run and split, and the mean over GLUE's small tasks."""
    reports = {
        file.stem: FinetuneReport.from_json(json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))
    }
    head = ["task", "model", "how", "split", "figure", "median", "lowest", "highest", "spread", "seeds", "failed"]
    lines = [head, ["---"] * len(head)]
    for name, report in reports.items():
        task, _, rest = name.partition(".")
        model, _, how = rest.rpartition(".")
        for split in report.splits:
            mark = " (sample)" if split in report.sampled or ("train" in report.sampled and split == "dev") else ""
            for metric, each in report.split(split).items():
                figures = [f"{100 * value:.1f}" for value in (each.median, each.lowest, each.highest, each.spread)]
                counts = [str(len(report.seeds)), str(report.n_failed)]
                lines.append([task, model, how, f"{split}{mark}", metric, *figures, *counts])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{text}\n\n{means(reports)}\n{mixes(reports)}"


def means(reports: dict[str, FinetuneReport]) -> str:
    """The mean over GLUE's tasks whose training sets are whole, ours on dev, the published ones on test."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for name, report in reports.items():
        task, _, rest = name.partition(".")
        if task in SHORT:
            found.setdefault((rest.rpartition(".")[0], rest.rpartition(".")[2]), {})[task] = report.dev[
                counted(task)
            ].median
    published = {"ELMo": 68.3, "GPT": 71.0, "BERT-base": 77.3}
    lines = [f"Mean over {', '.join(SHORT)}: ours medians on dev, the published on test."]
    for (model, how), figures in found.items():
        if len(figures) == len(SHORT):
            lines.append(f"- {model}, {how} (dev): {100 * sum(figures.values()) / len(SHORT):.1f}")
    lines += [f"- {model} (test): {published[model]}" for model in SHOWN_MODELS]
    return "\n".join(lines) + "\n"


def mixes(reports: dict[str, FinetuneReport]) -> str:
    """The shares of the layers that were learned."""
    lines = []
    for name, report in reports.items():
        mix = report.kept.mix
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
    parser.add_argument("--tables", action="store_true", help="only write the tables")
    asked = parser.parse_args()
    folder = Path(asked.output)
    folder.mkdir(parents=True, exist_ok=True)
    if not asked.tables:
        runs = runs_of(asked)
        if asked.workers == 1:
            share(runs, asked)
        else:
            context = multiprocessing.get_context("spawn")
            workers = [
                context.Process(target=share, args=(runs[number :: asked.workers], asked))
                for number in range(asked.workers)
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

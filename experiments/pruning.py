"""How many attention heads a fine-tuned model can lose (Michel et al. 2019), by gradients, by gates and at random.

    python experiments/pruning.py run minilm qnli                      # and: english-encoder qnli, minilm mnli …
    python experiments/pruning.py run minilm qnli --train-items 300 --dev-items 200 --no-gates    # a quick trial
    python experiments/pruning.py table

POLYSEME_DATA names the folder of the data. A run fits the model to the task (3 epochs), then removes heads in steps of
a tenth. Importance is measured on one half of dev, and every figure is accuracy on the other half, on which nothing is
chosen. `random` removes heads in a random order (mean of three), `exact` measures importance again at each step,
`gates` trains hard concrete gates on a part of train, for a share of 40% alone. `retrained` fits the pruned encoder
again for one epoch, with a new head, and the whole one likewise, for a fair comparison. Each run is written to
`experiments/results/pruning/TASK.MODEL.json` (`--results`).

The rule, from before the runs: the largest share at which accuracy is at most 1 point below the whole model's, with no
smaller share below that, without retraining and with it; the floor is 40%. With 2,700 items, the standard error of an
accuracy of 85% is 0.7 points; of the difference of two models on the same items it is smaller.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from tables import data_folder, machine, table

import polyseme
from polyseme.api import Model
from polyseme.datasets.named_benchmarks import read_benchmark
from polyseme.pruning.head_removal import HeadPlace, attentions_of, heads_of, without_heads
from polyseme.pruning.prune_heads import PruningPlan, prune_heads
from polyseme.pruning.pruning_subject import TaskSubject
from polyseme.tasks.items import TaskData
from polyseme.transfer.task_folder import load_task_model

RESULTS = Path(__file__).parent / "results" / "pruning"
ORDERS = 3
RETRAINED = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8)
POINT = 0.01


def data_of(name: str, options: argparse.Namespace) -> TaskData:
    """The task with its training items, and dev in two halves: `dev`, and `test`, on which figures are."""
    task = read_benchmark(name, data_folder())
    dev = random.Random(13).sample(list(task.splits["dev"]), len(task.splits["dev"]))[: options.dev_items]
    half = len(dev) // 2
    splits = {"train": task.splits["train"][: options.train_items], "dev": tuple(dev[:half]), "test": tuple(dev[half:])}
    return dataclasses.replace(task, splits=splits)


def fitted(task: TaskData, model: Any, options: argparse.Namespace, epochs: int, output: Path | None = None) -> Any:
    """A fine-tuning with one seed, and its accuracy on the second half of dev."""
    report = polyseme.finetune(
        task, model=model, epochs=epochs, device=options.device, seeds=[options.seed], output=output
    )
    return report, report.best.others["test"][report.metrics[0]]


def run(options: argparse.Namespace) -> dict[str, Any]:
    """One model on one task, written when all of it is done."""
    started = time.perf_counter()
    task = data_of(options.task, options)
    device = "cuda" if torch.cuda.is_available() and options.device == "auto" else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        _, fine_tuned = fitted(task, options.model, options, options.epochs, path)
        model = load_task_model(path, device=device)
    bundle = model.bundle
    assert bundle is not None
    print(f"fitted: {100 * fine_tuned:.1f} ({time.perf_counter() - started:.0f} s)", flush=True)
    items = {split: task.splits[split] for split in ("dev", "test")}
    items["train"] = task.splits["train"][: options.gate_items]
    metric = task.metrics[0]

    def curve(**plan: Any) -> list[dict[str, Any]]:
        subject = TaskSubject(model, items, (metric,))
        pruned = prune_heads(bundle, subject, PruningPlan(seed=options.seed, **plan), name=options.model)
        points = [{"share": each.share, "accuracy": each.figures[metric]} for each in pruned.report.points]
        print(plan, [round(100 * each["accuracy"], 1) for each in points], flush=True)
        return points

    result: dict[str, Any] = {
        "model": options.name or Path(options.model).name,
        "task": options.task,
        "items": {split: len(each) for split, each in task.splits.items()},
        "heads": sum(each.n_heads for each in attentions_of(bundle).values()),
        "accuracy": fine_tuned,
        "gradient": curve(heads="50%"),
        "exact": curve(heads="50%", reestimate=True),
    }
    if not options.no_gates:
        result["gates"] = curve(heads="40%", method="gates", points=0, gate_steps=options.gate_steps)
    subject = TaskSubject(model, items, (metric,))
    result["random"] = at_random(bundle, subject, metric)
    result["retrained"] = []
    for share in RETRAINED[:2] if options.quick else RETRAINED:
        plan = PruningPlan(heads=share or "1", points=0, seed=options.seed)
        pruned = (
            bundle if not share else prune_heads(bundle, TaskSubject(model, items, (metric,)), plan, name="").bundle
        )
        _, accuracy = fitted(task, Model(pruned.copied()), options, 1)
        result["retrained"].append({"share": share, "accuracy": accuracy})
        print(f"retrained at {share:.0%}: {100 * accuracy:.1f}", flush=True)
    result |= {
        "within_one_point": within(result["gradient"], result["gradient"][0]["accuracy"]),
        "within_one_point_exact": within(result["exact"], result["exact"][0]["accuracy"]),
        "within_one_point_retrained": within(result["retrained"], result["gradient"][0]["accuracy"]),
        "seconds": time.perf_counter() - started,
        "device": device,
        "machine": machine("torch"),
    }
    options.results.mkdir(parents=True, exist_ok=True)
    file = options.results / f"{options.task}.{result['model']}.json"
    file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"{file}: {result['within_one_point']:.0%} of the heads within 1 point", flush=True)
    return result


def at_random(bundle: Any, subject: TaskSubject, metric: str) -> list[dict[str, Any]]:
    """The mean of random orders; each layer keeps a head, as in the others."""
    places = [HeadPlace(at, head) for at, each in attentions_of(bundle).items() for head in heads_of(each)]
    accuracies: dict[float, list[float]] = {}
    for seed in range(ORDERS):
        order = random.Random(seed).sample(places, len(places))
        for step in range(1, 9):
            n, removed = round(step / 10 * len(places)), []
            for place in order:
                left = sum(each.at == place.at for each in places) - sum(each.at == place.at for each in removed)
                if len(removed) < n and left > 1:
                    removed.append(place)
            accuracies.setdefault(n / len(places), []).append(
                float(subject.figures(without_heads(bundle, removed))[metric])
            )
    return [{"share": share, "accuracy": statistics.mean(each)} for share, each in accuracies.items()]


def within(points: list[dict[str, Any]], whole: float) -> float:
    """The largest share up to which all points are at most a point below the whole model."""
    largest = 0.0
    for each in sorted(points, key=lambda point: point["share"]):
        if each["accuracy"] < whole - POINT:
            break
        largest = each["share"]
    return largest


def markdown(folder: Path) -> str:
    """All runs: accuracy by the share of heads removed."""
    rows = []
    for file in sorted(folder.glob("*.json")):
        result = json.loads(file.read_text(encoding="utf-8"))
        for name in ("gradient", "exact", "random", "gates", "retrained"):
            points = {round(10 * each["share"]): each["accuracy"] for each in result.get(name, [])}
            cells = [f"{100 * points[tenth]:.1f}" if tenth in points else "" for tenth in range(10)]
            rows.append([result["task"], result["model"], name, *cells])
    return table(["task", "model", "heads by", *(f"{tenth}0%" if tenth else "0%" for tenth in range(10))], rows)


def main() -> None:
    """Run one, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("model")
    runner.add_argument("task", choices=["qnli", "mnli"])
    runner.add_argument("--name", help="of the model in results, where it is a folder")
    runner.add_argument("--device", default="auto")
    runner.add_argument("--epochs", type=int, default=3)
    runner.add_argument("--seed", type=int, default=0)
    runner.add_argument("--train-items", type=int)
    runner.add_argument("--dev-items", type=int)
    runner.add_argument("--gate-items", type=int, default=4000)
    runner.add_argument("--gate-steps", type=int, default=300)
    runner.add_argument("--no-gates", action="store_true")
    runner.add_argument("--quick", action="store_true", help="fit fewer pruned models again")
    commands.add_parser("table")
    options = parser.parse_args()
    if options.command == "table":
        print(markdown(options.results))
    else:
        run(options)


if __name__ == "__main__":
    main()

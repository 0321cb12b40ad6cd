"""Distilled or from scratch: half of a teacher's layers, the same shape from random weights, and the teacher itself.

    python experiments/distillation.py run teacher student scratch TEXTS... [--teacher english-encoder] [--layers 6]
        [--budget 3e16flops] [--seed 0] [--task-seeds 3] [--work runs/]
    python experiments/distillation.py table

POLYSEME_DATA names the folder of the data. The student begins with every second layer of the teacher and is distilled
on the texts; `scratch` is pretrained on the same corpus (the teacher's tokenizer) with the same budget, the same
shape and the objective without a teacher. Other rows leave out a part: `no-soft`, `no-cosine`, `no-pieces`; `random` is
distilled from random weights; `start` is what the student begins with, untrained. Each row is then fine-tuned to CoLA,
SST-2, MRPC, STS-B and RTE, and scored on dev with the first metric of each: the median over seeds, and the mean over
tasks. A row is written to `experiments/results/distillation/ROW-seedN.json` (`--results`) when it is finished, and
skipped where it is there.

The rule, written before the runs: the student keeps at least 95% of the teacher's mean, and is above `scratch`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

from tables import data_folder, machine, table

import polyseme
from polyseme.convert.hub import find_model
from polyseme.corpus.corpus import ABOUT
from polyseme.datasets.named_benchmarks import BENCHMARKS
from polyseme.layer_subset import spread_layers, with_layers
from polyseme.model_folder import load_bundle, model_folder, save_bundle
from polyseme.recipes.recipe_table import RECIPES
from polyseme.training.effects import read_log

RESULTS = Path(__file__).parent / "results" / "distillation"
TASKS = ("cola", "sst2", "mrpc", "stsb", "rte")
DISTILLED: dict[str, dict[str, Any]] = {
    "student": {},
    "no-soft": {"objective": {"soft_weight": 0.0}},
    "no-cosine": {"objective": {"cosine_weight": 0.0}},
    "no-pieces": {"objective": {"piece_weight": 0.0}},
    "random": {"random": True},
}
"""Row → what differs in its distillation."""
NAMES = {
    "teacher": "teacher",
    "student": "distilled",
    "no-soft": "… without soft targets",
    "no-cosine": "… without the cosine",
    "no-pieces": "… without the pieces themselves",
    "random": "… from random weights",
    "start": "every second layer, untrained",
    "scratch": "pretrained from scratch",
}
RULE = 0.95


def recipe_like(folder: Path, n_layers: int) -> dict[str, Any]:
    """A recipe of the teacher's family, and the teacher's shape with so many layers."""
    bundle = load_bundle(folder)
    recipe = next(each for each in RECIPES.values() if each.family == bundle.family.name)
    settings = dataclasses.asdict(bundle.config)
    names = ("width", "n_heads", "inner_width", "max_positions", "positions", "masks")
    shape = {name: settings[name] for name in names if name in recipe.shape}
    return {"recipe": recipe.name, "shape": {**shape, "n_layers": n_layers}}


def corpus_of(options: argparse.Namespace, teacher: Path) -> Path:
    """The texts in the teacher's pieces, built once."""
    [first, *_] = options.texts
    if (Path(first) / ABOUT).is_file():
        return Path(first)
    place: Path = options.work / "corpus"
    polyseme.build_corpus(options.texts, output=place, tokenizer=teacher, reuse=True)
    return place


def model_of(row: str, options: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    """The model of a row, trained if need be, and what its training gave."""
    teacher = model_folder(find_model(options.teacher))
    if row == "teacher":
        return teacher, {}
    run: Path = options.work / f"{row}-seed{options.seed}"
    if row == "start":
        bundle = load_bundle(teacher)
        save_bundle(with_layers(bundle, spread_layers(bundle.config.depth, options.layers)), run, force=True)
        return run, {}
    corpus = corpus_of(options, teacher)
    settings: dict[str, Any] = {"budget": options.budget, "device": options.device, "seed": options.seed, "workers": 2}
    if options.learning_rate is not None:
        settings["learning_rate"] = options.learning_rate
    if options.batch_size is not None:
        settings["batch_size"] = options.batch_size
    if not (run / "ledger.json").is_file():
        if row == "scratch":
            polyseme.pretrain(corpus, output=run, **settings, **recipe_like(teacher, options.layers))
        else:
            changes = dict(DISTILLED[row])
            random = changes.pop("random", False)
            student = recipe_like(teacher, options.layers) if random else {"layers": options.layers}
            polyseme.distill(corpus, model=teacher, output=run, **settings, **student, **changes)
    log = [line for line in read_log(run) if "held_out" in line]
    ledger = json.loads((run / "ledger.json").read_text(encoding="utf-8"))
    kept = ("steps", "pieces", "seconds", "flops", "device")
    return run, {
        "held_out": [{"step": line["step"], **line["held_out"]} for line in log],
        "cost": {name: ledger[name] for name in kept},
        "learning_rate": options.learning_rate,
    }


def run(row: str, options: argparse.Namespace) -> None:
    """Train a row's model, fit it to the tasks, and write what came of it."""
    place: Path = options.results / f"{row}-seed{options.seed}.json"
    if place.is_file():
        return
    model, training = model_of(row, options)
    scores: dict[str, list[float]] = {}
    limits = {} if options.epochs is None else {"epochs": options.epochs}
    for task in options.tasks:
        report = polyseme.finetune(
            task, model=model, data=data_folder(), seeds=options.task_seeds, device=options.device, **limits
        )
        scores[task] = [each.dev[BENCHMARKS[task].metrics[0]] for each in report.seeds]
        print(f"{row}, {task}: {100 * statistics.median(scores[task]):.1f}", flush=True)
    bundle = load_bundle(model)
    result = {
        "row": row,
        "seed": options.seed,
        "teacher": options.teacher,
        "layers": bundle.config.depth,
        "parameters": bundle.n_parameters(),
        "scores": scores,
        "budget": options.budget,
        "machine": machine("torch"),
        **training,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def mean_of(result: dict[str, Any]) -> float:
    """The mean over tasks of the median over seeds."""
    return statistics.mean(statistics.median(scores) for scores in result["scores"].values())


def error_of(result: dict[str, Any]) -> float:
    """The standard error of the mean over tasks, as far as seeds of fine-tuning differ."""
    variances = [statistics.variance(scores) / len(scores) for scores in result["scores"].values() if len(scores) > 1]
    return float(sum(variances) ** 0.5 / max(len(result["scores"]), 1))


def markdown(folder: Path) -> str:
    """All rows that were run, best first within what they are, and whether the rule holds."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise SystemExit(f"{folder} holds no results.")
    results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    results.sort(key=lambda each: (list(NAMES).index(each["row"]), each["seed"]))
    tasks = list(results[0]["scores"])
    teacher = next((mean_of(each) for each in results if each["row"] == "teacher"), None)
    lines = []
    for each in results:
        last = each["held_out"][-1] if each.get("held_out") else {}
        lines.append(
            [
                NAMES[each["row"]],
                str(each["layers"]),
                f"{each['parameters'] / 1e6:.1f}",
                *(f"{100 * statistics.median(each['scores'][task]):.1f}" for task in tasks),
                f"{100 * mean_of(each):.1f} ± {100 * error_of(each):.1f}",
                "" if teacher is None else f"{mean_of(each) / teacher:.1%}",
                *(f"{last[name]:.3f}" if name in last else "" for name in ("masked", "soft")),
                f"{each['cost']['seconds']:.0f}" if each.get("cost") else "",
            ]
        )
    head = ["", "layers", "M parameters", *tasks, "mean", "of the teacher", "held-out loss", "soft", "seconds"]
    means = {each["row"]: mean_of(each) for each in reversed(results)}
    verdict = ""
    if {"teacher", "student", "scratch"} <= means.keys():
        keeps, above = means["student"] / means["teacher"], means["student"] > means["scratch"]
        holds = "holds" if keeps >= RULE and above else "does not hold"
        verdict = (
            f"\n\nThe rule {holds}: the student keeps {keeps:.1%} of the teacher's mean and is "
            f"{100 * (means['student'] - means['scratch']):+.1f} points from the model from scratch."
        )
    return f"{table(head, lines)}{verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "table"))
    parser.add_argument("arguments", nargs="*", metavar="ROW|TEXTS", help=f"rows ({', '.join(NAMES)}), then texts")
    parser.add_argument("--teacher", default="english-encoder")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--budget", default="3e16flops")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--tasks", nargs="*", default=TASKS)
    parser.add_argument("--task-seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, default=Path("runs/distillation"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.action == "table":
        print(markdown(options.results))
        return
    rows = [each for each in options.arguments if each in NAMES]
    options.texts = [each for each in options.arguments if each not in NAMES]
    if not rows or (not options.texts and {*rows} - {"teacher", "start"}):
        parser.error("Name rows, and the texts that are trained on.")
    options.work.mkdir(parents=True, exist_ok=True)
    for row in rows:
        run(row, options)


if __name__ == "__main__":
    main()

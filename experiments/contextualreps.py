"""The four ways of `examples/contextualreps.ipynb` at full size; and the notebook itself, run without Jupyter.

    python experiments/contextualreps.py run --elmo runs/elmo-small/model --bert minilm --encoder english-encoder
        [--seeds 5]
    python experiments/contextualreps.py run --bert minilm --seeds 1 --max-items 60 --output try.json    # a quick trial
    python experiments/contextualreps.py notebook

`run` fits the encoders that are named to SST in three classes, frozen under a BiLSTM and fine-tuned, on all sentences,
and writes `experiments/results/contextualreps.json` (`--output`), which the notebook shows. Rows of other encoders
stay in that file, and finished rows are kept (`--work`), so that the same command goes on where it was stopped.
`notebook` runs every cell in order and stores its output; it trains on a small sample.
POLYSEME_DATA names the folder of the data. An ELMo to take is `polyseme pretrain … --recipe elmo-small`; its row in
`experiments/pretraining_rows.py` names the text and the budget.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import dataclasses
import io
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tables import data_folder, machine

import polyseme
from polyseme.datasets.named_benchmarks import read_benchmark
from polyseme.tasks.items import TaskData
from polyseme.transfer.finetune_report import FinetuneReport
from polyseme.transfer.task_folder import REPORT

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "contextualreps.ipynb"
RESULTS = Path(__file__).parent / "results" / "contextualreps.json"
STRATEGIES: dict[str, dict[str, Any]] = {
    "frozen, BiLSTM": {"frozen": True, "layer": "mix", "head": "bilstm"},
    "fine-tuned": {},
}


def run(options: argparse.Namespace) -> None:
    """Both strategies of every encoder that is named, one row each, beside the rows that are there."""
    rows = []
    models = {"ELMo": options.elmo, "BERT": options.bert, "English encoder": options.encoder}
    named = {label: model for label, model in models.items() if model is not None}
    if not named:
        raise SystemExit("No encoder is named: --elmo FOLDER, --bert minilm or --encoder english-encoder.")
    data = sample(options.max_items)
    for label, model in named.items():
        for strategy, settings in STRATEGIES.items():
            trial = "" if options.max_items is None else f".{options.max_items}"
            folder = options.work / f"{label}.{strategy.replace(', ', '-')}{trial}"
            if (folder / REPORT).is_file():
                report = FinetuneReport.from_json(json.loads((folder / REPORT).read_text(encoding="utf-8")))
            else:
                report = polyseme.finetune(data, model=model, seeds=options.seeds, output=folder, **settings)
            figures = {split: vars(report.split(split)["accuracy"]) for split in ("dev", "test")}
            mix = None if report.best.mix is None else report.best.mix["shares"]
            row = {
                "model": label if Path(model).is_dir() else f"{label} ({model})",
                "strategy": strategy,
                "seeds": len(report.seeds),
                "mix": mix,
                "machine": machine("torch"),
            }
            rows.append({**row, **figures, "seconds": report.ledger.seconds, "device": report.ledger.device})
            print(json.dumps(rows[-1]))
    task = "sst3, all sentences" if options.max_items is None else f"sst3, {options.max_items} of each split"
    rows = merged(options.output, task, rows)
    content = {"task": task, "machine": "; ".join(dict.fromkeys(row["machine"] for row in rows)), "rows": rows}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def sample(count: int | None) -> TaskData:
    """The task; of each split so many items at most, evenly spaced."""
    data = read_benchmark("sst3", data_folder())
    if count is None:
        return data
    splits = {name: items[:: -(-len(items) // count)] for name, items in data.splits.items()}
    return dataclasses.replace(data, splits=splits, sampled=tuple(splits))


def merged(output: Path, task: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, and those of the file that are of other models."""
    if not output.is_file():
        return list(rows)
    content = json.loads(output.read_text(encoding="utf-8"))
    if content["task"] != task:
        raise SystemExit(f"{output} has figures of other data, {content['task']}. Name another file (--output).")
    models = {row["model"] for row in rows}
    stored = [{"machine": content["machine"], **row} for row in content["rows"] if row["model"] not in models]
    return [*stored, *rows]


def run_notebook(path: Path) -> None:
    """Run the cells of a notebook in one namespace and store what each prints and shows."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    os.chdir(path.parent)
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        number += 1
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            started = time.process_time()
            value = _run_cell("".join(cell["source"]), names)
            print(f"cell {number}: {time.process_time() - started:.1f} s", file=sys.stderr)
        outputs: list[dict[str, Any]] = []
        if printed.getvalue():
            text = printed.getvalue().splitlines(keepends=True)
            outputs.append({"name": "stdout", "output_type": "stream", "text": text})
        if value is not None:
            shown = {"data": _shown(value), "execution_count": number, "metadata": {}, "output_type": "execute_result"}
            outputs.append(shown)
        cell |= {"execution_count": number, "outputs": outputs}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last line, where that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def _shown(value: Any) -> dict[str, list[str] | str]:
    """A value as notebooks store it: a picture, a page or text."""
    plain = {"text/plain": [f"<{type(value).__name__}>"]}
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, format="png", dpi=72)
        return {"image/png": base64.b64encode(picture.getvalue()).decode(), **plain}
    if hasattr(value, "_repr_html_"):
        return {"text/html": value._repr_html_().splitlines(keepends=True), **plain}
    return {"text/plain": repr(value).splitlines(keepends=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("run")
    measure.add_argument("--elmo", help="a model folder")
    measure.add_argument("--bert", help="a packaged model or a folder: minilm")
    measure.add_argument("--encoder", help="likewise: english-encoder")
    measure.add_argument("--seeds", type=int, default=5)
    measure.add_argument("--max-items", type=int, help="of each split, evenly spaced, to try the script out")
    measure.add_argument("--work", type=Path, default=Path("runs/contextualreps"), help="where fitted models are kept")
    measure.add_argument("--output", type=Path, default=RESULTS)
    commands.add_parser("notebook")
    options = parser.parse_args()
    if options.command == "run":
        run(options)
    else:
        run_notebook(NOTEBOOK)


if __name__ == "__main__":
    main()

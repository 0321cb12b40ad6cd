"""The four ways of `examples/contextualreps.ipynb` at full size; and the notebook itself, run without Jupyter.

    python experiments/contextualreps.py run --elmo runs/elmo-small/model [--bert minilm] [--encoder english-encoder]
        [--seeds 5]
    python experiments/contextualreps.py notebook

`run` fits both encoders, with `--encoder` a third, to SST in three classes, frozen under a BiLSTM and fine-tuned, on
all sentences, and writes `experiments/results/contextualreps.json` (`--output`), which the notebook shows. Finished
rows are kept (`--work`), so that the same command goes on where it was stopped. `notebook` runs every cell in order and
stores its output; it trains on a small sample.
POLYSEME_DATA names the folder of the data. An ELMo to take is `polyseme pretrain … --recipe elmo-small`; its row in
`experiments/pretraining_rows.py` names the text and the budget.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tables import data_folder, machine

import polyseme
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
    """All four, one row each."""
    rows = []
    models = {"ELMo": options.elmo, "BERT": options.bert, "English encoder": options.encoder}
    for label, model in ((label, model) for label, model in models.items() if model is not None):
        for strategy, settings in STRATEGIES.items():
            folder = options.work / f"{label}.{strategy.replace(', ', '-')}"
            if (folder / REPORT).is_file():
                report = FinetuneReport.from_json(json.loads((folder / REPORT).read_text(encoding="utf-8")))
            else:
                report = polyseme.finetune(
                    "sst3", data=data_folder(), model=model, seeds=options.seeds, output=folder, **settings
                )
            figures = {split: vars(report.split(split)["accuracy"]) for split in ("dev", "test")}
            mix = None if report.best.mix is None else report.best.mix["shares"]
            row = {
                "model": label if Path(model).is_dir() else f"{label} ({model})",
                "strategy": strategy,
                "seeds": len(report.seeds),
                "mix": mix,
            }
            rows.append({**row, **figures, "seconds": report.ledger.seconds, "device": report.ledger.device})
            print(json.dumps(rows[-1]))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    content = {"task": "sst3, all sentences", "machine": machine(), "rows": rows}
    options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


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
    measure.add_argument("--elmo", required=True, help="a model folder")
    measure.add_argument("--bert", default="minilm")
    measure.add_argument("--encoder", help="a third model: english-encoder")
    measure.add_argument("--seeds", type=int, default=5)
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

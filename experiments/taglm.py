"""Where a tagger reads the vectors of a language model, and which (Peters et al. 2017, TagLM), for any model.

    python experiments/taglm.py run baseline elmo-input elmo-between elmo-output elmo-forward elmo-alone \
        --elmo runs/elmo [--flair runs/flair] [--glove glove.6B.50d.txt] [--tasks wnut17 wikigold ud-ewt] [--seeds 3]
    python experiments/taglm.py table

POLYSEME_DATA names the folder of the data. The tagger is the same in all rows: two BiLSTM layers over learned word
vectors and a character CNN (and GloVe's vectors with `--glove`), and for entities a CRF. A frozen model's vectors are
read at the input, between the two layers, or beside the output. `elmo-forward` reads the forward half of the biLM
alone; the rows `…-alone` read the model's vectors at the input, and nothing else. Each row is written to
`TASK.ROW.json` in `experiments/results/taglm` (`--results`) when it is finished; `--cache FOLDER` keeps frozen
vectors for the others. Of each seed the epoch is chosen on dev, and test is scored once; figures are means over seeds
with the standard deviation.

The models: ELMo's is that of `experiments/recurrent.py elmo` or `polyseme pretrain … --recipe elmo-small`, Flair's that
of `polyseme pretrain … --recipe flair`; the encoder in the box and MiniLM are the packaged models.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from stacked_inputs import fit, read_options, shown
from tables import table

import polyseme
from polyseme.bundle import Bundle
from polyseme.convert.families import FAMILIES

RESULTS = Path(__file__).parent / "results" / "taglm"
TASKS = {"wnut17": "bilstm-crf", "wikigold": "bilstm-crf", "ud-ewt": "bilstm"}
"""Task → the head."""
MODELS = {"elmo": "our ELMo", "flair": "our Flair", "english": "the encoder in the box", "minilm": "MiniLM"}
PLACES = {"input": "at the input", "between": "between the layers", "output": "at the output"}
NAMES = {
    "baseline": "word vectors (GloVe with --glove, else learned) and a character CNN",
    **{f"{model}-{at}": f"+ {name}, {place}" for model, name in MODELS.items() for at, place in PLACES.items()},
    "elmo-forward": "+ the forward half of our ELMo, between the layers",
    **{f"{model}-alone": f"{name} alone" for model, name in MODELS.items()},
}
"""Row → what it is."""


def forward_half(path: str) -> Any:
    """The forward language model of a two-way one, as a model of its own."""
    bundle = polyseme.load(path).bundle
    half = bundle.encoder.halves()[0]
    return polyseme.Model(Bundle(family=FAMILIES["lstm"], encoder=half, outputs={}, tokenizer=bundle.tokenizer))


def settings_of(row: str, task: str, options: argparse.Namespace) -> dict[str, Any]:
    """What `finetune` takes."""
    own = ",".join([*([options.glove] if options.glove else []), "char-cnn"])
    shared: dict[str, Any] = {"head": TASKS[task], "head_layers": 2}
    if row == "baseline":
        return {**shared, "model": "none", "inputs": own}
    model, place = row.split("-")
    path = getattr(options, model)
    if path is None:
        raise SystemExit(f"The row {row!r} needs --{model}: the folder of the model.")
    if place == "alone":
        return {**shared, "model": path, "frozen": True}
    if place == "forward":
        return {**shared, "model": forward_half(path), "at": "between", "inputs": own}
    return {**shared, "model": path, "frozen": True, "at": place, "inputs": own}


def markdown(folder: Path) -> str:
    """All rows that were run, with what each has beyond the baseline."""
    results = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}
    columns = [(task, split) for task in TASKS for split in ("dev", "test") if f"{task}.baseline" in results]
    rows = []
    for row, name in NAMES.items():
        cells = [results.get(f"{task}.{row}") for task, _ in columns]
        if not any(cells):
            continue
        figures = []
        for cell, (task, split) in zip(cells, columns, strict=True):
            figure = "" if cell is None else shown(cell, split)
            if cell is not None and figure and row != "baseline":
                more = 100 * (cell["mean"][split] - results[f"{task}.baseline"]["mean"][split])
                figure += f" ({more:+.1f})"
            figures.append(figure)
        rows.append([name, *figures])
    return table(["", *(f"{task}, {split}" for task, split in columns)], rows)


def main() -> None:
    """Run rows, or print the table of those that were."""
    models = {"elmo": None, "flair": None, "glove": None, "english": "english-encoder", "minilm": "minilm"}
    options = read_options(__doc__, NAMES, TASKS, models, tasks=["wnut17"], seeds=3, results=RESULTS)
    if options.command == "run":
        for row in options.rows:
            for task in options.tasks:
                fit(row, task, options, **settings_of(row, task, options))
    print(markdown(options.results))


if __name__ == "__main__":
    main()

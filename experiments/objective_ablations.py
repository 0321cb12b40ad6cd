"""ELECTRA's ablations and SpanBERT's, at one size and one budget: five bars, three generators, four ways to mask.

    python experiments/objective_ablations.py run [CORPUS|TEXTS...] [--rows BERT ELECTRA] [--budget 1e16flops]
        [--seeds 2] [--jobs 4] [--stop-after 9min] [--work runs/ablations]
    python experiments/objective_ablations.py table [--docs docs/objective_ablations.md]

POLYSEME_DATA names the folder of the data; its texts are read where none are named. One sweep (`polyseme.sweep`)
trains every row on the same corpus with 12 layers of 256, and measures its model: the held-out loss of its own
objective, BLiMP where the model can score, and CoLA, SST-2, MRPC, STS-B and RTE on dev. The budget is one of
operations, so that runs may share a GPU (start `nvidia-cuda-mps-control -d` before): 1e16 are about a minute of an H200
alone. The same command resumes; `run` writes `experiments/results/objective_ablations.json` (`--results`) each time,
with the rows that are there, and `table` puts it into the page.

Rules, written before the runs. The measure is the mean over the five tasks. A claim *holds* if the first row is above
the second by more than two standard errors, its opposite if it is below by as much, and else nothing is decided; the
error is that over seeds and that of the items together. CLAIMS has them, with what the papers found.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pretraining_runs import CLOSED, ROWS_AT_ONCE, corpus_files, print_ended, what_is_left, with_stored_runs
from tables import data_folder, fill_page, machine, table

import polyseme
from polyseme.corpus.corpus import ABOUT
from polyseme.sweeps.sweep_report import Sweep
from polyseme.training.effects import read_log

RESULTS = Path(__file__).parent / "results" / "objective_ablations.json"
PAGE = Path(__file__).parent.parent / "docs" / "objective_ablations.md"
MARKS = ("<!-- results -->", "<!-- end of results -->")
SIZE = {"n_layers": 12, "width": 256, "n_heads": 4, "inner_width": 1024}
VOCAB_SIZE = 16_384
TASKS = ("cola", "sst2", "mrpc", "stsb", "rte")
MEAN = "glue mean"
BERT: dict[str, Any] = {"recipe": "bert-small"}
ELECTRA: dict[str, Any] = {"recipe": "electra-small", "set.embedding_width": None}
"""With embeddings as wide as the stack, so that the model of every row has the same size."""
ROWS: dict[str, dict[str, Any]] = {
    "ELECTRA": {**ELECTRA, "learn": "all"},
    "ELECTRA 15%": {**ELECTRA, "learn": "masked"},
    "Replace MLM": {**ELECTRA, "learn": "replace"},
    "All-Tokens MLM": {**ELECTRA, "learn": "all-tokens"},
    "BERT": {**BERT, "unit": "piece"},
    "generator 1/4": {**ELECTRA, "learn": "all", "generator_share": 0.25},
    "generator 1": {**ELECTRA, "learn": "all", "generator_share": 1.0},
    "whole words": {**BERT, "unit": "word"},
    "spans": {**BERT, "unit": "span"},
    "spans and boundaries": {**BERT, "unit": "span", "boundary": True},
}
"""ELECTRA's generator is half as wide as the model, and a third as deep, as the recipe has it for budgets."""


class Claim(NamedTuple):
    """What a paper found: the first row is above the second."""

    first: str
    second: str
    found: str


CLAIMS = (
    Claim("ELECTRA", "BERT", "85.0 and 82.2 (GLUE, Clark et al. 2020)"),
    Claim("ELECTRA", "ELECTRA 15%", "85.0 and 82.4"),
    Claim("All-Tokens MLM", "BERT", "84.3 and 82.2"),
    Claim("Replace MLM", "BERT", "82.4 and 82.2"),
    Claim("ELECTRA", "All-Tokens MLM", "85.0 and 84.3"),
    Claim("generator 1/4", "generator 1", "generators of a quarter to a half of the model's size are best"),
    Claim("ELECTRA", "generator 1", "the same"),
    Claim("spans", "BERT", "random spans are above pieces on most tasks (Joshi et al. 2020)"),
    Claim("spans", "whole words", "the same of whole words"),
    Claim("spans and boundaries", "spans", "the boundary objective adds to spans, most on coreference and questions"),
)


def corpus_of(options: argparse.Namespace) -> Path:
    """The texts as one corpus for all rows, built once."""
    if len(options.texts) == 1 and (Path(options.texts[0]) / ABOUT).is_file():
        return Path(options.texts[0])
    place: Path = options.work / "corpus"
    polyseme.build_corpus(
        options.texts, output=place, frame="bert", vocab_size=options.vocab_size, lowercase=True, reuse=True
    )
    return place


def run(options: argparse.Namespace, started: float) -> None:
    """Train and measure what is missing, and write what there is; a slice counts from `started`."""
    options.work.mkdir(parents=True, exist_ok=True)
    then: list[tuple[str, dict[str, Any]]] = []
    limit = {} if options.pairs is None else {"pairs": options.pairs}
    if options.pairs != 0:
        on_gpu = torch.cuda.is_available() and options.device != "cpu"
        scored: dict[str, Any] = {"name": "blimp", "data": str(data_folder()), "dtype": "bf16" if on_gpu else "fp32"}
        then.append(("evaluate", {**scored, **limit}))
    epochs = {} if options.epochs is None else {"epochs": options.epochs}
    if options.tasks:
        suite = {"suite": "glue", "tasks": list(options.tasks), "data": str(data_folder()), "seeds": options.task_seeds}
        then.append(("benchmark", {**suite, **epochs}))
    corpus = str(corpus_of(options))
    sweep = polyseme.sweep(
        "pretrain",
        corpus,
        rows={name: ROWS[name] for name in options.rows},
        shape={**SIZE, **json.loads(options.shape)},
        micro_batch_size=ROWS_AT_ONCE,
        budget=options.budget,
        seeds=options.seeds,
        device=options.device,
        then=then,
        jobs=options.jobs,
        stop_after=what_is_left(options.stop_after, started),
        output=options.work / "sweep.html",
        on_report=print_ended,
    )
    parts = {each.name: held_out(Path(each.folder) / "run") for each in sweep.runs if each.state == "finished"}
    if options.results.is_file():
        stored = json.loads(options.results.read_text(encoding="utf-8"))
        if stored["budget"] != options.budget:
            raise SystemExit(f"{options.results} has runs of another budget, {stored['budget']}. Move it away.")
        sweep = with_stored_runs(sweep, Sweep.from_json(stored["sweep"]), list(ROWS))
        parts = {**stored["parts"], **parts}
    record = {"budget": options.budget, "machine": machine("torch"), "parts": parts, "sweep": sweep.to_json()}
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print("\n".join(f"{each.name}: {each.state} {each.message}".rstrip() for each in sweep.runs))


def held_out(folder: Path) -> dict[str, float]:
    """The last held-out losses of a run, by part."""
    [*_, last] = [line["held_out"] for line in read_log(folder) if "held_out" in line] or [{}]
    return {name: float(value) for name, value in last.items()}


def verdict(sweep: Sweep, claim: Claim) -> list[str]:
    """A claim, by how much it is met, and what the rule says."""
    difference = sweep.difference(MEAN, {"row": claim.first}, {"row": claim.second})
    error = math.hypot(difference.seed_error, difference.item_error or 0.0)
    state = "holds" if difference.value > 2 * error else "the opposite holds" if difference.value < -2 * error else ""
    numbers = f"{100 * difference.value:+.1f} ± {100 * error:.1f}"
    return [f"{claim.first} above {claim.second}", claim.found, numbers, state or "not decided"]


def markdown(record: dict[str, Any]) -> str:
    """The table of rows, and that of claims."""
    sweep = Sweep.from_json(record["sweep"])
    figures = [name for name in sweep.figures if name != "held-out loss"]
    lines = []
    for point in sweep.points:
        parts = [record["parts"][each.name] for each in point.runs if each.name in record["parts"]]
        names = [name for name in (parts[0] if parts else {}) if name not in ("loss", "replaced_share")]
        losses = ", ".join(f"{name} {sum(each[name] for each in parts) / len(parts):.3f}" for name in names)
        summaries = [point.summary(name) for name in figures]
        cells = ["" if each is None else each.text() for each in summaries]
        lines.append([point.label, str(len(parts)), losses, *cells])
    finished = {point.settings["row"] for point in sweep.points if point.summary(MEAN) is not None}
    claims = [verdict(sweep, each) for each in CLAIMS if {each.first, each.second} <= finished]
    first = table(["row", "seeds", "held-out losses (nats)", *figures], lines)
    second = [table(["claim", "the paper", "difference of the means", "here"], claims)] if claims else []
    return "\n\n".join([f"Budget {record['budget']} each; {record['machine']}.", first, *second])


def main() -> None:
    started = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "table"))
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--budget", default="1e16flops")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--stop-after")
    parser.add_argument("--pairs", type=int, help="pairs of each BLiMP paradigm; 0: no BLiMP")
    parser.add_argument("--tasks", nargs="*", default=TASKS)
    parser.add_argument("--task-seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--shape", default="{}", help="changes of the size, as JSON")
    parser.add_argument("--vocab-size", type=int, default=VOCAB_SIZE)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, default=Path("runs/ablations"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=PAGE)
    options = parser.parse_args()
    if options.action == "run":
        options.texts = options.texts or corpus_files(CLOSED)
        run(options, started)
        return
    if not options.results.is_file():
        raise SystemExit(f"There are no results in {options.results}.")
    fill_page(options.docs, MARKS, markdown(json.loads(options.results.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()

"""RoBERTa's four input formats, with and without next sentence or sentence order: one model, one text, equal work.

    python experiments/input_formats.py run -o runs/formats.html [--jobs 8] [--stop-after 9min]
    python experiments/input_formats.py table [--docs docs/input_formats.md]

BERT with 12 layers of 256 is trained on the texts of the data folder (POLYSEME_DATA) in eight ways, two seeds each, by
`polyseme sweep`: runs go side by side, each in a process of its own (on a GPU best under CUDA's multi-process service),
and the same command resumes them. Every run reads as many pieces as packed rows do in two minutes on an H200, padding
not counted. Then the model is scored on BLiMP and fine-tuned to five tasks of GLUE (dev), and its loss is measured on
held-out text in packed rows, which are the same for all. What decides which claim is in docs/input_formats.md and was
written before any run; `table` applies it. Results are kept in `experiments/results/input_formats/sweep.json`; rows
that are run elsewhere (`--rows`) are added to those that are there; they are written up to a minute after a slice.

To try it out: `run --texts some.txt --recipe bert-tiny --budget 20steps --tasks rte --epochs 1 --pairs 2`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
from pathlib import Path
from typing import Any

import torch
from pretraining_runs import CLOSED, ROWS_AT_ONCE, corpus_files, print_ended, with_stored_runs
from tables import data_folder, fill_page, table

import polyseme
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import RowOptions
from polyseme.corpus.packed_rows import Packed
from polyseme.datasets.named_benchmarks import BENCHMARKS
from polyseme.model_folder import load_bundle
from polyseme.objectives.masked import Masked
from polyseme.sweeps.sweep_report import Figure, RunResult, Sweep
from polyseme.training.run_folder import RUN

RESULTS = Path(__file__).parent / "results" / "input_formats"
DOCS = Path(__file__).parents[1] / "docs" / "input_formats.md"
MARKS = ("<!-- input formats: begin -->", "<!-- input formats: end -->")
ROWS: dict[str, dict[str, Any]] = {
    "packed rows": {"next": None},
    "segment-pair, next sentence": {"layout": "segment-pair", "next": "nsp"},
    "segment-pair": {"layout": "segment-pair"},
    "segment-pair, sentence order": {"layout": "segment-pair", "next": "sop"},
    "sentence-pair, next sentence": {"layout": "sentence-pair", "next": "nsp"},
    "sentence-pair": {"layout": "sentence-pair"},
    "full-sentences": {"layout": "full-sentences"},
    "doc-sentences": {"layout": "doc-sentences"},
}
SHAPE = {"n_layers": 12, "width": 256, "n_heads": 4, "inner_width": 1024}
TUNING_SEEDS = {"cola": 3, "sst2": 1, "mrpc": 3, "stsb": 3, "rte": 3}
"""Tasks, and how often the model is fine-tuned to each; the median counts."""
MEAN, PACKED, OWN, BLIMP = "five tasks", "held-out loss, packed rows", "held-out loss", "blimp accuracy"
SURE = 2.0
"""Standard errors that a difference must exceed."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """A difference that a paper reports, and when it is found again."""

    text: str
    first: str
    second: str
    above: bool
    """Whether the first must be above the second; else it must not be below it."""


CLAIMS = (
    Claim("BERT: the next sentence helps", "segment-pair, next sentence", "segment-pair", True),
    Claim("RoBERTa: single sentences hurt", "segment-pair, next sentence", "sentence-pair, next sentence", True),
    Claim("RoBERTa: full sentences without it are no worse", "full-sentences", "segment-pair, next sentence", False),
    Claim("RoBERTa: documents apart are no worse", "doc-sentences", "full-sentences", False),
    Claim("ALBERT: the order is better", "segment-pair, sentence order", "segment-pair, next sentence", True),
)


# --- runs -------------------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> Sweep:
    """All runs as far as there is time, and what came of them so far."""
    data, dtype = str(data_folder()), "bf16" if torch.cuda.is_available() else "fp32"
    limits = {} if options.epochs is None else {"epochs": options.epochs}
    fits = [
        ("finetune", {"task": task, "data": data, "seeds": options.tuning_seeds or TUNING_SEEDS[task], **limits})
        for task in options.tasks
    ]
    scored: dict[str, Any] = {"name": "blimp", "data": data, "hide": "piece", "dtype": dtype, "pairs": options.pairs}
    sweep = polyseme.sweep(
        "pretrain",
        options.texts or corpus_files(CLOSED),
        recipe=options.recipe,
        shape=SHAPE if options.recipe == "bert-small" else None,
        budget=options.budget,
        length=128,
        micro_batch_size=ROWS_AT_ONCE,
        rows={name: ROWS[name] for name in options.rows},
        seeds=options.seeds,
        then=[("evaluate", scored), *fits],
        jobs=options.jobs,
        stop_after=options.stop_after,
        output=options.output,
        on_report=print_ended,
    )
    runs = [with_packed_loss(each) for each in sweep.runs]
    sweep = dataclasses.replace(sweep, runs=tuple(dataclasses.replace(each, folder=each.name) for each in runs))
    options.results.mkdir(parents=True, exist_ok=True)
    file = options.results / "sweep.json"
    if file.is_file():
        sweep = with_stored_runs(sweep, Sweep.from_json(json.loads(file.read_text(encoding="utf-8"))), list(ROWS))
    file.write_text(json.dumps(sweep.to_json(), indent=1) + "\n", encoding="utf-8")
    return sweep


def with_packed_loss(result: RunResult) -> RunResult:
    """The result with the loss over packed rows, which is measured once; as it is if there is no model yet."""
    folder = Path(result.folder)
    kept = folder / "packed_loss.json"
    if not (folder / "run" / "model").is_dir():
        return result
    if not kept.is_file():
        kept.write_text(json.dumps(packed_loss(folder / "run")))
    loss = Figure(value=json.loads(kept.read_text()), unit="nats")
    return dataclasses.replace(result, figures={**result.figures, PACKED: loss})


@torch.inference_mode()
def packed_loss(run: Path, *, n_rows: int = 2048, batch_size: int = 64) -> float:
    """Nats per masked piece of held-out text in packed rows of 128, with the same masks for all models."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    place = Path(json.loads((run / RUN).read_text())["settings"]["corpus"])
    corpus = Corpus.open(place if place.is_absolute() else run / place)
    objective = Masked().for_corpus(corpus)
    nets = objective.nets(load_bundle(run / "model", device=device)).eval()
    rows = Packed().rows(corpus, RowOptions(split="held", length=128))
    total = count = 0.0
    for first in range(0, min(rows.n_rows, n_rows), batch_size):
        example = objective.corrupt(rows.rows(torch.arange(first, min(first + batch_size, rows.n_rows)).numpy()))
        arrays = {name: torch.from_numpy(each).to(device) for name, each in example.arrays.items()}
        total += float(objective.loss(nets, arrays).parts["masked"])
        count += example.counts["masked"]
    return total / count


# --- the table --------------------------------------------------------------------------------------------------------


def with_mean(sweep: Sweep) -> Sweep:
    """The sweep with the mean over the tasks, where a run has all of them."""
    tasks = [name for name in sweep.figures if name.endswith(" on dev") and _counts(name)]
    runs = []
    for each in sweep.runs:
        figures = [each.figures[name] for name in tasks if name in each.figures]
        if len(figures) == len(tasks) and figures:
            errors = [figure.error or 0.0 for figure in figures]
            value = statistics.fmean(figure.value for figure in figures)
            mean = Figure(value=value, unit="share", error=math.hypot(*errors) / len(errors))
            each = dataclasses.replace(each, figures={**each.figures, MEAN: mean})
        runs.append(each)
    return dataclasses.replace(sweep, runs=tuple(runs))


def _counts(figure: str) -> bool:
    """Whether a figure is the first metric of its task."""
    task, _, rest = figure.partition(" ")
    return task in BENCHMARKS and rest.removesuffix(" on dev") == BENCHMARKS[task].metrics[0]


def markdown(sweep: Sweep) -> str:
    """The rows, and what became of each claim."""
    sweep = with_mean(sweep)
    tasks = [name for name in sweep.figures if name.endswith(" on dev") and _counts(name)]
    columns = {OWN: "loss, own rows", PACKED: "loss, packed rows", BLIMP: "BLiMP", MEAN: MEAN}
    columns |= {name: name.partition(" ")[0] for name in tasks}
    lines = []
    for point in sweep.points:
        summaries = [point.summary(name) for name in columns]
        lines.append([point.label, *("" if each is None else each.text() for each in summaries)])
    parts = [table(["", *columns.values()], lines), " ".join(sweep.lines())]
    return "\n\n".join([*parts, table(["claim", "difference in points", "holds"], verdicts(sweep))])


def verdicts(sweep: Sweep) -> list[list[str]]:
    """What became of each claim, as far as its rows have been run."""
    points = {point.settings["row"]: point.summary(MEAN) for point in sweep.points}
    spreads = [each.spread for each in points.values() if each is not None and each.n > 1]
    pooled = math.sqrt(statistics.fmean(each**2 for each in spreads)) if spreads else 0.0
    lines = []
    for claim in CLAIMS:
        first, second = points.get(claim.first), points.get(claim.second)
        if first is None or second is None:
            lines.append([claim.text, "", "not measured"])
            continue
        of_seeds = pooled * math.sqrt(1 / first.n + 1 / second.n)
        of_items = math.hypot(first.error or 0.0, second.error or 0.0)
        difference, error = first.mean - second.mean, math.hypot(of_seeds, of_items)
        holds = difference > SURE * error if claim.above else difference > -SURE * error
        found = f"{100 * difference:+.1f} ± {100 * error:.1f} (seeds alone {100 * of_seeds:.1f})"
        opposite = claim.above and difference < -SURE * error
        lines.append([claim.text, found, "yes" if holds else "the opposite" if opposite else "no difference shown"])
        if not claim.above and not holds:
            lines[-1][-1] = "no: it is worse"
    return lines


def main() -> None:
    """Run what is left, or make the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/formats.html"))
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--budget", default="140e6pieces")
    parser.add_argument("--jobs", type=int, help="runs side by side")
    parser.add_argument("--stop-after", help="the time of a slice: 9min")
    parser.add_argument("--tasks", nargs="*", choices=list(TUNING_SEEDS), default=list(TUNING_SEEDS))
    parser.add_argument("--tuning-seeds", type=int)
    parser.add_argument("--epochs", type=int, help="fewer epochs of fine-tuning, to try the script out")
    parser.add_argument("--pairs", type=int, help="fewer pairs of each of BLiMP's paradigms")
    parser.add_argument("--recipe", default="bert-small")
    parser.add_argument("--texts", nargs="+")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, help=f"page to fill, such as {DOCS.name}")
    options = parser.parse_args()
    if options.command == "run":
        sweep = run(options)
    else:
        sweep = Sweep.from_json(json.loads((options.results / "sweep.json").read_text(encoding="utf-8")))
    text = markdown(sweep)
    print(text)
    if options.docs is not None:
        fill_page(options.docs, MARKS, text)


if __name__ == "__main__":
    main()

"""The standard model of claims about pretraining: 6 layers of 256, rows of 128, about a minute of an H200, three seeds.

The small size, 2 layers of 128 and rows of 64, is for minutes on a CPU. Both train on text that is read at most eight
times. Rows have names, and claims that name the same row share its runs. What follows a run is measured for each claim,
and once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyseme.claims.claim import Experiment
from polyseme.claims.lab import Lab
from polyseme.sweeps.sweep_report import RunResult

NAME = "standard"
FULL: Mapping[str, Any] = {"n_layers": 6, "width": 256, "n_heads": 4, "inner_width": 1024}
SMALL: Mapping[str, Any] = {"n_layers": 2, "width": 128, "n_heads": 2, "inner_width": 512}
FULL_FLOPS, SMALL_FLOPS = 5e15, 1.5e13
LOSS = "held-out loss"
BLIMP = "blimp accuracy"
GLUE = "glue mean"
SMALL_LACKS = (
    "The small model (2 layers of 128, a few million pieces of Wikipedia) hardly gets above guessing on tasks, so that "
    "differences there mean little; MRPC and RTE stand for the five tasks."
)

BERT: Mapping[str, Any] = {"recipe": "bert-small", "next": None, "static_copies": None}
GPT: Mapping[str, Any] = {"recipe": "gpt-mini"}
ALBERT: Mapping[str, Any] = {"recipe": "albert-small", "next": None, "unit": "piece"}
ELECTRA: Mapping[str, Any] = {"recipe": "electra-small", "set.embedding_width": None, "generator_share": 0.5}
ROWS: Mapping[str, Mapping[str, Any]] = {
    "masked": BERT,
    "causal": GPT,
    "causal, unscaled": {**GPT, "scale": 1.0},
    "mask rate 0.4": {**BERT, "mask_rate": 0.4},
    "mask rate 0.05": {**BERT, "mask_rate": 0.05},
    "always [MASK]": {**BERT, "mask_share": 1.0, "random_share": 0.0},
    "one static mask": {**BERT, "static_copies": 1},
    "next sentence": {**BERT, "layout": "segment-pair", "next": "nsp"},
    "sentence order": {**BERT, "layout": "segment-pair", "next": "sop"},
    "pairs alone": {**BERT, "layout": "segment-pair"},
    "shared layers": {**ALBERT, "shares": True},
    "own layers": {**ALBERT, "shares": False},
    "replaced": {**ELECTRA, "learn": "all"},
    "replaced, 15% judged": {**ELECTRA, "learn": "masked"},
    "generator 1/4": {**ELECTRA, "learn": "all", "generator_share": 0.25},
    "generator 1": {**ELECTRA, "learn": "all", "generator_share": 1.0},
    "permuted": {"recipe": "xlnet-small"},
}
"""Row → what differs. A row is never changed once it has been run: a new one has a new name."""


def row_length(lab: Lab) -> int:
    """Pieces per row, as many as the model has positions."""
    return 64 if lab.small else 128


def pretrain_rows(lab: Lab, rows: Sequence[str], *, then: Sequence[Any] = ()) -> list[RunResult]:
    """Runs of rows, with what follows them."""
    shape = SMALL if lab.small else FULL
    return lab.sweep(
        NAME,
        "pretrain",
        lab.texts("wiki-00") if lab.small else lab.texts(),
        rows={row: _settings(row, shape) for row in rows},
        shape=dict(shape),
        length=row_length(lab),
        vocab_size=4096 if lab.small else 16_384,
        budget=lab.budget(SMALL_FLOPS if lab.small else FULL_FLOPS, "flops"),
        then=list(then),
        **({"batch_size": 32} if lab.small else {}),
    )


def standard_rows(*rows: str, then: Sequence[Callable[[Lab], Any]] = ()) -> Experiment:
    """The experiment that consists of rows, with what follows each."""

    def run(lab: Lab) -> list[RunResult]:
        return pretrain_rows(lab, rows, then=[each(lab) for each in then])

    return run


def _settings(row: str, shape: Mapping[str, Any]) -> dict[str, Any]:
    """Of a row, with what depends on the size."""
    settings = dict(ROWS[row])
    shares = settings.pop("shares", None)
    if shares is None:
        return settings
    n_layers = shape["n_layers"]
    layers = [0] * n_layers if shares else list(range(n_layers))
    return {**settings, "layer_map": layers, "set.embedding_width": shape["width"]}


def blimp(lab: Lab) -> tuple[str, dict[str, Any]]:
    """Minimal pairs, each piece predicted from all others where the model is masked."""
    pairs = {"pairs": 30} if lab.small else {}
    return "evaluate", {"name": "blimp", "data": lab.tasks, "hide": "piece", **pairs}


def glue(lab: Lab, *, tasks: Sequence[str] = ("cola", "sst2", "mrpc", "stsb", "rte")) -> tuple[str, dict[str, Any]]:
    """Five tasks of GLUE, fine-tuned; two in the small size."""
    if lab.small:
        return "benchmark", {"suite": "glue", "tasks": ["mrpc", "rte"], "data": lab.tasks, "seeds": 1, "epochs": 2}
    return "benchmark", {"suite": "glue", "tasks": list(tasks), "data": lab.tasks, "seeds": 2}


GLUE_DATA = ("corpus", "tasks/cola", "tasks/sst2", "tasks/mrpc", "tasks/stsb", "tasks/rte")

"""ULMFiT: a language model of much text, of the task's text, and a careful fit; and how few labels it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Figures, Lab, of_row, pretraining_rows
from polyseme.claims.rule import Rule, above
from polyseme.datasets.named_benchmarks import read_benchmark
from polyseme.metrics.sampling_error import sampling_error
from polyseme.sweeps.sweep_report import Figure, RunResult
from polyseme.verbs.finetune import finetune

GENERAL, TARGET = "general", "target"
FULL, SCRATCH = "ULMFiT", "without pretraining"
STEPS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    FULL: (TARGET, {}),
    "without the target's language model": (GENERAL, {}),
    "without discriminative rates": (TARGET, {"layer_decay": 1.0}),
    "without the triangle": (TARGET, {"schedule": "constant", "warmup": 0.0}),
    "without gradual unfreezing": (TARGET, {"gradual_unfreezing": False}),
}
"""Row → the language model that it begins with, and what differs from the preset."""
SHARE = "10%"
TENTH, ALL = f"accuracy on test, {SHARE} of the labels", "accuracy on test"
DATA = ("corpus", "tasks/trec")
OBSERVED = "experiments/ulmfit.py: IMDb and TREC, three seeds of classifiers (docs: ULMFiT)."


def language_models(lab: Lab) -> dict[str, list[RunResult]]:
    """The general one of each seed, and from it one of TREC's questions."""
    texts = lab.folder / "trec.txt"
    items = [item for split in ("train", "dev") for item in read_benchmark("trec", lab.tasks).splits[split]]
    texts.write_text("\n\n".join(" ".join((item.text or "").split()) for item in items) + "\n", encoding="utf-8")
    general = lab.sweep(
        "ulmfit",
        "pretrain",
        lab.texts(),
        rows={GENERAL: {"recipe": "awd-lstm"}},
        vocab_size=30_000,
        budget=lab.budget(3e16, "flops"),
    )
    target: list[RunResult] = []
    for seed in lab.seeds:
        model = str(lab.model(of_row(general, GENERAL, seed)))
        rows = {TARGET: {"recipe": "ulmfit-target", "model": model}}
        target += lab.sweep(f"ulmfit-trec-{seed}", "pretrain", str(texts), rows=rows, seeds=[seed], budget="10epochs")
    return {GENERAL: general, TARGET: target}


def _fitted(lab: Lab, model: Any, seed: int, share: str, options: Mapping[str, Any]) -> Figure:
    report = finetune(
        "trec",
        data=lab.tasks,
        model=model,
        seeds=[seed],
        device=lab.device,
        **{"ulmfit": True, "train_share": share, "unseen": "keep", **options},
    )
    value = report.split("test")["accuracy"].median
    return Figure(value=value, unit="share", error=sampling_error("accuracy", value, report.sizes["test"]))


def run_steps(lab: Lab) -> list[RunResult]:
    """All labels, with every step and without one of them."""
    models = language_models(lab)

    def figures(row: str, seed: int) -> Figures:
        start, options = STEPS[row]
        return {ALL: _fitted(lab, lab.model(of_row(models[start], start, seed)), seed, "100%", options)}

    return [*_pretraining(models), *lab.measure_rows(STEPS, figures, shared="ulmfit")]


def run_labels(lab: Lab) -> list[RunResult]:
    """A tenth of the labels, with pretraining and without."""
    models = language_models(lab)

    def figures(row: str, seed: int) -> Figures:
        model = lab.model(of_row(models[TARGET], TARGET, seed))
        if row == FULL:
            return {TENTH: _fitted(lab, model, seed, SHARE, {})}
        options = {"reinit_layers": 3, "gradual_unfreezing": False, "layer_decay": 1.0, "learning_rate": 1e-3}
        return {TENTH: _fitted(lab, model, seed, SHARE, options)}

    return [*_pretraining(models), *lab.measure_rows((FULL, SCRATCH), figures, shared="ulmfit-tenth")]


def _pretraining(models: Mapping[str, Sequence[RunResult]]) -> list[RunResult]:
    return [run for runs in models.values() for run in pretraining_rows(runs)]


CLAIMS = (
    Claim(
        name="ulmfit-labels",
        text="With a tenth of the labels, a pretrained and carefully fitted language model beats one from scratch.",
        source="Howard and Ruder 2018, Figure 3",
        runs="AWD-LSTM on all text, then on TREC's questions, fitted to a tenth of its labels; and with new layers.",
        rule=Rule(
            conditions=(above(FULL, SCRATCH, TENTH),), note="The embeddings of the row from scratch are pretrained."
        ),
        run=run_labels,
        data=DATA,
        minutes=30,
        observed=OBSERVED,
    ),
    Claim(
        name="ulmfit-steps",
        text="Each step of ULMFiT helps: the target's language model, discriminative rates, the triangle, unfreezing.",
        source="Howard and Ruder 2018, Tables 5 to 7",
        runs="AWD-LSTM on all text, then on TREC's questions, fitted to all labels; and with each step left out.",
        rule=Rule(conditions=tuple(above(FULL, row, ALL) for row in STEPS if row != FULL)),
        run=run_steps,
        data=DATA,
        minutes=45,
        observed=OBSERVED,
    ),
)

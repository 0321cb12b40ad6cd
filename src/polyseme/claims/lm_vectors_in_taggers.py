"""TagLM: vectors of a language model in a tagger of named entities, and what they owe to its text and its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyseme.api import Model, load
from polyseme.bundle import Bundle
from polyseme.claims.claim import Claim
from polyseme.claims.lab import Lab, of_row, pretraining_rows
from polyseme.claims.rule import Rule, above
from polyseme.convert.families import FAMILIES
from polyseme.datasets.named_benchmarks import read_benchmark
from polyseme.sweeps.sweep_report import RunResult

F1 = "wnut17 span_f1 on dev"
NONE, OWN, SHORT, LONG = "no language model", "LM of the task's text", "LM, an eighth of the work", "LM"
FORWARD, ALONE = "LM, forward half", "LM alone"
DATA = ("corpus", "tasks/wnut17")
MINUTES, SMALL_MINUTES = 20, 60
SMALL_LACKS = (
    "A language model of any use: it reads half a million words. Each tagger is fitted for six epochs, in which it "
    "finds hardly a name (the table has the F1): a difference says which learns sooner, not which ends better."
)
_BILM: Mapping[str, Any] = {
    "recipe": "elmo-small",
    "shape": {"n_outputs": 32_768, "cell_clip": None, "projection_clip": None},
}
_SMALL_BILM: Mapping[str, Any] = {"recipe": "elmo-tiny"}


def taggers(lab: Lab, rows: list[str]) -> list[RunResult]:
    """Taggers of two BiLSTM layers over a character CNN; vectors of a biLM come between the layers."""
    runs = bilms(lab, rows)
    return [*pretraining_rows(runs), *(_tagger(lab, runs, row, seed) for row in rows for seed in lab.seeds)]


def bilms(lab: Lab, rows: Sequence[str]) -> list[RunResult]:
    """The language models that rows need."""
    bilm, work = (_SMALL_BILM, 5e12) if lab.small else (_BILM, 4e15)
    amounts = {LONG: work, SHORT: work / 8}
    texts = lab.texts("wiki-00") if lab.small else lab.texts()
    models = {
        row: {**bilm, "sources": texts, "budget": lab.budget(amount, "flops")}
        for row, amount in amounts.items()
        if row == LONG or row in rows
    }
    if OWN in rows:
        own = lab.folder / "wnut17.txt"
        items = read_benchmark("wnut17", lab.tasks).splits["train"]
        own.write_text("\n\n".join(" ".join(item.words) for item in items) + "\n", encoding="utf-8")
        models[OWN] = {**bilm, "sources": [str(own)], "budget": "8epochs"}
    return lab.sweep("bilm", "pretrain", None, rows=models)


def _tagger(lab: Lab, runs: list[RunResult], row: str, seed: int) -> RunResult:
    options: dict[str, Any] = {"head": "bilstm-crf", "head_layers": 2, **({"epochs": 6} if lab.small else {})}
    if row == NONE:
        return lab.finetune(row, seed, "wnut17", model="none", inputs="char-cnn", shared="wnut17", **options)
    model: Any = lab.model(of_row(runs, row if row in (OWN, SHORT) else LONG, seed))
    if row == ALONE:
        return lab.finetune(row, seed, "wnut17", model=model, frozen=True, shared="wnut17", **options)
    if row == FORWARD:
        model = _forward_half(load(model, device=lab.device))
    return lab.finetune(row, seed, "wnut17", model=model, frozen=True, at="between", shared="wnut17", **options)


def _forward_half(model: Model) -> Model:
    """The forward language model of a two-way one."""
    half = model.bundle.encoder.halves()[0]
    return Model(Bundle(family=FAMILIES["lstm"], encoder=half, outputs={}, tokenizer=model.bundle.tokenizer))


def _claim(name: str, text: str, above_row: str, below_row: str, runs: str) -> Claim:
    """All four compare two taggers."""
    return Claim(
        name=name,
        text=text,
        source="Peters et al. 2017",
        runs=f"{runs} A tagger of WNUT-17 with a character CNN, two BiLSTM layers and a CRF; a small ELMo is the biLM.",
        rule=Rule(conditions=(above(above_row, below_row, F1),)),
        run=lambda lab: taggers(lab, [above_row, below_row]),
        data=DATA,
        minutes=MINUTES,
        small_minutes=SMALL_MINUTES,
        small_lacks=SMALL_LACKS,
        observed="experiments/taglm.py: three seeds of taggers, one of each language model (docs: Transfer).",
    )


CLAIMS = (
    _claim(
        "lm-vectors-help-taggers",
        "Vectors of a language model of other text help a tagger.",
        LONG,
        NONE,
        "With vectors of a biLM and without.",
    ),
    _claim(
        "other-text-beats-own",
        "A language model of the task's own text helps a tagger less than one of much other text.",
        LONG,
        OWN,
        "With vectors of a biLM of other text, or of the task's own.",
    ),
    _claim(
        "better-lm-helps-more",
        "A better language model helps a tagger more.",
        LONG,
        SHORT,
        "With vectors of a biLM, and of the same after an eighth of the work.",
    ),
    _claim(
        "lm-vectors-alone",
        "Vectors of a language model alone are not enough: characters and words of the tagger's own add to them.",
        LONG,
        ALONE,
        "With vectors of a biLM beside the tagger's own inputs, and alone.",
    ),
    _claim(
        "two-directions",
        "A language model of both directions helps a tagger more than its forward half.",
        LONG,
        FORWARD,
        "With vectors of a biLM, and of its forward half.",
    ),
)

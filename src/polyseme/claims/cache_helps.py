"""Words that came lately are likelier to come again: a cache of the model's own states knows which."""

from __future__ import annotations

from polyseme.api import load
from polyseme.claims.claim import Claim
from polyseme.claims.lab import Figures, Lab, of_row
from polyseme.claims.rule import Rule, above
from polyseme.claims.word_models import DATA, NATS, mean_surprisal, reading, score_row, word_models
from polyseme.scoring.neural_cache import Caches, NeuralCache
from polyseme.sweeps.sweep_report import RunResult

CACHES = [
    NeuralCache(size=2000, share=share, sharpness=sharpness)
    for share in (0.1, 0.2, 0.3)
    for sharpness in (0.0, 0.1, 0.3)
]
CACHED = "LSTM with a cache"


def run(lab: Lab) -> list[RunResult]:
    """The model alone and with the cache, whose share and sharpness the validation file chooses."""
    runs = word_models(lab, ["LSTM"])

    def with_cache(_: str, seed: int) -> Figures:
        model = load(lab.model(of_row(runs, "LSTM", seed)), device=lab.device)
        valid = reading(lab, model, "valid")
        best = max(CACHES, key=lambda cache: float(Caches(cache)(0, *valid).mean()))
        return {NATS: mean_surprisal(Caches(best)(0, *reading(lab, model, "test")).double().cpu().numpy())}

    rows = [score_row(lab, runs, "LSTM", seed) for seed in lab.seeds]
    return [*rows, *lab.measure_rows([CACHED], with_cache)]


CLAIM = Claim(
    name="cache-helps",
    text="A cache of its own last states makes a recurrent language model better, without any training.",
    source="Grave, Joulin and Usunier 2017",
    runs="An LSTM on WikiText-2, read with and without a cache of 2,000 words.",
    rule=Rule(conditions=(above("LSTM", CACHED, NATS),)),
    run=run,
    data=DATA,
    minutes=6,
    small_minutes=15,
    small_lacks=(
        "A gain as large as the paper's, since few words are known well; the text that is read is 20,000 words."
    ),
    observed="experiments/wikitext2.py: one seed, with an LSTM and an AWD-LSTM (docs: N-grams).",
)

"""Words that came lately are likelier to come again: a cache of the model's own states knows which."""

from __future__ import annotations

import functools

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Figures, Lab
from polyseme.claims.rule import Rule, above
from polyseme.claims.word_models import DATA, NATS, log_probs, scored, surprise, word_models
from polyseme.sweeps.sweep_report import RunResult
from polyseme.verb_options.text_options import ScoringOptions

CACHES = [
    ScoringOptions(neural_cache=True, cache_share=share, cache_sharpness=sharpness)
    for share in (0.1, 0.2, 0.3)
    for sharpness in (0.0, 0.1, 0.3)
]
CACHED = "LSTM with a cache"


def run(lab: Lab) -> list[RunResult]:
    """The model alone and with the cache, whose share and sharpness the validation file chooses."""
    runs = word_models(lab, ["LSTM"])

    def cached(seed: int) -> Figures:
        def mean(cache: ScoringOptions) -> float:
            return float(log_probs(lab, runs, "LSTM", seed, "valid", cache).mean())

        return {NATS: surprise(log_probs(lab, runs, "LSTM", seed, "test", max(CACHES, key=mean)))}

    rows = [scored(lab, runs, "LSTM", seed) for seed in lab.seeds]
    return [*rows, *(lab.measure(CACHED, seed, functools.partial(cached, seed)) for seed in lab.seeds)]


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

"""XLNet predicts the words of a text one after another, so that one helps with the next; BERT predicts each by
itself.
"""

from __future__ import annotations

import random

import numpy as np

from polyseme.api import Model, load
from polyseme.claims.claim import Claim
from polyseme.claims.lab import Figures, Lab, of_row
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import SMALL_LACKS, pretrain_rows
from polyseme.claims.word_models import mean_surprisal
from polyseme.files.lines import read_lines
from polyseme.sweeps.sweep_report import RunResult
from polyseme.text.documents import string_to_document
from polyseme.types import Pieces
from polyseme.verb_options.text_options import ScoringOptions

NATS = "nats of the second piece"
HIDDEN, SEEN = "first piece hidden", "first piece predicted before"
N_TEXTS, LENGTHS = 200, range(12, 40)


def run(lab: Lab) -> list[RunResult]:
    """Two neighboring pieces come last in the order: the second is predicted without the first, and after it."""
    [news] = lab.texts("news-01")
    runs = pretrain_rows(lab, ["permuted"])

    def figures(row: str, seed: int) -> Figures:
        model = load(lab.model(of_row(runs, "permuted", seed)), device=lab.device)
        rng = random.Random(seed)
        texts = _texts(news, model)
        places = [rng.randrange(2, len(each.ids) - 1) for each in texts]
        scores = [_second(model, each, place, after=row == SEEN) for each, place in zip(texts, places, strict=True)]
        return {NATS: mean_surprisal(np.array(scores))}

    return [*runs, *lab.measure_rows((HIDDEN, SEEN), figures)]


def _texts(file: str, model: Model) -> list[Pieces]:
    """Lines of news that no model has read, of a length that is scored quickly."""
    tokenizer = model.scorer(ScoringOptions(), None).tokenizer
    texts: list[Pieces] = []
    with read_lines(file) as lines:
        for line in lines:
            pieces = tokenizer.encode(string_to_document(line.text))
            if len(pieces.ids) in LENGTHS:
                texts.append(pieces)
            if len(texts) == N_TEXTS:
                break
    return texts


def _second(model: Model, pieces: Pieces, place: int, *, after: bool) -> float:
    """The log-probability of the piece at a place, given all others but the one before it, or given that one, too."""
    others = [each for each in range(1, len(pieces.ids) + 1) if each not in (place, place + 1)]
    last = (place, place + 1) if after else (place + 1, place)
    scorer = model.scorer(ScoringOptions(order=(*others, *last)), None)
    return float(scorer.pieces([pieces])[0].log_probs[place])


CLAIM = Claim(
    name="dependencies-between-targets",
    text="A permuted language model knows how the words that it predicts depend on each other; masked ones ignore it.",
    source="Yang et al. 2019, section 2.5 (New York)",
    runs=(
        "The standard permuted model predicts two neighboring pieces of 200 texts from all others: the second without "
        "the first, as a masked model does, and after it."
    ),
    rule=Rule(conditions=(above(HIDDEN, SEEN, NATS),)),
    run=run,
    data=("corpus",),
    minutes=6,
    small_minutes=40,
    small_lacks=SMALL_LACKS,
)

"""A run that counts n-grams: from a corpus to the model's folder, with a ledger like any other run's.

Counting takes minutes and has no steps: what was stopped begins again, over the corpus that is there. Its files are in
`counts.unfinished/` of the run's folder, and go with it.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from polyseme import __version__
from polyseme.corpus.corpus import Corpus, unigram_cross_entropy
from polyseme.files.atomic import explained
from polyseme.model_card import OF_OUTPUTS, CardContent, model_card
from polyseme.ngrams.counting import count_ngrams
from polyseme.ngrams.kneser_ney import discounts_of, estimate
from polyseme.ngrams.model_folder import NGramModel, events_of, lead_of, save_ngrams
from polyseme.training.energy_ledger import Ledger, Rates
from polyseme.training.energy_meter import Meter
from polyseme.training.run_card import data_section, scores_section
from polyseme.training.run_folder import LEDGER, MODEL, Run, write_json

_logger = logging.getLogger(__name__)

UNFINISHED = "counts.unfinished"


def run_counting(run: Run, corpus: Corpus, *, rates: Rates, started: float) -> Ledger:
    """Count, smooth and save the model of a run, whose settings name order and smoothing; what it cost is returned."""
    began, meter = time.perf_counter(), Meter("cpu", rates=rates, n_cores=1)
    work = run.folder / UNFINISHED
    shutil.rmtree(work, ignore_errors=True)
    try:
        with explained(work):
            work.mkdir()
            tokenizer = corpus.tokenizer
            counts = count_ngrams(
                corpus.shards("train"),
                order=run.settings["order"],
                n_pieces=tokenizer.n_pieces,
                lead=lead_of(tokenizer),
                folder=work,
                on_order=lambda order, n: _logger.info(f"counted {n:,} n-grams of order {order}"),
            )
            smoothing = run.settings["smoothing"]
            discounts = discounts_of(counts, smoothing, run.settings["discount"])
            tables = estimate(counts, events_of(tokenizer), discounts)
            described = {"smoothing": f"{smoothing} Kneser–Ney", "discounts": [list(each) for each in discounts]}
            model = NGramModel(tables, tokenizer, described)
            bill: Ledger = Ledger.of(
                pieces=corpus.n_pieces("train"),
                flops=0.0,
                seconds=time.perf_counter() - began,
                total_seconds=time.perf_counter() - started,
                steps=0,
                device="cpu",
                joules=meter.stop(),
                measured=False,
                rates=rates,
            ).replace(**held_out_loss(model, corpus))
            save_ngrams(model, run.folder / MODEL, force=True, card=_card(run, corpus, bill, described))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    write_json(run.folder / LEDGER, bill.to_json())
    run.finished, run.n_steps = True, 0
    run.write()
    return bill


def held_out_loss(model: NGramModel, corpus: Corpus) -> dict[str, float]:
    """The mean loss of held-out pieces, ends of documents included, and that of a model of unigrams; empty of none."""
    total, n = 0.0, 0
    for shard in corpus.shards("held"):
        pieces = np.asarray(shard.pieces).astype(np.int64)
        starts = np.concatenate([[0], shard.ends])[:-1]
        total -= float(model.tables.log_probs_of(model.states_before(pieces, starts), pieces).sum())
        n += len(pieces)
    if not n:
        return {}
    unigrams = unigram_cross_entropy(corpus.piece_counts("train"), corpus.piece_counts("held"))
    return {"held_out": total / n, "unigram_entropy": unigrams}


def _card(run: Run, corpus: Corpus, bill: Ledger, described: Mapping[str, Any]) -> str:
    order = run.settings["order"]
    discounts = "; ".join(", ".join(f"{each:.3f}" for each in of_order) for of_order in described["discounts"])
    return model_card(
        None,
        CardContent(
            title=run.folder.resolve().name,
            use=OF_OUTPUTS["causal"],
            tags=["ngram"],
            origin=f"An n-gram model of order {order} ({described['smoothing']}), counted by polyseme {__version__}.",
            sections=[
                ("Data", data_section(corpus)),
                ("Discounts", f"By order, from unigrams on: {discounts}."),
                ("Cost", "\n".join(f"- {line}" for line in bill.replace(held_out=None).lines())),
                ("Scores", scores_section(bill)),
            ],
        ),
    )

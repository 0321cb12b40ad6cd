"""Language models of words, from counts to Transformers, over WikiText-2: shared by the claims about them.

All of a claim have equal operations, and batches that leave thousands of steps: on a GPU the fitted batch of a
Transformer, 65,536 pieces, would be a thirtieth of the text. All have the same words and read the same streams. The
small size trains on the first 300,000 words, and is read on the first 20,000 of the validation and the test file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from polyseme.api import Model, load
from polyseme.claims.lab import Lab, of_row, with_measured
from polyseme.datasets.wikitext import WordStream, read_wikitext
from polyseme.outputs.output import Output
from polyseme.scoring.benchmark_items import stream_pieces
from polyseme.scoring.text_scores import Floats
from polyseme.sweeps.sweep_report import Figure, RunResult
from polyseme.types import Batch
from polyseme.verb_options.text_options import ScoringOptions
from polyseme.verbs.corpus import build_corpus

NATS = "nats per word of test"
DATA = ("tasks/wikitext-2",)
SMALL_WORDS, SMALL_READ = 300_000, 20_000
READ_AT_ONCE = 2048
SMALL_LACKS = "Models that need much text: it reads 300,000 words, of which few are seen often."
COUNTED = "KN5"
_DROPOUT = {"dropout_rate": 0.3, "embedding_dropout_rate": 0.3}
ROWS: Mapping[str, Mapping[str, Any]] = {
    COUNTED: {"recipe": "kneser-ney"},
    "NNLM": {"recipe": "nnlm"},
    "LSTM": {"recipe": "lstm-lm"},
    "Transformer": {"recipe": "gpt-mini", "batch_size": 64, "length": 128, **_DROPOUT},
}
SMALL_ROWS: Mapping[str, Mapping[str, Any]] = {
    COUNTED: {"recipe": "kneser-ney"},
    "NNLM": {"recipe": "nnlm-tiny", "batch_size": 128, "length": 16},
    "LSTM": {"recipe": "lstm-tiny"},
    "Transformer": {"recipe": "gpt-tiny", **_DROPOUT},
}


def word_models(lab: Lab, rows: Sequence[str]) -> list[RunResult]:
    """Runs of rows, at equal operations."""
    corpus = _corpus(lab)
    of_size = SMALL_ROWS if lab.small else ROWS
    budget = {"budget": lab.budget(5e12 if lab.small else 4e15, "flops")}
    return lab.sweep(
        "wikitext",
        "pretrain",
        str(corpus),
        rows={row: {**of_size[row], **({} if row == COUNTED else budget)} for row in rows},
    )


def score_row(lab: Lab, runs: Sequence[RunResult], row: str, seed: int) -> RunResult:
    """A row with its surprise at the words of test."""

    def figures() -> Mapping[str, Figure]:
        return {NATS: mean_surprisal(log_probs(lab, runs, row, seed, "test"))}

    run = of_row(runs, row, seed)
    return with_measured(run, lab.measure(row, seed, figures, shared="wikitext"))


def mean_surprisal(log_probs: Floats) -> Figure:
    """Mean nats per word; its error as if words were independent."""
    return Figure(value=-float(log_probs.mean()), unit="nats", error=float(log_probs.std()) / math.sqrt(log_probs.size))


def log_probs(lab: Lab, runs: Sequence[RunResult], row: str, seed: int, split: str) -> Floats:
    """Of every word of a split, natural."""
    scorer = load(lab.model(of_row(runs, row, seed)), device=lab.device).scorer(ScoringOptions(), None)
    return scorer.pieces([stream_pieces(stream(lab, split), scorer.tokenizer)])[0].log_probs


class Reading(NamedTuple):
    """A split as a recurrent model has read it once, for caches to be tried on."""

    states: Tensor
    """That predict each word, [N, D]."""
    pieces: Tensor
    """[N]"""
    log_probs: Tensor
    """Of the model alone, [N]."""


@torch.inference_mode()
def reading(lab: Lab, model: Model, split: str) -> Reading:
    """The state is carried through all of the split, which begins behind the marker that ends a line."""
    encoder, output = model.bundle.encoder, cast("Output", model.bundle.outputs["causal"])
    tokenizer = model.scorer(ScoringOptions(), None).tokenizer
    pieces = torch.from_numpy(stream_pieces(stream(lab, split), tokenizer).ids).to(model.bundle.device)
    before = torch.cat([pieces.new_tensor([tokenizer.specials["end"]]), pieces[:-1]])
    memory = encoder.new_memory(1)
    states, log_probs = [], []
    for inputs, targets in zip(before.split(READ_AT_ONCE), pieces.split(READ_AT_ONCE), strict=True):
        result = encoder(Batch(inputs[None]), layers=[-1], memory=memory)
        memory = result.memory
        states.append(result[-1][0])
        log_probs.append(output.log_probs(states[-1]).gather(1, targets[:, None])[:, 0])
    return Reading(torch.cat(states), pieces, torch.cat(log_probs))


def stream(lab: Lab, split: str) -> WordStream:
    """The words of a split, as far as the size reads them."""
    [whole] = read_wikitext([lab.file(DATA[0], f"wiki.{split}")])
    if not lab.small:
        return whole
    return WordStream(whole.name, _first(whole.lines, SMALL_READ))


def _first(lines: Sequence[str], n_words: int) -> list[str]:
    """The first lines that have so many words together."""
    counts = np.cumsum([len(line.split()) + 1 for line in lines])
    return list(lines[: int(np.searchsorted(counts, n_words)) + 1])


def _corpus(lab: Lab) -> Path:
    """The training file by lines, built once; every row has its tokenizer."""
    text, output = lab.folder / "wikitext.txt", lab.folder / "wikitext.corpus"
    [whole] = read_wikitext([lab.file(DATA[0], "wiki.train")])
    lines = _first(whole.lines, SMALL_WORDS) if lab.small else whole.lines
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    build_corpus(
        text,
        output=output,
        tokenizer="blanks",
        vocab_size=50_000,
        min_count=3 if lab.small else 1,
        frame="lm",
        documents="line",
        held_out=0.01,
        reuse=True,
    )
    return output

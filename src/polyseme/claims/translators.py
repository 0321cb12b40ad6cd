"""Translators of Multi30k, English to German, at equal operations, with BLEU by the length of the source.

The small size has the smallest recurrent stacks and reads the pairs about once.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyseme.api import load
from polyseme.claims.lab import Figures, Lab, of_row, with_measured
from polyseme.files.lines import read_lines
from polyseme.metrics.bleu import Sides, compare
from polyseme.sweeps.sweep_report import Figure, RunResult

BLEU, LONG, SHORT = "BLEU", "BLEU of the longest fifth", "BLEU of the shortest fifth"
DATA = ("tasks/multi30k",)
N_BLOCKS = 20
"""Parts of the test set; their spread is the error over items."""
ROWS: Mapping[str, Mapping[str, Any]] = {
    "last state": {"recipe": "seq2seq"},
    "attention": {"recipe": "seq2seq-attention"},
    "sinusoidal": {"recipe": "transformer-tiny"},
    "learned": {"recipe": "transformer-tiny", "positions": "learned", "max_positions": 256},
}
SMALL_ROWS: Mapping[str, Mapping[str, Any]] = {
    "last state": {"recipe": "seq2seq-tiny"},
    "attention": {"recipe": "seq2seq-attn-tiny"},
}


def translators(lab: Lab, rows: Sequence[str]) -> list[RunResult]:
    """Rows of every seed with their BLEU on the test set of 2016."""
    test = _lines(lab, "en"), _lines(lab, "de")
    runs = lab.sweep(
        "multi30k",
        "pretrain",
        None,
        source=str(lab.file(DATA[0], "train.en")),
        target=str(lab.file(DATA[0], "train.de")),
        held_source=str(lab.file(DATA[0], "val.en")),
        held_target=str(lab.file(DATA[0], "val.de")),
        rows={row: dict((SMALL_ROWS if lab.small else ROWS)[row]) for row in rows},
        budget=lab.budget(6e12 if lab.small else 8e14, "flops"),
    )
    return [_score_translator(lab, of_row(runs, row, seed), test, row, seed) for row in rows for seed in lab.seeds]


def _score_translator(lab: Lab, run: RunResult, test: tuple[list[str], list[str]], row: str, seed: int) -> RunResult:
    def figures() -> Figures:
        sources, references = test
        model = load(lab.model(run), device=lab.device)
        texts = model.generate(sources, beam=1 if lab.small else 4, max_new=100)
        pairs = list(zip([" ".join(str(text).split()) for text in texts], references, strict=True))
        fifth = len(pairs) // 5
        by_length = [pairs[place] for place in np.argsort([len(each.split()) for each in sources], kind="stable")]
        return {BLEU: _bleu(pairs), LONG: _bleu(by_length[-fifth:]), SHORT: _bleu(by_length[:fifth])}

    return with_measured(run, lab.measure(row, seed, figures, shared="multi30k"))


def _lines(lab: Lab, side: str) -> list[str]:
    with read_lines(lab.file(DATA[0], f"test_2016_flickr.{side}")) as lines:
        return [line.text for line in lines]


def _bleu(pairs: Sequence[tuple[str, str]]) -> Figure:
    """Of all texts together; its error by that of interleaved parts."""
    blocks = [_score(pairs[start::N_BLOCKS]) for start in range(N_BLOCKS)]
    return Figure(value=_score(pairs), error=statistics.stdev(blocks) / math.sqrt(N_BLOCKS))


def _score(pairs: Sequence[tuple[str, str]]) -> float:
    texts, references = zip(*pairs, strict=True)
    return float(compare(Sides(list(texts), [list(references)])).figures["bleu"])

"""Whatever says what comes next can be scored: a bigram, and the models there are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from polyseme.generating.language_model import LanguageModel, language_model
from polyseme.parts.memory_and_cache import Memory
from polyseme.text.documents import to_documents
from polyseme.types import Batch, Tokenizer
from scoring.stepwise import step_by_step
from tiny_models import TEXT, tiny_model

TEXTS = ["The vase broke.", "", "crane", "Sandy broke the law. Dawn broke.", "crane"]


class Bigram:
    """Counts of pairs, one added to each."""

    normalized = True

    def __init__(self, pieces: Sequence[int], n_pieces: int) -> None:
        counts = torch.ones(n_pieces, n_pieces, dtype=torch.float64)
        for one, other in itertools.pairwise(pieces):
            counts[one, other] += 1
        self.log_probs = (counts / counts.sum(dim=1, keepdim=True)).log()

    def start(self, batch: Batch, capacity: int) -> tuple[Tensor, Memory]:
        n_rows, longest = batch.pieces.shape
        lengths = torch.full((n_rows,), longest) if batch.lengths is None else batch.lengths
        return self.log_probs[batch.pieces.gather(1, lengths[:, None] - 1)[:, 0]], Memory(lengths)

    def step(self, batch: Batch, memory: Memory) -> tuple[Tensor, Memory]:
        return self.log_probs[batch.pieces[:, 0]], Memory(memory.lengths + 1)


def bigram() -> tuple[Bigram, Tokenizer]:
    tokenizer = tiny_model("lstm").bundle.tokenizer
    assert tokenizer is not None
    pieces = tokenizer.encode(to_documents([TEXT])[0]).ids.tolist()
    return Bigram(pieces, tokenizer.n_pieces), tokenizer


def test_a_bigram_scores_and_writes() -> None:
    model, tokenizer = bigram()
    language = LanguageModel(next_piece=model, n_pieces=tokenizer.n_pieces, device=torch.device("cpu"))
    scorer = step_by_step(language, tokenizer)
    end = tokenizer.specials["end"]
    for scored in scorer(to_documents(TEXTS)):
        row = [end, *scored.ids.tolist()]
        expected = [float(model.log_probs[one, other]) for one, other in itertools.pairwise(row)]
        np.testing.assert_allclose(scored.piece_log_probs, expected, rtol=1e-12)
        assert scored.totals.log_prob == pytest.approx(math.fsum(expected))
    assert scorer.description == "left to right, step by step"
    assert scorer.tally.documents == len(TEXTS)


@pytest.mark.parametrize("family", ["gpt2", "lstm", "nnlm", "openai-gpt", "transfo-xl"])
def test_it_equals_reading_everything_at_once(family: str) -> None:
    model = tiny_model(family, **({"masks": ("band:6",)} if family == "transfo-xl" else {}))
    model.bundle.double()
    assert model.bundle.tokenizer is not None
    stepping = step_by_step(language_model(model.bundle), model.bundle.tokenizer)
    expected = model.score(TEXTS) if family != "openai-gpt" else _without_warning(model)
    for one, other in zip(stepping(to_documents(TEXTS)), expected, strict=True):
        np.testing.assert_allclose(one.piece_log_probs, other.piece_log_probs, rtol=1e-9)


def _without_warning(model):  # type: ignore[no-untyped-def]
    with pytest.warns(Warning, match="no piece that starts or ends"):
        return model.score(TEXTS)

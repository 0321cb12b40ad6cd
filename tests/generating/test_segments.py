"""Writing and scoring with segment memory (Transformer-XL): one long pass where it should be, rows independent."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polyseme.api import Model
from polyseme.generating.language_model import language_model
from polyseme.types import Batch
from references import assert_close
from tiny_models import TEXT, tiny_model

N_MEMORY = 6


def transformer_xl(**changes: object) -> Model:
    model = tiny_model("transfo-xl", **{"memory_length": N_MEMORY, **changes})
    model.bundle.double()
    return model


def one_pass(model: Model, ids: list[int]) -> torch.Tensor:
    """Log-probabilities [T, V] of a row that is read at once, with a first memory."""
    encoder = model.bundle.encoder
    with torch.no_grad():
        states = encoder(Batch(torch.tensor([ids])), layers=[-1], memory=encoder.new_memory(1))
        return model.bundle.outputs["causal"].log_probs(states[-1][0])  # type: ignore[operator, no-any-return]


@pytest.mark.filterwarnings("ignore:.*that the model's output vocabulary lacks:polyseme.errors.PolysemeWarning")
@pytest.mark.parametrize("window", [8, 40])
def test_where_every_piece_sees_as_much_it_is_one_long_pass(window: int) -> None:
    """With `same_length` no piece sees more than the memory holds, so that segments do not show."""
    model = transformer_xl(masks=(f"band:{N_MEMORY}",), max_positions=window)
    [scored] = model.score([TEXT])
    ids = scored.ids.tolist()
    assert len(ids) > 100
    expected = one_pass(model, [model.bundle.tokenizer.specials["end"], *ids])  # type: ignore[union-attr]
    np.testing.assert_allclose(
        scored.piece_log_probs, expected[torch.arange(len(ids)), torch.tensor(ids)].numpy(), rtol=1e-9
    )
    language = language_model(model.bundle)
    assert language.room is None
    found, memory = language.next_piece.start(Batch(torch.tensor([ids[:30]])), 60)
    whole = one_pass(model, ids)
    for place in range(30, 40):
        assert_close(found[0].log_softmax(-1), whole[place - 1], 1e-9)
        found, memory = language.next_piece.step(Batch(torch.tensor([[ids[place]]])), memory)


@pytest.mark.filterwarnings("ignore:.*that the model's output vocabulary lacks:polyseme.errors.PolysemeWarning")
def test_segments_show_where_a_piece_sees_its_whole_segment() -> None:
    [one], [other] = (transformer_xl(max_positions=window).score([TEXT]) for window in (8, 40))
    assert not np.allclose(one.piece_log_probs, other.piece_log_probs)


@pytest.mark.filterwarnings("ignore:.*that the model's output vocabulary lacks:polyseme.errors.PolysemeWarning")
@pytest.mark.parametrize("window", [8, 40])
def test_texts_together_and_alone(window: int) -> None:
    """Also where a batch has room for less than a segment."""
    model = transformer_xl(max_positions=window)
    texts = [TEXT, "Dawn broke.", "Sandy broke the world record. The vase broke into the house.", ""]
    together = model.score(texts)
    for text, one in zip(texts, together, strict=True):
        [alone] = model.score([text], batch_pieces=3)
        np.testing.assert_allclose(one.piece_log_probs, alone.piece_log_probs, rtol=1e-9)
    prompts = ["Dawn broke", TEXT, "Sandy broke the world record . The vase broke into the house and so"]
    for settings in ({}, {"temperature": 1.1, "seed": 2}, {"beam": 3}):
        written = model.generate(prompts, max_new=6, **settings)  # type: ignore[arg-type]
        alone = [model.generate(prompts[: n + 1], max_new=6, **settings)[n] for n in range(3)]  # type: ignore[arg-type]
        assert written == alone

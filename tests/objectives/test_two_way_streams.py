"""Streams in both directions: the loss by its equations, the separators, and a model that comes out of a recipe."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import polyseme
from objectives.rows import redrawn, tensors
from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.corpus.random_keys import row_keys
from polyseme.encoders.recurrent import TwoWay
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.objectives.objective_table import check_needs, objective_from
from polyseme.objectives.two_way_streams import TwoWayStreamed
from polyseme.outputs.softmaxes import TwoWayOutput
from polyseme.types import Rows
from tiny_models import tiny_config, tiny_tokenizer

TOKENIZER = tiny_tokenizer("flair")
END, LINE_END = TOKENIZER.specials["end"], 1
N_ROWS, LENGTH = 3, 7


def some_rows(seed: int) -> Rows:
    pieces = np.random.default_rng(seed).integers(2, END - 1, (N_ROWS, 2 * (LENGTH + 1)))
    pieces[0, 4] = pieces[1, LENGTH + 4] = END
    special = pieces == END
    return Rows(pieces=pieces, starts=~special, special=special, keys=row_keys(seed, 0, np.arange(N_ROWS)))


def test_the_loss_is_that_of_the_equations() -> None:
    """Over two steps, in double precision: two LSTMs of PyTorch's, each with the memory of its own reading."""
    objective = TwoWayStreamed(fresh=0).for_tokenizer(TOKENIZER)
    config = tiny_config("flair", n_layers=1)
    bundle = redrawn(new_bundle(FAMILIES["flair"], config, ["two-way"], TOKENIZER), 0.3).double()
    check_needs(objective, bundle, TOKENIZER)
    encoder, output, nets = bundle.encoder, bundle.outputs["two-way"], objective.nets(bundle).eval()
    assert isinstance(encoder, TwoWay)
    assert isinstance(output, TwoWayOutput)
    memory = nets.new_memory(N_ROWS)
    held = dict.fromkeys(("forward", "backward"), (torch.zeros(1, N_ROWS, 16).double(),) * 2)
    lstm = nn.LSTM(16, 16, batch_first=True).double()
    for seed in range(2):
        rows = some_rows(seed)
        example = objective.corrupt(rows)
        assert example.counts == {"forward": N_ROWS * LENGTH, "backward": N_ROWS * LENGTH}
        loss = objective.loss(nets, tensors(example), memory)
        read = torch.from_numpy(np.where(rows.pieces == END, LINE_END, rows.pieces))
        for number, (name, in_order) in enumerate(zip(held, read.chunk(2, dim=1), strict=True)):
            pieces = in_order if name == "forward" else in_order.flip(1)
            half = encoder.halves()[number]
            named = dict(half.named_parameters())
            weights = {
                "weight_ih_l0": named["layers.0.0.input"], "weight_hh_l0": named["layers.0.0.recurrent"],
                "bias_ih_l0": named["layers.0.0.bias"], "bias_hh_l0": torch.zeros(64).double(),
            }  # fmt: skip
            tokens = named["tokens.table"][pieces[:, :-1]]
            states, held[name] = torch.func.functional_call(lstm, weights, (tokens, held[name]))
            softmax = output.halves[number]
            log_probs = torch.log_softmax(states @ softmax.table.T + softmax.bias, dim=-1)
            expected = -log_probs.gather(2, pieces[:, 1:, None]).sum()
            torch.testing.assert_close(loss.parts[name], expected, rtol=1e-12, atol=0)
        assert loss.memory is not None
        memory = loss.memory
    assert memory.lengths.tolist() == [2 * LENGTH] * N_ROWS


def test_rows_begin_without_memory_at_random() -> None:
    pieces = np.full((4000, 4), 5)
    rows = Rows(pieces=pieces, starts=pieces > 0, special=pieces < 0, keys=row_keys(0, 0, np.arange(4000)))
    assert TwoWayStreamed(fresh=0.25).corrupt(rows).arrays["fresh"].mean() == pytest.approx(0.25, abs=0.03)
    with pytest.raises(OptionError, match=r"must be from 0 to 1\. Got 1\.5"):
        objective_from("two-way", {"fresh": 1.5})


def test_words_that_are_spelled_are_refused() -> None:
    bundle = new_bundle(FAMILIES["elmo"], tiny_config("elmo", n_outputs=9), ["two-way"], TOKENIZER)
    with pytest.raises(OptionError, match="Choose the objective 'bilm'"):
        TwoWayStreamed().refuse(bundle)


@pytest.mark.slow
def test_the_recipe_trains_a_model_that_embeds(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The vase broke. Dawn broke, and the news broke.\n\n" * 60, encoding="utf-8")
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(
            text, recipe="flair-tiny", budget="6steps", output=tmp_path / "run", length=16, batch_size=4, device="cpu"
        )
    model = polyseme.load(tmp_path / "run")
    assert model.bundle.text_tokenizer.pieces(range(3)) == ["<unk>", "\n", " "]
    [found] = model.embed([["Dawn", "broke", "."]])
    assert found.vectors.shape == (3, 256)

"""Softmaxes over large vocabularies: torch's own adaptive one, the sampled one's definition and expectation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from polyseme.errors import ModelError, OptionError
from polyseme.outputs.pieces import CausalOutput
from polyseme.outputs.softmaxes import (
    AdaptiveOutput,
    SampledOutput,
    SoftmaxOutput,
    TwoWayOutput,
    draw_candidates,
    log_expected,
    log_uniform,
    sampled_losses,
)
from references import assert_close

WIDTH, N_PIECES = 16, 50


def drawn(output: nn.Module, spread: float = 0.3) -> nn.Module:
    generator = torch.Generator().manual_seed(3)
    for parameter in output.parameters():
        nn.init.normal_(parameter, std=spread, generator=generator)
    return output.double()


def some_states(n: int = 40) -> torch.Tensor:
    return torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


# --- adaptive ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("targets", ["all", "frequent", "rarest"])
def test_the_adaptive_softmax_is_torch_s_own(targets: str) -> None:
    """Losses and gradients, also where a cluster has no target: its gradient is zero then, but it is there."""
    output = drawn(AdaptiveOutput(WIDTH, N_PIECES, (10, 30)))
    reference = drawn(nn.AdaptiveLogSoftmaxWithLoss(WIDTH, N_PIECES, [10, 30], div_value=4.0))
    states = some_states()
    wanted = {"all": torch.arange(40) + 7, "frequent": torch.arange(40) % 10, "rarest": torch.arange(40) % 20 + 30}
    losses = output.loss(states, wanted[targets])
    expected = -reference(states, wanted[targets]).output
    assert_close(losses, expected, 1e-12)
    losses.sum().backward()
    expected.sum().backward()
    for mine, theirs in zip(output.parameters(), reference.parameters(), strict=True):
        assert mine.grad is not None
        assert_close(mine.grad, torch.zeros_like(mine) if theirs.grad is None else theirs.grad, 1e-12, 1.0)


def test_all_log_probabilities_of_the_adaptive_softmax() -> None:
    output = drawn(AdaptiveOutput(WIDTH, N_PIECES, (10, 30)))
    states = some_states()
    every = output.log_probs(states)
    assert_close(every.exp().sum(dim=1), torch.ones(40, dtype=torch.float64), 1e-12)
    for piece in (0, 9, 10, 29, 30, 49):
        assert_close(-output.loss(states, torch.full((40,), piece)), every[:, piece], 1e-12)


@pytest.mark.parametrize("cutoffs", [(), (0, 5), (30, 10), (10, 10), (10, 50)])
def test_cutoffs_that_cannot_be_are_refused(cutoffs: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="must rise"):
        AdaptiveOutput(WIDTH, N_PIECES, cutoffs)


def test_states_too_narrow_for_the_clusters_are_refused() -> None:
    with pytest.raises(ModelError, match="at least 64 wide"):
        AdaptiveOutput(WIDTH, N_PIECES, (10, 20, 30))


# --- full -------------------------------------------------------------------------------------------------------------


def test_the_full_softmax_is_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    output = drawn(SoftmaxOutput(WIDTH, N_PIECES))
    states, targets = some_states(), torch.arange(40)
    expected = -torch.log_softmax(states @ output.table.T + output.bias, dim=-1)[torch.arange(40), targets]
    assert_close(output.loss(states, targets), expected, 1e-12)
    monkeypatch.setattr("polyseme.outputs.softmaxes.AT_ONCE", 7 * N_PIECES)
    with torch.no_grad():
        assert_close(output.loss(states, targets), expected, 1e-12)
    assert_close(output.log_probs(states)[torch.arange(40), targets], -expected, 1e-12)


# --- sampled ----------------------------------------------------------------------------------------------------------


def test_frequent_pieces_are_drawn_by_zipf_s_law() -> None:
    probabilities = log_uniform(1000).double()
    assert_close(probabilities.sum(), torch.tensor(1.0, dtype=torch.float64), 1e-6)
    assert float(probabilities[0]) == pytest.approx(math.log(2) / math.log(1001), rel=1e-6)
    assert float(probabilities[999]) == pytest.approx(math.log(1001 / 1000) / math.log(1001), rel=1e-4)


def test_candidates_are_those_of_drawing_without_putting_back() -> None:
    """How often each piece is among two of five, against the sum over all orders of drawing."""
    probabilities = log_uniform(5)
    p = probabilities.double().numpy() / probabilities.sum().item()
    expected = [p[i] + sum(p[j] * p[i] / (1 - p[j]) for j in range(5) if j != i) for i in range(5)]
    torch.manual_seed(0)
    n_draws = 6000
    counts = torch.zeros(5)
    for _ in range(n_draws):
        pieces = draw_candidates(probabilities, 2).pieces
        assert len(set(pieces.tolist())) == 2
        counts[pieces] += 1
    error = 4 * np.sqrt(np.array(expected) * (1 - np.array(expected)) / n_draws)
    assert (np.abs(counts.numpy() / n_draws - expected) < error).all()


def test_the_sum_over_candidates_is_right_on_average() -> None:
    """What is taken off the logits makes the sampled partition function an unbiased one."""
    probabilities = log_uniform(N_PIECES)
    scores = torch.randn(N_PIECES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.manual_seed(1)
    sums = []
    for _ in range(4000):
        candidates = draw_candidates(probabilities, 12)
        chance = log_expected(probabilities, candidates.threshold)[candidates.pieces]
        sums.append(float((scores[candidates.pieces] - chance).exp().sum()))
    error = np.std(sums) / math.sqrt(len(sums))
    assert error < 0.02 * float(scores.exp().sum())
    assert abs(np.mean(sums) - float(scores.exp().sum())) < 4 * error


@pytest.mark.parametrize("biased", [True, False])
def test_the_sampled_loss_is_its_definition(biased: bool) -> None:
    output = drawn(SoftmaxOutput(WIDTH, N_PIECES) if biased else CausalOutput(WIDTH, N_PIECES, tied=False))
    states, targets = some_states(), torch.arange(40) % 20
    probabilities = log_uniform(N_PIECES)
    torch.manual_seed(5)
    candidates = draw_candidates(probabilities, 12)
    bias = output.bias if biased else None
    found = sampled_losses(output.table, bias, states, targets, candidates, probabilities)
    assert len(set(candidates.pieces.tolist()) & set(targets.tolist())) > 2  # some are targets themselves
    table = output.table.detach().numpy()
    offset = output.bias.detach().numpy() if biased else np.zeros(N_PIECES)
    chance = 1 - np.exp(-probabilities.double().numpy() * float(candidates.threshold))
    for state, target, loss in zip(states.numpy(), targets.tolist(), found.tolist(), strict=True):
        corrected = {
            piece: state @ table[piece] + offset[piece] - math.log(chance[piece])
            for piece in {target, *candidates.pieces.tolist()}
        }
        expected = math.log(sum(map(math.exp, corrected.values()))) - corrected[target]
        assert loss == pytest.approx(expected, rel=1e-5)


def test_it_is_sampled_in_training_only() -> None:
    inner = drawn(SoftmaxOutput(WIDTH, N_PIECES))
    output = SampledOutput(inner, 12)
    states, targets = some_states(), torch.arange(40)
    full = inner.loss(states, targets)
    torch.manual_seed(6)
    first = output.loss(states, targets)
    assert not torch.allclose(first, full)
    assert not torch.equal(output.loss(states, targets), first)
    torch.manual_seed(6)
    assert torch.equal(output.loss(states, targets), first)
    output.eval()
    assert torch.equal(output.loss(states, targets), full)
    assert torch.equal(output.log_probs(states), inner.log_probs(states))
    assert torch.equal(SampledOutput(inner, N_PIECES).train().loss(states, targets), full)
    with pytest.raises(OptionError, match="at least 1 sample"):
        SampledOutput(inner, 0)


def test_losses_are_in_single_precision_under_autocast() -> None:
    states, targets = some_states().float(), torch.arange(40)
    for output in (
        SoftmaxOutput(WIDTH, N_PIECES),
        AdaptiveOutput(WIDTH, N_PIECES, (10, 30)),
        SampledOutput(SoftmaxOutput(WIDTH, N_PIECES), 12),
    ):
        torch.manual_seed(1)
        exact = output.loss(states, targets)
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16):
            near = output.loss(states, targets)
        assert near.dtype == torch.float32
        assert_close(near.mean(), exact.mean(), 0.02)


# --- both ways --------------------------------------------------------------------------------------------------------


def test_both_halves_have_one_softmax() -> None:
    softmax = drawn(SoftmaxOutput(WIDTH, N_PIECES))
    output = TwoWayOutput(softmax)
    one, other, targets = some_states(), some_states().flip(0), torch.arange(40)
    assert torch.equal(output.loss(one, targets), softmax.loss(one, targets))
    assert torch.equal(output.log_probs(one), softmax.log_probs(one))
    both = torch.cat([one, other], dim=-1)
    assert_close(output.loss(both, targets), (softmax.loss(one, targets) + softmax.loss(other, targets)) / 2, 1e-12)
    assert_close(output.log_probs(both).exp().sum(dim=-1), torch.ones(40, dtype=torch.float64), 1e-12)

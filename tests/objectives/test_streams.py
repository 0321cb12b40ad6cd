"""Language modeling over streams: the loss by its equations, the memory, every softmax, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import polyseme
from objectives.rows import redrawn, tensors
from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.corpus.random_keys import row_keys
from polyseme.cost import forward_flops
from polyseme.errors import OptionError
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.objectives.objective_table import OBJECTIVES, check_needs, objective_from
from polyseme.objectives.streams import Streamed
from polyseme.parts.recurrence import State
from polyseme.types import Batch, Rows
from references import assert_close
from tiny_models import tiny_config, tiny_tokenizer

N_ROWS, LENGTH = 3, 12
CASES: dict[str, tuple[Streamed, dict[str, Any], bool]] = {
    "tied": (Streamed(), {}, True),
    "own table": (Streamed(), {"inner_width": None, "width": 20}, False),
    "adaptive": (Streamed(), {"output_cutoffs": (20,)}, True),
    "sampled": (Streamed(softmax="sampled", n_samples=16), {}, True),
    "plain recurrence": (Streamed(), {"cells": "tanh", "inner_width": None}, True),
}
every_case = pytest.mark.parametrize("case", CASES)


@pytest.fixture(autouse=True)
def forget_what_was_compiled() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def bundle_for(case: str, *, spread: float | None = 0.3, **others: Any) -> Bundle:
    _, changes, tied = CASES[case]
    torch.manual_seed(2)
    config = tiny_config("lstm", **{**changes, **others})
    return redrawn(new_bundle(FAMILIES["lstm"], config, ["causal"], tiny_tokenizer("lstm"), tied=tied), spread)


def told(case: str) -> Streamed:
    return CASES[case][0].for_tokenizer(tiny_tokenizer("lstm"))


def some_rows(length: int = LENGTH + 1, seed: int = 0, n_rows: int = N_ROWS) -> Rows:
    pieces = np.random.default_rng(seed).integers(0, tiny_tokenizer("lstm").n_pieces, (n_rows, length))
    nothing = np.zeros(pieces.shape, np.bool_)
    return Rows(pieces=pieces, starts=~nothing, special=nothing, keys=row_keys(seed, 0, np.arange(n_rows)))


def lstm_by_hand(x: Tensor, reader: Any, h: Tensor, c: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """i, f, g, o = W_x x + W_h h + b;  c = σ(f) c + σ(i) tanh g;  h = W_p (σ(o) tanh c)"""
    states = []
    for now in x.unbind(1):
        i, f, g, o = (now @ reader.input.T + h @ reader.recurrent.T + reader.bias).chunk(4, dim=-1)
        c = torch.sigmoid(f + reader.forget_bias) * c + torch.sigmoid(i) * torch.tanh(g)
        h = (torch.sigmoid(o) * torch.tanh(c)) @ reader.projection.T
        states.append(h)
    return states, h, c


def test_the_loss_is_that_of_the_equations() -> None:
    """Two rows one after the other, the second with the memory of the first, in double precision."""
    objective = told("tied")
    bundle = bundle_for("tied").double()
    nets = objective.nets(bundle)
    whole = some_rows(2 * LENGTH + 1)
    table = bundle.encoder.piece_table()
    assert table is not None
    x = table[torch.from_numpy(whole.pieces[:, :-1])]
    for layer in bundle.encoder.layers:
        zeros = [x.new_zeros(N_ROWS, width) for width in (16, 24)]
        x = torch.stack(lstm_by_hand(x, layer[0], *zeros)[0], dim=1)
    log_probs = torch.log_softmax(x @ table.T, dim=-1)
    expected = -log_probs.gather(2, torch.from_numpy(whole.pieces[:, 1:, None]))[..., 0]

    memory = nets.new_memory(N_ROWS)
    for first in (0, LENGTH):
        example = objective.corrupt(
            Rows(**{**vars(whole), "pieces": whole.pieces[:, first : first + LENGTH + 1]})  # the last is only guessed
        )
        assert example.counts == {"causal": N_ROWS * LENGTH}
        loss = objective.loss(nets, tensors(example), memory)
        assert_close(loss.parts["causal"], expected[:, first : first + LENGTH].sum(), 1e-12)
        assert loss.memory is not None
        assert not any(each.requires_grad for each in loss.memory.tensors().values())
        memory = loss.memory
    assert memory.lengths.tolist() == [2 * LENGTH] * N_ROWS
    without = objective.loss(nets, tensors(example))
    assert without.memory is None
    assert abs(float((without.parts["causal"] - expected[:, LENGTH:].sum()).detach())) > 1e-3


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in ("tied", "sampled") else pytest.mark.slow) for case in CASES]
)
def test_one_batch_is_learnt_by_heart(case: str) -> None:
    objective = told(case)
    nets = objective.nets(bundle_for(case, spread=None, n_layers=1))
    example = objective.corrupt(some_rows())
    arrays = tensors(example)
    optimizer = torch.optim.AdamW(nets.parameters(), lr=2e-2)
    losses = []
    for step in range(250):
        torch.manual_seed(step)
        loss = objective.loss(nets, arrays).parts["causal"] / example.counts["causal"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    nets.eval()
    with torch.no_grad():
        assert float(objective.loss(nets, arrays).parts["causal"]) / example.counts["causal"] < 0.15 * losses[0]


@every_case
def test_every_parameter_is_trained_and_the_memory_counts(case: str) -> None:
    objective = told(case)
    nets = objective.nets(bundle_for(case))
    parts, after = nets(tensors(objective.corrupt(some_rows())), nets.new_memory(N_ROWS))
    parts["causal"].backward()
    assert parts.keys() == objective.weights.keys()
    for name, parameter in nets.named_parameters():
        assert parameter.grad is not None, name
    assert isinstance(after, State)
    assert after.lengths.tolist() == [LENGTH] * N_ROWS


@pytest.mark.parametrize("case", [pytest.param("tied", marks=pytest.mark.slow), "sampled"])
def test_the_compiled_nets_equal_the_plain_ones(case: str) -> None:
    objective = told(case)
    nets = objective.nets(bundle_for(case, n_layers=1)).double()
    arrays = tensors(objective.corrupt(some_rows(4)))
    fast = torch.compile(nets, fullgraph=True, backend="aot_eager")
    found = []
    for run in (nets, fast):
        nets.zero_grad()
        torch.manual_seed(3)
        memory = nets.new_memory(N_ROWS)
        for _ in range(2):
            parts, memory = run(arrays, memory)
            memory = memory.detach()
        parts["causal"].backward()
        found.append((parts["causal"], memory, {name: each.grad for name, each in nets.named_parameters()}))
    (plain, held, expected), (compiled, also_held, gradients) = found
    assert_close(compiled, plain, 1e-10)
    for name, each in held.tensors().items():
        assert_close(also_held.tensors()[name].double(), each.double(), 1e-10)
    largest = max(float(each.abs().max()) for each in expected.values())
    for name, gradient in expected.items():
        assert_close(gradients[name], gradient, 1e-10, largest)


@torch.no_grad()
@every_case
def test_losses_are_in_single_precision_under_autocast(case: str) -> None:
    objective = told(case)
    nets = objective.nets(bundle_for(case, spread=None)).eval()
    arrays = tensors(objective.corrupt(some_rows()))
    expected = nets(arrays)[0]["causal"]
    with torch.autocast("cpu", torch.bfloat16):
        found = nets(arrays)[0]["causal"]
    assert found.dtype == expected.dtype == torch.float32
    assert float(found) == pytest.approx(float(expected), rel=0.02)


@every_case
def test_what_comes_out_is_a_model_that_scores(case: str, tmp_path: Path) -> None:
    objective = told(case)
    nets = objective.nets(bundle_for(case)).eval()
    save_bundle(objective.result(nets)["model"], tmp_path / "model")
    model = polyseme.load(tmp_path / "model", device="cpu")
    [scored] = model.score(["Dawn broke."])
    again = objective.nets(load_bundle(tmp_path / "model")).eval()
    pieces = [tiny_tokenizer("lstm").specials["end"], *scored.ids.tolist()]
    with torch.no_grad():
        loss = again({"pieces": torch.tensor([pieces])}, again.new_memory(1))[0]["causal"]
        assert_close(loss, nets({"pieces": torch.tensor([pieces])})[0]["causal"], 1e-5)
    assert float(loss) == pytest.approx(-float(np.sum(scored.piece_log_probs)), rel=1e-5)
    assert model.generate("Dawn", max_new=4)


def test_cost_and_settings() -> None:
    objective = told("sampled")
    assert objective_from("streams", objective.to_json()) == Streamed(softmax="sampled", n_samples=16)
    bundle = bundle_for("sampled")
    forward = forward_flops(bundle.config, [LENGTH] * 5)
    assert objective.flops(objective.nets(bundle), 5, LENGTH) == 3 * (forward + 2 * 5 * LENGTH * 17 * 16)
    n_pieces = bundle.config.n_pieces
    full = CASES["tied"][0]
    assert full.flops(full.nets(bundle), 5, LENGTH) == 3 * (forward + 2 * 5 * LENGTH * n_pieces * 16)
    for changes, said in (({"softmax": "sampeld"}, "full or sampled"), ({"n_samples": 0}, "at least 1")):
        with pytest.raises(OptionError, match=said):
            objective_from("streams", changes)


# --- needs ------------------------------------------------------------------------------------------------------------


@every_case
def test_what_fits_is_let_through(case: str) -> None:
    check_needs(told(case), bundle_for(case), tiny_tokenizer("lstm"))


def test_what_cannot_work_is_refused_before_any_work() -> None:
    tokenizer = tiny_tokenizer("lstm")
    sampled = told("sampled")
    with pytest.raises(OptionError, match=r"adaptive softmax .* that is not sampled"):
        check_needs(sampled, bundle_for("adaptive"), tokenizer)
    gpt = new_bundle(FAMILIES["gpt2"], tiny_config("gpt2"), ["causal"])
    with pytest.raises(OptionError, match=r"'streams' carries an encoder's memory .* memory 'cache'"):
        check_needs(told("tied"), gpt, tiny_tokenizer("gpt2"))
    both = new_bundle(FAMILIES["lstm"], tiny_config("lstm", reads="both", memory="none"), [])
    with pytest.raises(OptionError, match=r"sees both sides of a piece\. For this encoder there is: masked, replaced"):
        check_needs(told("tied"), both, tokenizer)
    assert "streams" in OBJECTIVES


# --- from the end, and with states that are kept small ----------------------------------------------------------------


def test_a_backward_encoder_has_the_loss_of_a_forward_one_over_mirrored_rows() -> None:
    forwards, backwards = (bundle_for("tied", reads=reads).double() for reads in ("forwards", "backwards"))
    backwards.load_state_dict(forwards.state_dict())
    objective = told("tied").for_encoder(backwards.config)
    assert objective.needs.layout.backwards  # type: ignore[attr-defined]
    rows = some_rows(2 * LENGTH + 1)
    ours, theirs = objective.nets(backwards), told("tied").nets(forwards)
    back: Any = ours.new_memory(N_ROWS)
    on: Any = theirs.new_memory(N_ROWS)
    pieces = torch.from_numpy(rows.pieces)
    for part in (slice(LENGTH, None), slice(0, LENGTH + 1)):  # the later part first
        mine = objective.loss(ours, {"pieces": pieces[:, part]}, back)
        other = told("tied").loss(theirs, {"pieces": pieces[:, part].flip(1)}, on)
        back, on = mine.memory, other.memory
        assert_close(mine.parts["causal"], other.parts["causal"], 1e-12)


def test_an_encoder_that_reads_from_the_other_end_is_refused() -> None:
    with pytest.raises(OptionError, match="from different ends"):
        told("tied").refuse(bundle_for("tied", reads="backwards"))


def test_states_are_kept_small_in_training_only() -> None:
    """The parts by their equations, counted so that their means are those of the paper."""
    objective = told("tied").replace(activation=2.0, temporal=1.0)
    bundle = bundle_for("tied", dropout_rate=0.5).double()
    nets = objective.nets(bundle)
    example = objective.corrupt(some_rows())
    assert example.counts == {
        "causal": N_ROWS * LENGTH, "activation": N_ROWS * LENGTH, "temporal": N_ROWS * (LENGTH - 1)
    }  # fmt: skip
    torch.manual_seed(5)
    parts = objective.loss(nets.train(), tensors(example)).parts
    torch.manual_seed(5)
    states = bundle.encoder(Batch(torch.from_numpy(some_rows().pieces)[:, :-1]), layers=[-1])
    assert_close(parts["activation"] / example.counts["activation"], (states[-1] ** 2).mean(), 1e-12)
    steps = (states.undropped[:, 1:] - states.undropped[:, :-1]) ** 2
    assert_close(parts["temporal"] / example.counts["temporal"], steps.mean(), 1e-12)
    assert (states.undropped != states[-1]).any()
    assert objective.loss(nets.eval(), tensors(example)).parts.keys() == {"causal"}


def test_weights_of_parts_that_are_none_are_refused() -> None:
    with pytest.raises(OptionError, match="temporal"):
        Streamed(temporal=-1.0)

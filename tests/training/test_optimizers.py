"""Optimizers: which parameter goes where, BERT's update written out, and rates that can be set."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.errors import OptionError
from polyseme.objectives.bilm import BiLM
from polyseme.objectives.streams import Streamed
from polyseme.training.muon import Muon
from polyseme.training.optimizers import (
    Optimizer,
    OptimizerKind,
    OptimizerSettings,
    Several,
    UncorrectedAdamW,
    build_optimizer,
    layer_rates,
    rates_below_outputs,
    set_rate,
)

KINDS: list[OptimizerKind] = ["adamw", "adamw-uncorrected", "adagrad", "sgd", "muon"]


def small(family: str = "bert") -> Bundle:
    torch.manual_seed(3)
    return new_bundle(FAMILIES[family], FAMILIES[family].tiny(), FAMILIES[family].outputs)


def draw_gradients(nets: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in nets.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


def group_of(optimizer: Optimizer) -> dict[Tensor, dict[str, float]]:
    return {parameter: group for group in optimizer.param_groups for parameter in group["params"]}


# --- groups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["albert", "bert", "electra"])
def test_every_parameter_is_in_it_once(kind: OptimizerKind, family: str) -> None:
    nets = small(family)
    next(iter(nets.parameters())).requires_grad_(False)
    optimizer = build_optimizer(nets, OptimizerSettings(kind=kind), device="cpu")
    found = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert len(found) == len(set(found))
    assert set(found) == set(nets.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_do_not_decay(kind: OptimizerKind) -> None:
    nets = small()
    nets.register_parameter("content_bias", nn.Parameter(torch.zeros(4, 8)))
    groups = group_of(build_optimizer(nets, OptimizerSettings(kind=kind, weight_decay=0.03), device="cpu"))
    for name, parameter in nets.named_parameters():
        decays = name.endswith((".weight", ".table")) and "norm" not in name
        assert groups[parameter]["weight_decay"] == (0.03 if decays else 0.0), name


def test_muon_moves_the_matrices_of_the_stack_and_nothing_else() -> None:
    nets = small("electra")
    optimizer = build_optimizer(nets, OptimizerSettings(kind="muon"), device="cpu")
    assert isinstance(optimizer, Several)
    names = {parameter: name for name, parameter in nets.named_parameters()}
    moved = {names[parameter] for group in optimizer.optimizers[0].param_groups for parameter in group["params"]}
    layers = {f"encoder.layers.{number}." for number in range(len(nets.encoder.layers))}  # type: ignore[arg-type]
    inside = ("attention.project", "attention.output", "feed_forward.up", "feed_forward.down")
    assert moved == {f"{layer}{part}.weight" for layer in layers for part in inside}


def test_muon_is_refused_where_there_is_nothing_for_it() -> None:
    with pytest.raises(OptionError, match="there are none"):
        build_optimizer(nn.Linear(3, 3), OptimizerSettings(kind="muon"), device="cpu")


# --- rates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_factor_is_of_the_rate_it_was_built_with(kind: OptimizerKind) -> None:
    optimizer = build_optimizer(small(), OptimizerSettings(kind=kind, lr=0.25), device="cpu")
    for factor in (0.5, 0.125, 1.0):
        set_rate(optimizer, factor)
        assert {group["lr"] for group in optimizer.param_groups} == {0.25 * factor}


@pytest.mark.parametrize("kind", KINDS)
def test_layers_can_have_rates_of_their_own(kind: OptimizerKind) -> None:
    nets = small()
    layers = nets.encoder.layer_groups()
    rates = layer_rates(layers, 0.5)
    optimizer = build_optimizer(nets, OptimizerSettings(kind=kind, lr=1.0), device="cpu", rates=rates)
    set_rate(optimizer, 0.5)
    groups = group_of(optimizer)
    for depth, layer in enumerate(layers):
        assert {groups[parameter]["lr"] for parameter in layer} == {0.5 * 0.5 ** (len(layers) - 1 - depth)}
    assert {groups[parameter]["lr"] for parameter in nets.outputs["pooled"].parameters()} == {0.5}


@pytest.mark.parametrize("tied", [True, False])
def test_rates_fall_from_the_output_down(tied: bool) -> None:
    """ULMFiT's η^(l-1) = η^l / 2.6: the output at the top, and with it a table that it shares."""
    family = FAMILIES["lstm"]
    nets = Streamed().nets(new_bundle(family, family.tiny().replace(n_layers=3), ["causal"], tied=tied))
    rates = rates_below_outputs(nets, 1 / 2.6)
    table, *layers = nets.encoder.layer_groups()  # type: ignore[union-attr, operator]
    for below, layer in enumerate(reversed(layers), 1):
        assert [rates[parameter] for parameter in layer] == pytest.approx([2.6**-below] * len(layer))
    assert [rates.get(parameter, 1.0) for parameter in table] == pytest.approx([1.0 if tied else 2.6**-4])
    assert not set(rates) & set(nets.output.parameters())  # type: ignore[union-attr]
    both = rates_below_outputs(BiLM().nets(small("elmo")), 0.5)  # a half of a two-way encoder is no encoder of its own
    assert {0.5, 0.25} <= set(both.values())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_frozen_stays_and_moves_once_unfrozen(kind: OptimizerKind) -> None:
    nets = small()
    frozen = nets.encoder.layers[0].attention.output.weight  # type: ignore[index, union-attr]
    before = frozen.detach().clone()
    optimizer = build_optimizer(nets, OptimizerSettings(kind=kind), device="cpu")
    draw_gradients(nets, 1)
    frozen.grad = None
    optimizer.step()
    assert torch.equal(frozen, before)
    draw_gradients(nets, 2)
    optimizer.step()
    assert not torch.equal(frozen, before)


# --- the updates -----------------------------------------------------------------------------------------------------


def test_the_uncorrected_update_is_berts() -> None:
    """`AdamWeightDecayOptimizer` of google-research/bert, written out."""
    nets = small().double()
    settings = OptimizerSettings(kind="adamw-uncorrected", lr=1e-2, epsilon=1e-6, weight_decay=0.01, betas=(0.9, 0.999))
    weights = {name: each.detach().clone() for name, each in nets.named_parameters()}
    m = {name: torch.zeros_like(each) for name, each in weights.items()}
    v = {name: torch.zeros_like(each) for name, each in weights.items()}
    optimizer = build_optimizer(nets, settings, device="cpu")
    for step in range(20):
        draw_gradients(nets, step)
        rate = 1e-2 * (step + 1) / 20
        for name, parameter in nets.named_parameters():
            grad = parameter.grad
            assert grad is not None
            m[name] = 0.9 * m[name] + (1.0 - 0.9) * grad
            v[name] = 0.999 * v[name] + (1.0 - 0.999) * grad * grad
            update = m[name] / (v[name].sqrt() + 1e-6)
            if "norm" not in name and "bias" not in name:
                update = update + 0.01 * weights[name]
            weights[name] = weights[name] - rate * update
        set_rate(optimizer, (step + 1) / 20)
        optimizer.step()
    for name, parameter in nets.named_parameters():
        assert (parameter - weights[name]).abs().max() <= 1e-12 * weights[name].abs().max(), name


def test_the_correction_is_what_is_left_out() -> None:
    """The first step without it is (1 - β₁)/√(1 - β₂) times as long, which torch's AdamW divides out."""
    moved = []
    for kind in ("adamw", "adamw-uncorrected"):
        nets = small().double()
        before = [parameter.detach().clone() for parameter in nets.parameters()]
        optimizer = build_optimizer(nets, OptimizerSettings(kind=kind, weight_decay=0, epsilon=0), device="cpu")  # type: ignore[arg-type]
        draw_gradients(nets, 0)
        optimizer.step()
        moved.append(torch.cat([(a - b).flatten() for a, b in zip(nets.parameters(), before, strict=True)]))
    assert torch.allclose(moved[1], moved[0] * 0.1 / 0.001**0.5, rtol=1e-9)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("adamw-uncorrected", "muon")])
def test_the_others_are_torchs_with_these_settings(kind: OptimizerKind) -> None:
    settings = OptimizerSettings(
        kind=kind, lr=0.01, betas=(0.8, 0.98), epsilon=1e-7, weight_decay=0.02, momentum=0.6, initial_sum=0.5
    )
    ours, theirs = small(), small()
    optimizer = build_optimizer(ours, settings, device="cpu")
    groups = [
        {"params": [each for each in theirs.parameters() if each.dim() > 1], "weight_decay": 0.02},
        {"params": [each for each in theirs.parameters() if each.dim() == 1], "weight_decay": 0.0},
    ]
    reference: list[torch.optim.Optimizer] = []
    if kind == "adagrad":
        reference += [torch.optim.Adagrad(groups, lr=0.01, eps=1e-7, initial_accumulator_value=0.5)]
    elif kind == "sgd":
        reference += [torch.optim.SGD(groups, lr=0.01, momentum=0.6, nesterov=True)]
    else:
        reference += [torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.98), eps=1e-7, fused=True)]
    for step in range(3):
        draw_gradients(ours, step)
        draw_gradients(theirs, step)
        optimizer.step()
        for each in reference:
            each.step()
    for (name, mine), their in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, their), name


def written_out(weight: torch.Tensor, gradients: list[torch.Tensor], lr: float, decay: float) -> torch.Tensor:
    """Muon as its authors and Liu et al. (2025) describe it, one matrix at a time."""
    momentum = torch.zeros_like(weight)
    for gradient in gradients:
        momentum = 0.6 * momentum + 0.4 * gradient
        x = 0.4 * gradient + 0.6 * momentum
        tall = x.shape[0] > x.shape[1]
        x = (x.T if tall else x) / x.norm()
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
        x = x.T if tall else x
        weight = weight * (1 - lr * decay) - lr * 0.2 * max(weight.shape) ** 0.5 * x
    return weight


@pytest.mark.parametrize("matrix_lr", [None, 0.03])
def test_muon_is_its_equations(matrix_lr: float | None) -> None:
    nets = small().double()
    settings = OptimizerSettings(kind="muon", lr=0.01, matrix_lr=matrix_lr, weight_decay=0.02, momentum=0.6)
    optimizer = build_optimizer(nets, settings, device="cpu")
    assert isinstance(optimizer, Several)
    matrices = [each for group in optimizer.optimizers[0].param_groups for each in group["params"]]
    before = [each.detach().clone() for each in matrices]
    gradients: list[list[torch.Tensor]] = []
    for step in range(3):
        draw_gradients(nets, step)
        gradients.append([each.grad.clone() for each in matrices])
        optimizer.step()
    assert len({each.shape for each in matrices}) < len(matrices)
    for number, matrix in enumerate(matrices):
        expected = written_out(before[number], [each[number] for each in gradients], matrix_lr or 0.01, 0.02)
        torch.testing.assert_close(matrix.detach(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has one of its own from 2.9 on")
def test_muon_is_torchs_but_for_bf16() -> None:
    generator = torch.Generator().manual_seed(0)
    ours = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((24, 16), (24, 16), (8, 32))]
    theirs = [nn.Parameter(each.detach().clone()) for each in ours]
    mine = Muon([{"params": ours, "lr": 0.01, "weight_decay": 0.02}], momentum=0.6)
    other = torch.optim.Muon(theirs, lr=0.01, momentum=0.6, weight_decay=0.02, adjust_lr_fn="match_rms_adamw")
    for _ in range(2):
        for one, two in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            two.grad = one.grad.clone()
        mine.step()
        other.step()
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0.01 * 0.2 * max(one.shape) ** 0.5 * 0.05)


@pytest.fixture
def many_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("many_cores")
@pytest.mark.parametrize("kind", ["adamw", "adamw-uncorrected"])
def test_the_number_of_cores_does_not_show(kind: OptimizerKind) -> None:
    found = []
    for n_cores in (1, 2):
        torch.set_num_threads(n_cores)
        generator = torch.Generator().manual_seed(0)
        nets = nn.ParameterList(
            nn.Parameter(torch.randn(size, generator=generator)) for size in (7, 1003, (517, 129), (301, 257))
        )
        optimizer = build_optimizer(nets, OptimizerSettings(kind=kind), device="cpu")
        for step in range(3):
            draw_gradients(nets, step)
            optimizer.step()
        found.append([each.detach().clone() for each in nets])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


# --- the rest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_goes_out_and_comes_back(kind: OptimizerKind) -> None:
    ours, theirs = small(), small()
    optimizer = build_optimizer(ours, OptimizerSettings(kind=kind), device="cpu")
    draw_gradients(ours, 0)
    optimizer.step()
    theirs.load_state_dict(ours.state_dict())
    other = build_optimizer(theirs, OptimizerSettings(kind=kind), device="cpu")
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each, nets in ((optimizer, ours), (other, theirs)):
        draw_gradients(nets, 1)
        set_rate(each, 0.5)
        each.step()
        each.zero_grad()
        assert all(parameter.grad is None for parameter in nets.parameters())
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_a_step_without_gradients_is_none() -> None:
    nets = nn.Linear(3, 3)
    before = nets.weight.detach().clone()
    UncorrectedAdamW(nets.parameters()).step()
    assert torch.equal(nets.weight, before)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kind": "adam"}, "adamw"),
        ({"lr": 0}, "learning rate"),
        ({"lr": float("nan")}, "nan"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"betas": (0.9,)}, "betas"),
        ({"momentum": 1}, "momentum"),
        ({"epsilon": -1}, "epsilon"),
        ({"weight_decay": -0.1}, "weight_decay"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, object], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        OptimizerSettings(**settings)  # type: ignore[arg-type]


def test_settings_go_to_json_and_back() -> None:
    settings = OptimizerSettings(kind="muon", betas=(0.9, 0.98))
    assert OptimizerSettings.from_json({**settings.to_json(), "betas": [0.9, 0.98]}) == settings

"""Optimizers: which parameters decay, the learning rate of each, and which update rule (torch's or ours) moves them.

Every parameter is in the optimizer exactly once, also one that takes no gradient now: torch skips it and keeps
no state for it, so it can be unfrozen later (gradual unfreezing) without touching the optimizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from polyseme.config import Config
from polyseme.encoders.encoder import Encoder
from polyseme.errors import OptionError, nearest
from polyseme.outputs.output import Output
from polyseme.training.muon import Muon

OptimizerKind = Literal["adamw", "adamw-uncorrected", "muon", "adagrad", "sgd", "nt-asgd"]
Groups: TypeAlias = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings(Config):
    """An update rule and its numbers. The defaults are BERT's, except the learning rate."""

    kind: OptimizerKind = "adamw"
    lr: float = 1e-4
    """The peak learning rate; the schedule's factor and a parameter's own multiply it."""
    matrix_lr: float | None = None
    """The peak learning rate of the matrices that Muon moves; None: `lr`, since Muon's steps are as long as AdamW's."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's, and that of the parameters which Muon leaves to it."""
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    """Decoupled from the gradient in AdamW and Muon, added to it in the others. Biases, norms and other vectors
    have none."""
    momentum: float = 0.95
    """Muon's and SGD's."""
    nesterov: bool = True
    """Whether Muon and SGD look ahead along the momentum."""
    initial_sum: float = 0.0
    """What Adagrad's sums of squares begin with (ELMo: 1)."""
    patience: int = 5
    """Evaluations without a better one after which NT-ASGD begins to average weights."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(OptimizerKind):
            raise OptionError(f"There is no optimizer {self.kind!r}. {nearest(self.kind, get_args(OptimizerKind))}")
        for rate in (self.lr, self.lr if self.matrix_lr is None else self.matrix_lr):
            if not 0 < rate < float("inf"):
                raise OptionError(f"The learning rate must be above 0. Got {rate} instead.")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise OptionError(
                f"The betas of an optimizer must be two numbers from 0 to below 1. Got {self.betas} instead."
            )
        if not 0 <= self.momentum < 1:
            raise OptionError(f"The momentum of an optimizer must be from 0 to below 1. Got {self.momentum} instead.")
        for name in ("epsilon", "weight_decay", "initial_sum"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise OptionError(f"The {name} of an optimizer must be 0 or more. Got {getattr(self, name)} instead.")
        if self.patience < 1:
            raise OptionError(f"The patience of an optimizer must be at least 1. Got {self.patience} instead.")

    @property
    def averages(self) -> bool:
        """Whether the weights that count are an average that the optimizer itself begins (NT-ASGD)."""
        return self.kind == "nt-asgd"

    @property
    def is_plain_sgd(self) -> bool:
        """Whether a weight moves by its gradient times the learning rate and nothing else."""
        return self.kind == "sgd" and self.momentum == 0 and self.weight_decay == 0


class UncorrectedAdamW(torch.optim.Optimizer):
    """AdamW without bias correction, as BERT and ELECTRA were trained with: Adam's means as they are, from zero on.

    m ← β₁m + (1 - β₁)g;  v ← β₂v + (1 - β₂)g²;  w ← w - rate · (m / (√v + ε) + decay · w)

    The first steps are longer than with the correction (by about (1 - β₁)/√(1 - β₂), thus three times), which a
    warmup makes up for. All parameters of a group move in a handful of calls, also those that FSDP spreads out. The
    rate may be a tensor.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-4,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        numbers = {"lr": lr, "betas": betas, "eps": epsilon, "weight_decay": weight_decay, "capturable": False}
        super().__init__(params, numbers)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameter in moved:
                if not self.state[parameter]:
                    self.state[parameter]["exp_avg"] = torch.zeros_like(parameter)
                    self.state[parameter]["exp_avg_sq"] = torch.zeros_like(parameter)
            if moved:
                self._move(moved, group)

    def _move(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        means = [self.state[parameter]["exp_avg"] for parameter in parameters]
        squares = [self.state[parameter]["exp_avg_sq"] for parameter in parameters]
        rate, (first, second) = group["lr"], group["betas"]
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
        below = torch._foreach_sqrt(squares)
        torch._foreach_add_(below, group["eps"])
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - rate * group["weight_decay"])
        if isinstance(rate, Tensor):
            steps = torch._foreach_div(means, below)
            torch._foreach_mul_(steps, rate)
            torch._foreach_sub_(parameters, steps)
        else:
            torch._foreach_addcdiv_(parameters, means, below, -rate)


class Several:
    """Optimizers that share the parameters among them and step together, used as if they were one."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = optimizers

    @property
    def param_groups(self) -> Groups:
        """Those of all, which may be changed in place."""
        return [group for each in self.optimizers for group in each.param_groups]

    def step(self) -> None:
        for each in self.optimizers:
            each.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for each in self.optimizers:
            each.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return {"optimizers": [each.state_dict() for each in self.optimizers]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for each, its_state in zip(self.optimizers, state["optimizers"], strict=True):
            each.load_state_dict(its_state)


Optimizer: TypeAlias = torch.optim.Optimizer | Several


def build_optimizer(
    nets: nn.Module,
    settings: OptimizerSettings,
    *,
    device: torch.device | str,
    rates: Mapping[nn.Parameter, float] | None = None,
) -> Optimizer:
    """The optimizer of everything in `nets`, which are on their device, and spread out where FSDP does that.

    `rates` multiplies the rate of single parameters (see `layer_rates`); those that are not in it have the rate itself.
    """
    named = dict(nets.named_parameters())
    device = torch.device(device)
    if settings.kind != "muon":
        return _build_one(_groups(named, settings, rates), settings, device)
    inside = {parameter for parameter in _inside_stacks(nets) if parameter.dim() == 2}
    matrices = {name: each for name, each in named.items() if each in inside and _decays(name, each)}
    if not matrices:
        raise OptionError(
            "The optimizer 'muon' moves the matrices inside an encoder's layers, and there are none in what is to be "
            "trained. Choose 'adamw'."
        )
    others = {name: each for name, each in named.items() if name not in matrices}
    of_matrices = settings if settings.matrix_lr is None else settings.replace(lr=settings.matrix_lr)
    return Several(
        Muon(_groups(matrices, of_matrices, rates), momentum=settings.momentum, nesterov=settings.nesterov),
        _build_one(_groups(others, settings, rates), settings, device),
    )


def layer_rates(groups: Sequence[Iterable[nn.Parameter]], decay: float) -> dict[nn.Parameter, float]:
    """Rates that fall by `decay` from each of an encoder's `layer_groups()` to the one below; the top's is 1."""
    return {parameter: decay**below for below, group in enumerate(reversed(groups)) for parameter in group}


def rates_below_outputs(nets: nn.Module, decay: float) -> dict[nn.Parameter, float]:
    """Discriminative rates of a pretraining (Howard and Ruder 2018): 1 for outputs, `decay` for the layer below …

    A table that an output shares is the output's, as in fastai.
    """
    outputs = {each for module in nets.modules() if isinstance(module, Output) for each in module.parameters()}
    rates: dict[nn.Parameter, float] = {}
    for encoder in _outermost_encoders(nets):
        of_layers = layer_rates(encoder.layer_groups(), decay)
        rates |= {parameter: rate * decay for parameter, rate in of_layers.items() if parameter not in outputs}
    return rates


def _outermost_encoders(nets: nn.Module) -> list[Encoder]:
    encoders = [module for module in nets.modules() if isinstance(module, Encoder)]
    inside = {part for encoder in encoders for part in encoder.modules() if part is not encoder}
    return [encoder for encoder in encoders if encoder not in inside]


def set_rate(optimizer: Optimizer, factor: float) -> None:
    """Let each parameter's rate be this much of what it was built with, in place where it is a tensor."""
    for group in optimizer.param_groups:
        rate = group["initial_lr"] * factor
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def can_be_recorded(optimizer: Optimizer) -> bool:
    """Whether its steps are computed on the device alone; torch's optimizers that can do so have this setting."""
    return all("capturable" in group for group in optimizer.param_groups)


def prepare_for_recording(optimizer: Optimizer, device: torch.device) -> None:
    """Put rates and counts of steps on the device, where a recorded step finds them; before the first step."""
    for group in optimizer.param_groups:
        group["capturable"] = True
        group["lr"] = torch.tensor(float(group["lr"]), device=device)


def _groups(
    named: Mapping[str, nn.Parameter], settings: OptimizerSettings, rates: Mapping[nn.Parameter, float] | None
) -> Groups:
    """Parameters of one rate and one decay together, in the order in which the first of each came."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in named.items():
        rate = settings.lr * (1.0 if rates is None else rates.get(parameter, 1.0))
        decay = settings.weight_decay if _decays(name, parameter) else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "initial_lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]


def _decays(name: str, parameter: nn.Parameter) -> bool:
    """Matrices and tables do; biases (XLNet's have two dimensions), norms and other vectors do not."""
    return parameter.dim() > 1 and not name.endswith("bias")


def _inside_stacks(nets: nn.Module) -> set[nn.Parameter]:
    """The parameters above the lowest group of layers of every encoder: no tables, no outputs."""
    encoders = [module for module in nets.modules() if isinstance(module, Encoder)]
    above = {parameter for encoder in encoders for group in encoder.layer_groups()[1:] for parameter in group}
    tables = {module.weight for module in nets.modules() if isinstance(module, nn.Embedding)}
    return above - tables


def _build_one(groups: Groups, settings: OptimizerSettings, device: torch.device) -> torch.optim.Optimizer:
    """The optimizer of a kind; AdamW is also what Muon leaves the other parameters to."""
    if settings.kind == "adamw-uncorrected":
        return UncorrectedAdamW(groups, betas=settings.betas, epsilon=settings.epsilon)
    if settings.kind == "adagrad":
        return torch.optim.Adagrad(groups, eps=settings.epsilon, initial_accumulator_value=settings.initial_sum)
    if settings.kind == "nt-asgd":  # plain steps; the averaging is `weight_average.TriggeredAverage`
        return torch.optim.SGD(groups, lr=settings.lr)
    if settings.kind == "sgd":
        nesterov = settings.nesterov and settings.momentum > 0
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, nesterov=nesterov)
    # Fused where torch has that; on a CPU too it is the fastest, and the same on any number of cores.
    fused = True if device.type in ("cuda", "cpu") else None
    return torch.optim.AdamW(groups, betas=settings.betas, eps=settings.epsilon, fused=fused)

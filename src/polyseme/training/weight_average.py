"""Averages of weights: an exponential one that goes along with training, one that begins when training has come to a
stand (NT-ASGD), and the mean of the last checkpoints.

The exponential average after step t moves by 1 - d towards the weights, where d is the decay, but at most
(1 + t) / (10 + t): so it forgets the weights that training began with soon, however slow the decay is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from polyseme.errors import OptionError
from polyseme.training.device_group import put_whole, whole

STATE = "nt-asgd"
"""The name of what an average that is triggered has seen; no parameter has it."""


class WeightAverage:
    """An exponential moving average of a module's parameters, on their devices; under FSDP each process has its part.

    Parameters are read and written where they are, so that recorded steps stay valid.
    """

    def __init__(self, nets: nn.Module, decay: float) -> None:
        check_decay(decay)
        self.decay = decay
        self.parameters = dict(nets.named_parameters())
        self.averages = {name: each.detach().clone() for name, each in self.parameters.items()}

    def evaluated(self, loss: float) -> None:
        """Called with the held-out loss after every evaluation, which read the averages."""

    @torch.no_grad()
    def update(self, done: int) -> None:
        """Follow the weights, after `done` steps."""
        decay = min(self.decay, (1 + done) / (10 + done))
        torch._foreach_lerp_(_local(self.averages), _local(self.parameters), 1 - decay)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Have the averages in the place of the weights for the time of this block."""
        weights = {name: each.detach().clone() for name, each in self.parameters.items()}
        self._fill(self.averages)
        try:
            yield
        finally:
            self._fill(weights)

    @torch.no_grad()
    def _fill(self, values: Mapping[str, Tensor]) -> None:
        torch._foreach_copy_(_local(self.parameters), _local(values))

    def tensors(self) -> dict[str, Tensor]:
        """The averages by name, whole; all processes must call this."""
        return {name: whole(each) for name, each in self.averages.items()}

    def state(self) -> dict[str, Tensor]:
        """What else decides how averaging continues."""
        return {}

    @torch.no_grad()
    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` and `state` gave."""
        for name, mine in self.averages.items():
            put_whole(mine, tensors[name])


class TriggeredAverage(WeightAverage):
    """The mean of the weights of all steps since training came to a stand (NT-ASGD, Merity et al. 2018).

    It begins once a held-out loss is above the best of those up to `patience` evaluations before it; until then the
    weights themselves take its place.
    """

    def __init__(self, nets: nn.Module, patience: int) -> None:
        super().__init__(nets, decay=0.5)
        self.patience = patience
        self.losses: list[float] = []
        """Of all evaluations so far."""
        self.n_averaged = 0
        self.has_begun = False

    def evaluated(self, loss: float) -> None:
        earlier = self.losses[: -self.patience]
        self.has_begun = self.has_begun or (len(earlier) > 0 and loss > min(earlier))
        self.losses.append(loss)

    @torch.no_grad()
    def update(self, done: int) -> None:
        """Add the weights of this step to the mean."""
        self.n_averaged = self.n_averaged + 1 if self.has_begun else 1
        torch._foreach_lerp_(_local(self.averages), _local(self.parameters), 1 / self.n_averaged)

    def state(self) -> dict[str, Tensor]:
        numbers = [float(self.has_begun), float(self.n_averaged), *self.losses]
        return {STATE: torch.tensor(numbers, dtype=torch.float64)}

    def put(self, tensors: Mapping[str, Tensor]) -> None:
        super().put(tensors)
        begun, n_averaged, *self.losses = tensors[STATE].tolist()
        self.has_begun, self.n_averaged = bool(begun), int(n_averaged)


def check_decay(decay: float) -> None:
    """Refuse a decay that is none."""
    if not 0 < decay < 1:
        raise OptionError(f"The decay of averaged weights (ema) must be between 0 and 1, as in 0.999. Got {decay}.")


def mean_of(checkpoints: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of tensors by name; of whole numbers, those of the last."""
    *_, last = checkpoints
    return {
        name: torch.stack([each[name].double() for each in checkpoints]).mean(0).to(tensor.dtype)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in last.items()
    }


def _local(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """This process's parts."""
    return [each.to_local() if isinstance(each, DTensor) else each.detach() for each in tensors.values()]

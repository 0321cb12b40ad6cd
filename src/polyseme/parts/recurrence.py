"""Recurrence: one direction of one layer, the tanh network, the LSTM and the GRU, and the state that it carries on.

    tanh    h_t = tanh(W_x x_t + W_h h_{t-1} + b)
    LSTM    i, f, g, o = W_x x_t + W_h h_{t-1} + b
            c_t = σ(f + forget bias) · c_{t-1} + σ(i) · tanh(g)       held within ± the cell clip
            h_t = W_p (σ(o) · tanh(c_t))                              held within ± the projection clip
    GRU     r, z, n = W_x x_t + b        r', z', n' = W_h h_{t-1} + b'
            h_t = (1 - σ(z + z')) · tanh(n + σ(r + r') · n') + σ(z + z') · h_{t-1}

Where nothing is clipped torch's own kernels run over all times at once (cuDNN's on a GPU). An LSTM that they cannot
run, with clips or with a state that must stop at each row's own length, has kernels of ours for each step in inference
on a GPU (`clipped_lstm`). The loop that is written out is the specification, and runs where none of these do: on a CPU
with clips or a projection, and in training with clips.

Shapes: R rows, T pieces, D width of what is read, H cells, P width of the states (H where there is no projection).
"""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.parts import clipped_lstm
from polyseme.parts.memory_and_cache import Memory

CellKind = Literal["tanh", "lstm", "gru"]
N_GATES = {"tanh": 1, "lstm": 4, "gru": 3}
CUDNN_MODES = {"tanh": 1, "lstm": 2, "gru": 3}
FEW_ROWS, MANY_TIMES = 4, 32


@dataclass
class State(Memory):
    """What a stack of recurrent layers read in one direction ended with."""

    outputs: tuple[Tensor, ...]
    """One [R, P] a layer: its last state, before what a skip connection adds."""
    cells: tuple[Tensor, ...]
    """One [R, H] a layer; none where cells are not of an LSTM."""


class Reader(nn.Module):
    """One layer that reads its rows in one direction. Gates are stacked as torch stacks them: i, f, g, o or r, z, n."""

    def __init__(
        self,
        below: int,
        width: int,
        *,
        inner_width: int | None = None,
        kind: CellKind = "lstm",
        backwards: bool = False,
        cell_clip: float | None = None,
        projection_clip: float | None = None,
        forget_bias: float = 0.0,
        weight_dropout_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.n_cells = width if inner_width is None else inner_width
        n_rows = N_GATES[kind] * self.n_cells
        self.kind = kind
        self.width = width
        self.backwards = backwards
        self.cell_clip = cell_clip
        self.projection_clip = projection_clip
        self.forget_bias = forget_bias
        self.input = nn.Parameter(torch.empty(n_rows, below))
        self.recurrent = nn.Parameter(torch.empty(n_rows, width))
        self.bias = nn.Parameter(torch.empty(n_rows))
        self.recurrent_bias = nn.Parameter(torch.empty(n_rows)) if kind == "gru" else None
        self.projection = None if inner_width is None else nn.Parameter(torch.empty(width, inner_width))
        self.weight_dropout = nn.Dropout(weight_dropout_rate)
        """Of the recurrent weights, once for all times."""
        self.written_out = False
        """Whether the loop runs even where a kernel could."""
        self._second_bias: Tensor | None = None
        self.initialize()

    def initialize(self) -> None:
        """Draw weights as torch does, from ± 1 / √cells, but for biases, which begin at zero."""
        bound = 1 / math.sqrt(self.n_cells)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)
        for bias in (self.bias, self.recurrent_bias):
            if bias is not None:
                nn.init.zeros_(bias)

    def start(self, n_rows: int) -> tuple[Tensor, Tensor]:
        """The state and cells of rows of which nothing has been read."""
        return self.bias.new_zeros(n_rows, self.width), self.bias.new_zeros(n_rows, self.n_cells)

    def forward(
        self, x: Tensor, lengths: Tensor | None, state: tuple[Tensor, Tensor] | None, *, carried: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[R, T, D] → states [R, T, P], and the last state and cells of each row, which count only if `carried`.

        Rows are read from `state`, each up to its length; a backward reader begins at a row's last real piece. Real
        states do not depend on padding; states at padding mean nothing.
        """
        h, c = self.start(x.shape[0]) if state is None else state
        if self.backwards:
            x = reverse_rows(x, lengths)
        stops = lengths if carried else None
        recurrent = self.weight_dropout(self.recurrent)
        if stops is None and self._has_kernel(x):
            out, h, c = self._by_kernel(x, h, c, recurrent)
        elif (kernels := self._kernels_per_step(x)) is not None:
            out, h, c = self.by_kernels(kernels, x, stops, h, c, recurrent)
        else:
            out, h, c = self._step_by_step(x, stops, h, c, recurrent)
        return (reverse_rows(out, lengths) if self.backwards else out), h, c

    def _has_kernel(self, x: Tensor) -> bool:
        """Whether torch's kernels compute the same; a CPU's have no projection and no autocast, none reads nothing."""
        clipped = self.cell_clip is not None or self.projection_clip is not None
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            return False
        return not (self.written_out or clipped) and (self.projection is None or x.is_cuda) and x.shape[1] > 0

    def _kernels_per_step(self, x: Tensor) -> ModuleType | None:
        """The kernels of `clipped_lstm`, where they compute the same, here; else None."""
        if self.kind != "lstm" or x.dtype != self.bias.dtype or not x.numel():
            return None
        if self.written_out or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return None
        if torch.is_autocast_enabled("cuda"):
            return None
        return clipped_lstm.kernels_for(x, functools.partial(_trial, x))

    # --- the specification --------------------------------------------------------------------------------------------

    def _step_by_step(
        self, x: Tensor, stops: Tensor | None, h: Tensor, c: Tensor, recurrent: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        read = F.linear(x.transpose(0, 1), self.input, self.bias)  # [T, R, gates · H]
        recurrent, projection = self._laid_out(recurrent, *x.shape[:2])
        out = []
        for time, now in enumerate(read.unbind(0)):
            new_h, new_c = self._step(now, h, c, recurrent, projection)
            if stops is None:
                h, c = new_h, new_c
            else:
                is_real = (time < stops)[:, None]
                h, c = torch.where(is_real, new_h, h), torch.where(is_real, new_c, c)
            out.append(h)
        states = torch.stack(out, dim=1) if out else x.new_zeros(x.shape[0], 0, self.width)
        return states, h, c

    def _laid_out(self, recurrent: Tensor, n_rows: int, n_times: int) -> tuple[Tensor, Tensor | None]:
        """The weights that each step multiplies with, [P, gates · H] and [H, P].

        For many steps of few rows, inference copies them to a layout in which products take half the time on a CPU.
        """
        recurrent = recurrent.t()
        projection = None if self.projection is None else self.projection.t()
        few = n_rows <= FEW_ROWS and n_times >= MANY_TIMES and self.bias.device.type == "cpu"
        if not few or torch.is_grad_enabled():
            return recurrent, projection
        return recurrent.contiguous(), None if projection is None else projection.contiguous()

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """One piece of each row: [R, D], the state and the cells → the new ones."""
        projection = None if self.projection is None else self.projection.t()
        return self._step(F.linear(x, self.input, self.bias), h, c, self.recurrent.t(), projection)

    def _step(
        self, now: Tensor, h: Tensor, c: Tensor, recurrent: Tensor, projection: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if self.recurrent_bias is not None:
            r, z, n = now.chunk(3, dim=-1)
            own_r, own_z, own_n = torch.addmm(self.recurrent_bias, h, recurrent).chunk(3, dim=-1)
            new = torch.tanh(n + torch.sigmoid(r + own_r) * own_n)
            return new + torch.sigmoid(z + own_z) * (h - new), c
        gates = torch.addmm(now, h, recurrent)
        if self.kind == "tanh":
            return torch.tanh(gates), c
        i, f, g, o = gates.chunk(4, dim=-1)
        if self.forget_bias:
            f = f + self.forget_bias
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        if self.cell_clip is not None:
            c = c.clamp(-self.cell_clip, self.cell_clip)
        h = torch.sigmoid(o) * torch.tanh(c)
        if projection is not None:
            h = torch.mm(h, projection)
            if self.projection_clip is not None:
                h = h.clamp(-self.projection_clip, self.projection_clip)
        return h, c

    # --- kernels for each step ----------------------------------------------------------------------------------------

    def by_kernels(
        self, kernels: ModuleType, x: Tensor, stops: Tensor | None, h: Tensor, c: Tensor, recurrent: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`_step_by_step` by kernels, without gradients."""
        return clipped_lstm.run(
            kernels,
            x,
            (self.input, recurrent, self.bias, self.projection),
            h,
            c,
            stops,
            cell_clip=self.cell_clip,
            projection_clip=self.projection_clip,
            forget_bias=self.forget_bias,
        )

    # --- torch's kernels ----------------------------------------------------------------------------------------------

    def _by_kernel(self, x: Tensor, h: Tensor, c: Tensor, recurrent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # True for training keeps what gradients need
        settings = (True, 1, 0.0, self.training or torch.is_grad_enabled(), False, True)
        if recurrent is not self.recurrent and x.is_cuda and torch.is_autocast_enabled("cuda"):
            # Autocast means fp16 there, whatever its dtype; gradients of a regularized run leave the range of that.
            with torch.autocast("cuda", enabled=False):
                own = self.input.dtype
                return self._by_kernel(x.to(own), h.to(own), c.to(own), recurrent.to(own))
        weights = self._weights(x, recurrent)
        if self.kind != "lstm":
            kernel = torch.rnn_tanh if self.kind == "tanh" else torch.gru
            out, last = kernel(x, h[None], weights, *settings)
            return out, last[0], c
        out, last, cells = torch.lstm(x, (h[None], c[None]), weights, *settings)
        return out, last[0], cells[0]

    def _weights(self, x: Tensor, recurrent: Tensor) -> list[Tensor]:
        """What the kernels read; cuDNN wants it in one stretch of memory."""
        second = self._kept_second_bias() if self.recurrent_bias is None else self.recurrent_bias
        projection = [] if self.projection is None else [self.projection]
        weights = [self.input, recurrent, self.bias, second, *projection]
        if not x.is_cuda or torch.compiler.is_compiling():
            return weights
        if not torch.backends.cudnn.is_acceptable(self.input) or torch.is_autocast_enabled("cuda"):
            return weights
        shape = (x.shape[-1], CUDNN_MODES[self.kind], self.n_cells, 0 if self.projection is None else self.width)
        # In training with dropped weights, too: a later evaluation would move them away from a recorded step.
        _lay_together([self.input, self.recurrent, self.bias, second, *projection], shape)
        if recurrent is self.recurrent:
            return weights
        return list(_CopiedTogether.apply(shape, *weights))  # type: ignore[no-untyped-call]

    def _kept_second_bias(self) -> Tensor:
        if torch.compiler.is_compiling():
            return self._made_second_bias()
        bias = self._second_bias
        if bias is None or bias.dtype != self.bias.dtype or bias.device != self.bias.device:
            with torch.inference_mode(False):  # what is made in inference cannot be trained with
                bias = self._second_bias = self._made_second_bias()
        return bias

    def _made_second_bias(self) -> Tensor:
        """A kernel has a second bias, which here is the constant that is added to the forget gates."""
        second = torch.zeros_like(self.bias, requires_grad=False)
        if self.kind == "lstm":
            second[self.n_cells : 2 * self.n_cells] = self.forget_bias
        return second


@torch.no_grad()
def _trial(like: Tensor, kernels: ModuleType) -> float:
    """How far the kernels for each step are from the loop in fp32 on a small example, as a share of the largest state.

    Inputs and weights are sine waves, so that torch's random state does not change.
    """

    def waves(*shape: int, height: float) -> Tensor:
        return (torch.arange(math.prod(shape), device=like.device) * 0.7).sin().view(shape) * height

    with torch.random.fork_rng(devices=[]):
        exact = Reader(32, 16, inner_width=64, cell_clip=0.2, projection_clip=0.1, forget_bias=1.0).to(like.device)
    for parameter in exact.parameters():
        parameter.copy_(waves(*parameter.shape, height=0.2).to(like.dtype))
    rounded = copy.deepcopy(exact).to(like.dtype)
    inputs = [waves(3, 5, 32, height=1.0), waves(3, 16, height=0.1), waves(3, 64, height=0.2)]
    x, h, c = (each.to(like.dtype) for each in inputs)
    worst = 0.0
    for stops in (None, torch.tensor([5, 0, 3], device=like.device)):
        expected = exact._step_by_step(x.float(), stops, h.float(), c.float(), exact.recurrent)
        results = rounded.by_kernels(kernels, x, stops, h, c, rounded.recurrent)
        for result, right in zip(results, expected, strict=True):
            off = (result.float() - right).abs().max() / right.abs().max()
            worst = max(worst, off.nan_to_num(float("inf")).item())
    return worst


def reverse_rows(x: Tensor, lengths: Tensor | None) -> Tensor:
    """[R, T, …] with the real pieces of each row in the opposite order; padding stays where it is."""
    if lengths is None:
        return x.flip(1)
    here = torch.arange(x.shape[1], device=x.device)[None]
    across = lengths[:, None] - 1 - here
    order = torch.where(across >= 0, across, here)
    return x.gather(1, order.view(*order.shape, *[1] * (x.dim() - 2)).expand_as(x))


def _lay_together(weights: list[Tensor], shape: tuple[int, int, int, int]) -> None:
    """Give the weights one stretch of memory, as cuDNN wants them, in place; otherwise it copies them at every call."""
    first = weights[0].untyped_storage().data_ptr()
    if all(each.untyped_storage().data_ptr() == first for each in weights):
        return
    with torch.inference_mode(False), torch.no_grad():
        torch._cudnn_rnn_flatten_weight(weights, len(weights), *shape, 1, True, False)


class _CopiedTogether(torch.autograd.Function):
    """Copies of weights in one stretch of memory, for weights of which some are dropped: those are new at every call.

    The parameters themselves stay where they are, as optimizers and recorded steps need them; each call has its own
    copy, since what ran before may still be waiting for its gradients.
    """

    @staticmethod
    def forward(ctx: Any, shape: tuple[int, int, int, int], *weights: Tensor) -> tuple[Tensor, ...]:
        copies = [each.clone() for each in weights]
        torch._cudnn_rnn_flatten_weight(copies, len(copies), *shape, 1, True, False)
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *gradients

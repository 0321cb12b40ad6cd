"""Which state stands for a whole row: the start special's, raw or pooled, the last piece's, or all pieces' together.

Shapes: R rows, T pieces, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from polyseme.errors import OptionError

Pieces = tuple[Tensor, Tensor, Tensor | None]
"""States [R, T, D], the place of the piece that stands for its row [R], and lengths [R]; None: all rows are full."""


def at_place(states: Tensor, place: Tensor, lengths: Tensor | None) -> Tensor:
    """The state of the piece that may stand for its row."""
    return states.gather(1, place[:, None, None].expand(-1, -1, states.shape[-1])).squeeze(1)


def at_end(states: Tensor, place: Tensor, lengths: Tensor | None) -> Tensor:
    """The state of the last piece."""
    if lengths is None:
        return states[:, -1]
    return at_place(states, lengths - 1, None)


def mean(states: Tensor, place: Tensor, lengths: Tensor | None) -> Tensor:
    """The mean over the row's pieces, specials included."""
    if lengths is None:
        return states.mean(1)
    real = _real(states, lengths)
    return (states * real).sum(1) / lengths[:, None].to(states.dtype)


def maximum(states: Tensor, place: Tensor, lengths: Tensor | None) -> Tensor:
    """The largest value of the row's pieces, number by number."""
    if lengths is None:
        return states.amax(1)
    return states.masked_fill(~_real(states, lengths), torch.finfo(states.dtype).min).amax(1)


def concat(states: Tensor, place: Tensor, lengths: Tensor | None) -> Tensor:
    """[last; max; mean] (ULMFiT)."""
    return torch.cat([each(states, place, lengths) for each in (at_end, maximum, mean)], dim=-1)


READOUTS: Mapping[str, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {
    "first": at_place,
    "pooled": at_place,
    "last": at_end,
    "mean": mean,
    "max": maximum,
    "concat": concat,
}


def whole_width(name: str, width: int) -> int:
    """How wide a readout of states of this width is."""
    return 3 * width if name == "concat" else width


def check_readout(name: str, *, starts: bool, pooler: nn.Module | None) -> None:
    """Refuse a readout that the model has nothing for."""
    if name in ("first", "pooled") and not starts:
        raise OptionError(
            f"The readout {name!r} takes the state of a start special ([CLS]), and this model's rows have none. Take "
            "last, mean, max or concat."
        )
    if name == "pooled" and pooler is None:
        raise OptionError("The readout 'pooled' goes through a pooler, and this model has none. Take first or mean.")


def _real(states: Tensor, lengths: Tensor) -> Tensor:
    here = torch.arange(states.shape[1], device=states.device)
    return (here[None] < lengths[:, None])[:, :, None]

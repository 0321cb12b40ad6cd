"""Which state stands for a whole row: the start special's, raw or pooled, the last piece's, or all pieces' together.

Shapes: R rows, T pieces, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from polyseme.bundle import Bundle, new_bundle
from polyseme.config import EncoderConfig
from polyseme.embedding.decoder_stack import decoder_of
from polyseme.encoders.encoder import Encoder, Layers
from polyseme.errors import OptionError
from polyseme.types import Batch, States

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


# MERGED: The stacks of a model that a task runs: the encoder alone, or the decoder, too, which reads what the


def config_of(bundle: Bundle, stack: str) -> EncoderConfig:
    """Of the stack whose layers are read."""
    return decoder_of(bundle).config if stack == "decoder" else bundle.config


def run_stack(bundle: Bundle, stack: str, batch: Batch, layers: Layers) -> States:
    """The states of a stack; the decoder's with the text on both sides, shifted right where the decoder reads it.

    So the state at a place is the one from which the original guesses what stands there.
    """
    if stack == "encoder":
        found: States = bundle.encoder(batch, layers=layers)
        return found
    source = bundle.encoder(batch, layers=[-1])
    again = Batch(after(bundle.first_written, batch.pieces), batch.lengths, source=source)
    found = decoder_of(bundle)(again, layers=layers)
    return found


def after(first: int, pieces: Tensor) -> Tensor:
    """[R, T] → [R, T]: shifted right, behind the piece that a decoder begins with; the last piece is not read."""
    return torch.cat([torch.full_like(pieces[:, :1], first), pieces[:, :-1]], dim=1)


def groups_of(bundle: Bundle, *, with_decoder: bool) -> list[list[nn.Parameter]]:
    """The layer groups of the stacks that run, the encoder's first; what both share is in the encoder's."""
    stacks: list[Encoder] = [bundle.encoder, *([decoder_of(bundle)] if with_decoder else [])]
    seen: set[nn.Parameter] = set()
    found = []
    for group in (group for stack in stacks for group in stack.layer_groups()):
        found.append([parameter for parameter in group if parameter not in seen])
        seen.update(group)
    return found


def fresh_bundle(bundle: Bundle) -> Bundle:
    """A model like this one, drawn anew from torch's present seed."""
    return new_bundle(bundle.family, bundle.config, list(bundle.outputs), tied=bundle.tied)

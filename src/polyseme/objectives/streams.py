"""Language modeling over streams, with a memory carried from row to row (Mikolov et al. 2010, Dai et al. 2019).

The text is read in rows, many streams side by side. The memory is carried from one row to the next, so every piece has
what was read before it: all of it in the state of a recurrent encoder, and as much as is kept in the segments of a
Transformer-XL. Gradients end where the row began (truncated back-propagation through time). Pieces are words,
characters or subwords, whatever the corpus is made of.

Shapes: R rows, T pieces that a row reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
from torch import nn

from polyseme.bundle import Bundle
from polyseme.corpus.stream_rows import Streams
from polyseme.cost import forward_flops
from polyseme.errors import OptionError
from polyseme.objectives.objective import Arrays, BaseObjective, Nets, Parts, memory_flops, output_flops
from polyseme.outputs.output import Output
from polyseme.outputs.pieces import CausalOutput
from polyseme.outputs.softmaxes import SAMPLES, AdaptiveOutput, SampledOutput, SoftmaxOutput
from polyseme.parts.memory_and_cache import Memory
from polyseme.types import Batch, Example, Needs, Rows

Softmax = Literal["full", "sampled"]


@dataclass(frozen=True, kw_only=True)
class Streamed(BaseObjective):
    """Every piece of a row is a target, separators too; the row shows one piece more than it reads, for the last."""

    name: ClassVar[str] = "streams"

    softmax: Softmax = "full"
    """What a loss sums over in training: all pieces (or what the model's own output takes), or a sample of them."""
    n_samples: int = SAMPLES

    def __post_init__(self) -> None:
        check_softmax(self.softmax, self.n_samples)

    @property
    def needs(self) -> Needs:
        return Needs(directions=("causal",), outputs=("causal",), layout=Streams())

    @property
    def weights(self) -> Mapping[str, float]:
        return {"causal": 1.0}

    @property
    def prediction_parts(self) -> tuple[str, ...]:
        return ("causal",)

    def refuse(self, bundle: Bundle) -> None:
        refuse_sampling(self.softmax, bundle.outputs["causal"])

    def corrupt(self, rows: Rows) -> Example:
        pieces = rows.pieces.astype(np.int32)
        return Example({"pieces": pieces}, {"causal": float(pieces[:, 1:].size)})

    def nets(self, bundle: Bundle) -> nn.Module:
        return StreamedNets(bundle, self.n_samples if self.softmax == "sampled" else None)

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        nets = cast(StreamedNets, nets)
        config = nets.encoder.config
        forward = forward_flops(config, [length] * n_rows) + n_rows * memory_flops(config, length)
        return 3.0 * (forward + softmax_flops(nets.output, n_rows * length))


class StreamedNets(Nets):
    """Encoder and output; the state of every piece that is read predicts the piece after it."""

    def __init__(self, bundle: Bundle, n_samples: int | None) -> None:
        super().__init__(bundle, "causal")
        self.output = with_samples(self.output, n_samples)

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: pieces [R, T + 1]."""
        pieces = arrays["pieces"].long()
        states = self.encoder(Batch(pieces[:, :-1]), layers=[-1], memory=memory)
        losses = self.output.loss(states[-1].flatten(0, 1), pieces[:, 1:].flatten())
        return {"causal": losses.sum()}, states.memory


# --- what both recurrent objectives do about softmaxes ----------------------------------------------------------------


def check_softmax(softmax: str, n_samples: int) -> None:
    """Refuse what there is not."""
    if softmax not in ("full", "sampled"):
        raise OptionError(
            f"The softmax must be full or sampled. Got {softmax!r} instead; an adaptive one is a part of the model "
            "itself, by its 'output_cutoffs'."
        )
    if n_samples < 1:
        raise OptionError(f"n_samples must be at least 1. Got {n_samples} instead.")


def refuse_sampling(softmax: Softmax, output: nn.Module) -> None:
    """An adaptive softmax has no table to draw from."""
    if softmax == "sampled" and isinstance(output, AdaptiveOutput):
        raise OptionError(
            "The model's output is an adaptive softmax ('output_cutoffs'), and that is not sampled. Leave out one of "
            "the two."
        )


def with_samples(output: Output, n_samples: int | None) -> Output:
    """The output itself, or trained on samples of its table."""
    if n_samples is None or not isinstance(output, (CausalOutput, SoftmaxOutput)):
        return output
    return SampledOutput(output, n_samples)


def softmax_flops(output: Output, n_targets: int) -> float:
    """Floating-point operations of an output over so many states; of a sampled one, of the rows that it takes.

    An adaptive one is counted as if all went through all of its clusters: they do not, so that is too much.
    """
    if isinstance(output, SampledOutput):
        return 2.0 * n_targets * min(output.n_samples + 1, output.n_pieces) * output.inner.table.shape[1]
    return output_flops(output, n_targets)

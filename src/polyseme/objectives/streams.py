"""Language modeling over streams, with a memory carried from row to row (Mikolov et al. 2010, Dai et al. 2019).

The text is read in rows, many streams side by side. The memory is carried from one row to the next, so every piece has
what was read before it: all of it in the state of a recurrent encoder, and as much as is kept in the segments of a
Transformer-XL. Gradients end where the row began (truncated back-propagation through time). Pieces are words,
characters or subwords, whatever the corpus is made of.

An encoder that reads backwards reads every stream from its end, and predicts the piece before each that it reads.

States of the top layer may be kept small, and near to those before them (Merity et al. 2018): in training the loss has
two more parts then,

    activation    mean of h², of the states as they are predicted from
    temporal      mean of (h_t - h_{t-1})², of the states before dropout

Shapes: R rows, T pieces that a row reads, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.config import EncoderConfig
from polyseme.corpus.stream_rows import Streams
from polyseme.cost import forward_flops
from polyseme.errors import OptionError
from polyseme.objectives.objective import Arrays, BaseObjective, Nets, Parts, memory_flops, output_flops
from polyseme.outputs.output import Output
from polyseme.outputs.pieces import CausalOutput
from polyseme.outputs.softmaxes import SAMPLES, AdaptiveOutput, SampledOutput, SoftmaxOutput
from polyseme.parts.memory_and_cache import Memory
from polyseme.parts.precision import single_precision
from polyseme.types import Batch, Example, Needs, Rows

Softmax = Literal["full", "sampled"]


@dataclass(frozen=True, kw_only=True)
class Streamed(BaseObjective):
    """Every piece of a row is a target, separators too; the row shows one piece more than it reads, for the last."""

    name: ClassVar[str] = "streams"

    softmax: Softmax = "full"
    """What a loss sums over in training: all pieces (or what the model's own output takes), or a sample of them."""
    n_samples: int = SAMPLES
    activation: float = 0.0
    """How much the mean square of the top layer's states counts (AWD-LSTM's α)."""
    temporal: float = 0.0
    """How much the mean square of their differences from piece to piece counts (AWD-LSTM's β)."""
    backwards: bool = False
    """Whether streams are read from their ends, as the encoder itself says."""

    def __post_init__(self) -> None:
        check_softmax(self.softmax, self.n_samples)
        for name in ("activation", "temporal"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise OptionError(
                    f"The weight of a part of the loss ({name}) must be 0 or more. Got {value!r} instead."
                )

    @property
    def needs(self) -> Needs:
        return Needs(directions=("causal",), outputs=("causal",), layout=Streams(backwards=self.backwards))

    def for_encoder(self, config: EncoderConfig) -> Streamed:
        return self.replace(backwards=config.reads_backwards)

    @property
    def weights(self) -> Mapping[str, float]:
        parts = {"causal": 1.0, "activation": self.activation, "temporal": self.temporal}
        return {name: weight for name, weight in parts.items() if weight}

    @property
    def prediction_parts(self) -> tuple[str, ...]:
        return ("causal",)

    def refuse(self, bundle: Bundle) -> None:
        refuse_sampling(self.softmax, bundle.outputs["causal"])
        if bundle.config.reads_backwards != self.backwards:
            raise OptionError(
                "The encoder and the objective 'streams' read a text from different ends. Set 'reads' of the encoder; "
                "the objective's 'backwards' follows it."
            )
        if (self.activation or self.temporal) and bundle.config.kind != "recurrent":
            raise OptionError(
                "The parts 'activation' and 'temporal' of the loss are of the states of recurrent encoders; this one "
                f"is of kind {bundle.config.kind!r}. Leave them out."
            )

    def corrupt(self, rows: Rows) -> Example:
        pieces = rows.pieces.astype(np.int32)
        n_targets = pieces[:, 1:].size
        counts = {"causal": n_targets, "activation": n_targets, "temporal": n_targets - len(pieces)}
        return Example({"pieces": pieces}, {name: float(counts[name]) for name in self.weights})

    def nets(self, bundle: Bundle) -> nn.Module:
        n_samples = self.n_samples if self.softmax == "sampled" else None
        return StreamedNets(bundle, n_samples, backwards=self.backwards, parts=tuple(self.weights))

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        nets = cast(StreamedNets, nets)
        config = nets.encoder.config
        forward = forward_flops(config, [length] * n_rows) + n_rows * memory_flops(config, length)
        return 3.0 * (forward + softmax_flops(nets.output, n_rows * length))


class StreamedNets(Nets):
    """Encoder and output; the state of every piece that is read predicts the piece after it."""

    def __init__(
        self, bundle: Bundle, n_samples: int | None, *, backwards: bool = False, parts: Sequence[str] = ("causal",)
    ) -> None:
        super().__init__(bundle, "causal")
        self.output = with_samples(self.output, n_samples)
        self.backwards = backwards
        self.parts = parts

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: pieces [R, T + 1]. What regularizes counts in training only."""
        pieces = arrays["pieces"].long()
        read, targets = (pieces[:, 1:], pieces[:, :-1]) if self.backwards else (pieces[:, :-1], pieces[:, 1:])
        states = self.encoder(Batch(read), layers=[-1], memory=memory)
        parts = {"causal": self.output.loss(states[-1].flatten(0, 1), targets.flatten()).sum()}
        if self.training and "activation" in self.parts:
            parts["activation"] = single_precision(states[-1]).square().mean(dim=-1).sum()
        if self.training and "temporal" in self.parts:
            before = single_precision(cast(Tensor, states.undropped))
            parts["temporal"] = before.diff(dim=1).square().mean(dim=-1).sum()
        return parts, states.memory


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

"""Language modeling over streams in both directions (Akbik et al. 2018).

Each half of a two-way encoder predicts the next piece in its own direction, with its own softmax or a common one, and
carries its memory along its own streams.

What `bilm` says of the two halves' streams and of rows without memory holds here, too. The difference is what is read:
pieces by a table (Flair's characters), which are also what is predicted. Documents are separated by the piece with
which a text begins for either half (the end of a line in Flair).

Shapes: R rows, T pieces that a row reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.corpus.random_keys import uniform
from polyseme.corpus.stream_rows import Streams
from polyseme.cost import forward_flops
from polyseme.encoders.recurrent import TwoWay
from polyseme.encoders.recurrent_config import TwoWayConfig
from polyseme.errors import OptionError
from polyseme.objectives.bilm import check_fresh, read_both_ways
from polyseme.objectives.objective import Arrays, BaseObjective, Nets, Parts, output_flops
from polyseme.outputs.softmaxes import TwoWayOutput
from polyseme.parts.memory_and_cache import Memory
from polyseme.types import Example, Needs, Rows


@dataclass(frozen=True, kw_only=True)
class TwoWayStreamed(BaseObjective):
    """The mean of the two losses, each over all pieces of its rows."""

    name: ClassVar[str] = "two-way"

    fresh: float = 0.1
    """The share of rows in which a stream begins without memory. The original had none."""

    def __post_init__(self) -> None:
        check_fresh(self.fresh)

    @property
    def needs(self) -> Needs:
        return Needs(directions=("two-way",), outputs=("two-way",), layout=Streams(both_ways=True))

    @property
    def weights(self) -> Mapping[str, float]:
        return {"forward": 0.5, "backward": 0.5}

    @property
    def prediction_parts(self) -> tuple[str, ...]:
        return ("forward", "backward")

    def refuse(self, bundle: Bundle) -> None:
        if cast(TwoWayConfig, bundle.config).spelled:
            raise OptionError(
                f"The objective {self.name!r} predicts the pieces that are read, and this encoder reads words by their "
                "characters. Choose the objective 'bilm'."
            )

    def corrupt(self, rows: Rows) -> Example:
        n_targets = float(rows.pieces.size / 2 - len(rows.pieces))
        arrays: dict[str, Any] = {
            "pieces": rows.pieces.astype(np.int32),
            "fresh": uniform(rows.keys, "fresh", 1)[:, 0] < self.fresh,
        }
        return Example(arrays, {"forward": n_targets, "backward": n_targets})

    def nets(self, bundle: Bundle) -> nn.Module:
        return TwoWayNets(bundle, "two-way")

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        nets = cast(TwoWayNets, nets)
        n_softmaxes = len(set(nets.softmaxes))
        forward = forward_flops(nets.encoder.config, [length] * n_rows)
        return 3.0 * (forward + 2 / n_softmaxes * output_flops(nets.output, n_rows * length))


class TwoWayNets(Nets):
    """A two-way encoder and the softmaxes of its halves."""

    encoder: TwoWay

    @property
    def softmaxes(self) -> tuple[Any, Any]:
        return cast(TwoWayOutput, self.output).halves

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: pieces [R, 2 (T + 1)], those of the forward half first; fresh [R]."""
        onwards, back = self._without_markers(arrays["pieces"].long()).chunk(2, dim=1)
        encoder = self.encoder
        tokens = encoder.forwards.tokens(onwards[:, :-1]), encoder.backwards.tokens(back[:, 1:])
        ahead, behind, after = read_both_ways(encoder, *tokens, arrays["fresh"], memory)
        parts = {
            name: softmax.loss(states[-1].flatten(0, 1), targets.flatten()).sum()
            for name, softmax, states, targets in zip(
                ("forward", "backward"), self.softmaxes, (ahead, behind), (onwards[:, 1:], back[:, :-1]), strict=True
            )
        }
        return parts, after

    def _without_markers(self, pieces: Tensor) -> Tensor:
        """Separators are read and predicted as what a text begins with, in either direction."""
        config = self.encoder.config
        return pieces if config.edges is None else pieces.masked_fill(pieces >= config.n_pieces - 2, config.edges[0])

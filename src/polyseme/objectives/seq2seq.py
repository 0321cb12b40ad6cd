"""What the objectives of two stacks share: an encoder reads a source, a decoder writes a target that it knows so far.

Shapes: R rows, S pieces of a source, T pieces of a target, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.cost import decoder_flops, forward_flops
from polyseme.encoders.encoder import Encoder
from polyseme.errors import OptionError
from polyseme.objectives.objective import Nets, Vocabulary, batch_of, in_full, output_flops
from polyseme.parts.masks import OwnSource, SameDocument
from polyseme.parts.memory import Memory
from polyseme.types import Batch


class TwoStackNets(Nets):
    """Encoder, decoder and output; the decoder predicts each piece of a target from those before it and the source."""

    def __init__(self, bundle: Bundle, vocabulary: Vocabulary | None, part: str, smoothing: float = 0.0) -> None:
        super().__init__(bundle, "causal")
        self.part = part
        self.smoothing = smoothing
        self.first = 0 if vocabulary is None else vocabulary.specials.get(str(bundle.family.first), 0)
        """What a decoder reads before any piece of the target."""

    def forward(
        self, arrays: Mapping[str, Tensor], memory: Memory | None = None
    ) -> tuple[dict[str, Tensor], Memory | None]:
        """`arrays`: pieces [R, S] and targets [R, T].

        Also weights [R, T], where not all targets count; lengths [R], where the source is padded; and where several
        pairs share a row, documents and positions, those of the target as `target_…`.
        """
        targets = arrays["targets"].long()
        target = self._target(arrays, targets)
        target.source = self.encoder(batch_of(arrays, arrays["pieces"].long()), layers=[-1])
        states = cast(Encoder, self.decoder)(target, layers=[-1])
        losses = self._losses(states[-1].flatten(0, 1), targets.flatten())
        if "weights" in arrays:
            losses = losses * arrays["weights"].flatten()
        return {self.part: losses.sum()}, None

    def _target(self, arrays: Mapping[str, Tensor], targets: Tensor) -> Batch:
        """Each piece of a target stands one place later than it is predicted, and a first one before all."""
        read = F.pad(targets[:, :-1], (1, 0), value=self.first)
        if "target_documents" not in arrays:
            return Batch(read)
        documents, positions = arrays["target_documents"].long(), arrays["target_positions"].long()
        read = torch.where(positions == 0, torch.full_like(read, self.first), read)
        return Batch(
            read,
            positions=positions,
            mask=SameDocument(documents),
            source_mask=OwnSource(documents, arrays["documents"].long()),
        )

    def _losses(self, states: Tensor, targets: Tensor) -> Tensor:
        """[T]: with smoothing only in training, so that an evaluation says what a piece truly costs."""
        if not self.smoothing or not self.training:
            return self.output.loss(states, targets)
        logits = in_full(cast(Any, self.output).logits(states))
        return F.cross_entropy(logits, targets, reduction="none", label_smoothing=self.smoothing)


def refuse_no_first(bundle: Bundle, name: str, vocabulary: Vocabulary) -> None:
    """Refuse a tokenizer without the piece that the family's decoders begin with."""
    role = bundle.family.first
    if role is None or role not in vocabulary.specials:
        raise OptionError(
            f"The objective {name!r} needs a piece that the decoder reads first, the {role or 'first'!s} of the family "
            f"{bundle.family.name!r}, and the tokenizer has none. It has: "
            f"{', '.join(vocabulary.specials) or 'no special pieces'}. Train one with the family's own frame."
        )


def training_flops(nets: TwoStackNets, n_rows: int, source_length: int, target_length: int) -> float:
    """Floating-point operations of a step over rows of these lengths, forwards and backwards."""
    forward = forward_flops(nets.encoder.config, [source_length] * n_rows)
    forward += n_rows * decoder_flops(cast(Encoder, nets.decoder).config, source_length, target_length)
    return 3.0 * (forward + output_flops(nets.output, n_rows * target_length))

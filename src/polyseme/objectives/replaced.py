"""Replaced-piece detection (ELECTRA, Clark et al. 2020): a generator fills masks, a discriminator finds what it filled.

The generator, a small model of the same family, learns as a masked language model. What it draws replaces the masks,
and the discriminator predicts of every ordinary piece whether it was replaced; a piece that was drawn right counts as
original. No gradient passes through the drawing.

Shapes: R rows, T pieces of a row, K targets of a row, V pieces of the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.bundle import Bundle, new_bundle
from polyseme.corpus.packed_rows import Packed
from polyseme.corpus.random_keys import uniform
from polyseme.cost import forward_flops
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import OptionError
from polyseme.objectives.masked import WithMaskRate, places_of, target_arrays
from polyseme.objectives.objective import (
    Arrays,
    Nets,
    Parts,
    batch_of,
    in_full,
    output_flops,
    pick,
    shared_arrays,
    with_outputs,
)
from polyseme.objectives.target_selection import choose_pieces, how_many, most
from polyseme.outputs.labels import ReplacedOutput
from polyseme.outputs.pieces import MaskedOutput, piece_losses
from polyseme.parts.memory_and_cache import Memory
from polyseme.parts.positions import LearnedPositions
from polyseme.types import Example, Needs, Rows

Sharing = Literal["none", "embeddings", "all"]

SHARE = "replaced_share"
"""The part of the losses that is none: the share of pieces that were replaced, which tells what the loss is worth."""
USUAL_SHARE = 1 / 4
BLOCK = 256
"""Pieces are summed in blocks first, so that only one block of the vocabulary is ever cumulated piece by piece."""
_STEPS = 2.0**24
"""As many numbers as single precision distinguishes between 0 and 1."""


@dataclass(frozen=True, kw_only=True)
class Replaced(WithMaskRate):
    """The loss is the generator's plus `weight` times the discriminator's, each a mean over its own targets."""

    name: ClassVar[str] = "replaced"
    judges_models = False  # the better the generator, the harder is what the discriminator learns

    weight: float = 50.0
    sharing: Sharing = "embeddings"
    generator_share: float | None = None
    """How wide the generator is, against the discriminator; None: a quarter, or all of it where all is shared."""
    generator_depth: float = 1.0
    """How many layers it has, against the discriminator; published generators have as many."""
    discriminator_rate: float = 1.0
    """The learning rate of what only the discriminator has, against the generator's. What it learns from is faint at
    first: long steps carry a deep one away before it has found that."""
    temperature: float = 1.0
    """What the generator's logits are divided by when pieces are drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sharing not in ("none", "embeddings", "all"):
            raise OptionError(f"What is shared must be none, embeddings or all. Got {self.sharing!r} instead.")
        if not 0 < self.share <= 1:
            raise OptionError(f"The generator_share must be over 0 and up to 1. Got {self.generator_share} instead.")
        if not 0 < self.generator_depth <= 1:
            raise OptionError(f"The generator_depth must be over 0 and up to 1. Got {self.generator_depth} instead.")
        if self.sharing == "all" and (self.share != 1 or self.generator_depth != 1):
            raise OptionError(
                "With sharing 'all' one encoder is both generator and discriminator, so the generator_share and the "
                f"generator_depth are 1. Got {self.generator_share} and {self.generator_depth} instead; leave that "
                "out, or share less."
            )
        for name in ("temperature", "weight", "discriminator_rate"):
            if not getattr(self, name) > 0:
                raise OptionError(f"The {name} must be over 0. Got {getattr(self, name)} instead.")

    @property
    def share(self) -> float:
        """The generator's width against the discriminator's."""
        if self.generator_share is None:
            return 1.0 if self.sharing == "all" else USUAL_SHARE
        return self.generator_share

    @property
    def needs(self) -> Needs:
        return Needs(directions=("both",), outputs=("replaced",), layout=Packed())

    @property
    def weights(self) -> Mapping[str, float]:
        return {"masked": 1.0, "replaced": self.weight, SHARE: 0.0}

    @property
    def prediction_parts(self) -> tuple[str, ...]:
        """The generator's."""
        return ("masked",)

    def label_entropies(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        share = min(max(losses[SHARE], 1e-9), 1 - 1e-9)
        return {"replaced": -share * math.log(share) - (1 - share) * math.log(1 - share)}

    def rate_factors(self, nets: nn.Module) -> Mapping[nn.Parameter, float]:
        if self.discriminator_rate == 1:
            return {}
        nets = cast(ReplacedNets, nets)
        of_generator = {*nets.generator.parameters(), *nets.generator_output.parameters()}
        own = {*nets.encoder.parameters(), *nets.output.parameters()} - of_generator
        return dict.fromkeys(own, self.discriminator_rate)

    def refuse(self, bundle: Bundle) -> None:
        if "masked" not in bundle.family.outputs:
            raise OptionError(
                f"The objective 'replaced' needs a generator with the output 'masked', which the family "
                f"{bundle.family.name!r} does not have. Choose a family that has both, as 'electra' does."
            )
        if self.sharing != "all":
            transformer_of(bundle)

    def corrupt(self, rows: Rows) -> Example:
        """Every target is masked; the pieces that replace them are drawn with `random_numbers`, one per target."""
        allowed = ~rows.special
        width = most(allowed.shape[1], self.largest_rate)
        n_targets = how_many(allowed, self.rate_at(rows.progress))
        places, real = places_of(choose_pieces(allowed, n_targets, rows.keys), width)
        masked = rows.pieces.copy()
        at, slot = np.nonzero(real)
        masked[at, places[at, slot]] = self.vocabulary.mask
        numbers = np.floor(uniform(rows.keys, "drawn pieces", width) * _STEPS) / _STEPS
        arrays = {
            **shared_arrays(rows, masked),
            **target_arrays(rows.pieces, places, real),
            "random_numbers": numbers.astype(np.float32),
            "ordinary": allowed,
        }
        n_ordinary = float(allowed.sum())
        return Example(arrays, {"masked": float(real.sum()), "replaced": n_ordinary, SHARE: n_ordinary})

    def nets(self, bundle: Bundle) -> nn.Module:
        return ReplacedNets(
            bundle, generator_for(bundle, self.sharing, self.share, self.generator_depth), self.temperature
        )

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        nets = cast(ReplacedNets, nets)
        lengths = [length] * n_rows
        generator = forward_flops(nets.generator.config, lengths)
        generator += output_flops(nets.generator_output, n_rows * most(length, self.rate_at(0.5)))
        discriminator = forward_flops(nets.encoder.config, lengths) + output_flops(nets.output, n_rows * length)
        return 3.0 * (generator + discriminator)

    def result(self, nets: nn.Module) -> dict[str, Bundle]:
        """The discriminator, and the generator beside it, which has the masked output."""
        nets = cast(ReplacedNets, nets)
        bundles = {"model": (nets.bundle, "replaced"), "generator": (nets.generator_bundle, "masked")}
        return {
            name: with_outputs(bundle, {output: bundle.outputs[output]}) for name, (bundle, output) in bundles.items()
        }


class ReplacedNets(Nets):
    """Generator and discriminator under one root."""

    compiled_methods = ("generated", "detected")

    def __init__(self, bundle: Bundle, generator: Bundle, temperature: float) -> None:
        super().__init__(bundle, "replaced")
        self.generator = generator.encoder
        self.generator_output = cast(MaskedOutput, generator.outputs["masked"])
        self.temperature = temperature
        self._generator_bundle = (generator,)  # in a tuple, so that it is no submodule

    @property
    def generator_bundle(self) -> Bundle:
        return self._generator_bundle[0]

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: pieces and ordinary [R, T]; places, targets, weights and random_numbers [R, K]."""
        masked, places, targets = (arrays[name].long() for name in ("pieces", "places", "targets"))
        weights = arrays["weights"]
        states = self.generator(batch_of(arrays, masked), layers=[-1])[-1]
        losses, drawn = self.generated(pick(states, places), targets.flatten(), arrays["random_numbers"].flatten())
        replaced = put(masked, places, drawn.view_as(targets), weights)
        labels = replaced != put(masked, places, targets, weights)
        states = self.encoder(batch_of(arrays, replaced), layers=[-1])[-1]
        detection = self.detected(states, labels)
        return {
            "masked": (losses * weights.flatten()).sum(),
            "replaced": (detection * arrays["ordinary"]).sum(),
            SHARE: labels.sum().to(detection.dtype),
        }, None

    def generated(self, states: Tensor, targets: Tensor, random_numbers: Tensor) -> tuple[Tensor, Tensor]:
        """[N, D], [N] and [N] → the generator's losses [N] and the pieces that it draws [N]."""
        logits = self.generator_output.logits(states)
        return piece_losses(logits, targets), sample(logits, random_numbers, self.temperature)

    def detected(self, states: Tensor, labels: Tensor) -> Tensor:
        """[R, T, D] and [R, T] → the discriminator's losses [R, T]."""
        scores = in_full(cast(ReplacedOutput, self.output).logits(states))
        return F.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype), reduction="none")


def put(rows: Tensor, places: Tensor, pieces: Tensor, weights: Tensor) -> Tensor:
    """The rows [R, T] with `pieces` at `places` [R, K], where these have weight."""
    beyond = torch.full_like(places, rows.shape[1])
    return F.pad(rows, (0, 1)).scatter(1, torch.where(weights > 0, places, beyond), pieces)[:, :-1]


# --- the generator ---------------------------------------------------------------------------------------------------


def generator_for(bundle: Bundle, sharing: Sharing, share: float, depth: float = 1.0) -> Bundle:
    """A generator of the bundle's family, `share` as wide and `depth` as deep, where the bundle is and as precise.

    With "embeddings" it reads the bundle's own tables of pieces, positions and segments, through a map where its stack
    has another width; with "all" it is the bundle's own encoder under another output.
    """
    output = {"masked": bundle.family.outputs["masked"]}
    if sharing == "all":
        new = new_bundle(bundle.family, bundle.config, output, bundle.tokenizer, tied=bundle.tied)
        generator = with_outputs(bundle, dict(new.outputs))
        generator.outputs.to(bundle.device, next(bundle.parameters()).dtype)
        return generator
    config = transformer_of(bundle).config
    embedding_width = None if sharing == "none" else config.width_of_embeddings
    narrow = config.narrowed(share, depth=depth, embedding_width=embedding_width)
    generator = new_bundle(bundle.family, narrow, output, bundle.tokenizer, tied=bundle.tied)
    generator.foreign = dict(bundle.foreign)
    generator.to(bundle.device, next(bundle.parameters()).dtype)
    if sharing == "embeddings":
        share_tables(transformer_of(bundle), transformer_of(generator))
        generator.tie()
    return generator


def share_tables(owner: Transformer, reader: Transformer) -> None:
    """Let one encoder read the other's tables of pieces, positions and segments; norm and map stay its own."""
    reader.embeddings.pieces = owner.embeddings.pieces
    if isinstance(owner.embeddings.positions, LearnedPositions):
        reader.embeddings.positions = owner.embeddings.positions
    reader.embeddings.segments = owner.embeddings.segments


def transformer_of(bundle: Bundle) -> Transformer:
    """The bundle's encoder, which must be a Transformer to be made narrower."""
    if isinstance(bundle.encoder, Transformer) and isinstance(bundle.config, TransformerConfig):
        return bundle.encoder
    raise OptionError(
        f"The objective 'replaced' makes a narrower generator only of a Transformer, and this encoder is of kind "
        f"{bundle.config.kind!r}. Choose --objective sharing=all, under which one encoder is both."
    )


def sample(logits: Tensor, random_numbers: Tensor, temperature: float = 1.0) -> Tensor:
    """[N, V] and [N] in [0, 1) → the pieces [N] that these numbers fall on; no gradient passes."""
    scores = in_full(logits.detach()) / temperature
    n_pieces = scores.shape[-1]
    top = scores.amax(dim=-1, keepdim=True)
    weights = F.pad((scores - top).exp(), (0, -n_pieces % BLOCK)).unflatten(-1, (-1, BLOCK))  # [N, B, BLOCK]
    upto = weights.sum(dim=-1).cumsum(dim=-1)  # [N, B]
    threshold = random_numbers.to(upto.dtype)[:, None] * upto[:, -1:]  # [N, 1]
    block = (upto <= threshold).sum(dim=-1, keepdim=True).clamp(max=upto.shape[-1] - 1)  # [N, 1]
    before = torch.where(block > 0, upto.gather(1, (block - 1).clamp(min=0)), torch.zeros_like(threshold))

    places = block * BLOCK + torch.arange(BLOCK, device=logits.device)  # [N, BLOCK]
    within = (scores.gather(1, places.clamp(max=n_pieces - 1)) - top).exp()
    within = torch.where(places < n_pieces, within, torch.zeros_like(within)).cumsum(dim=-1)
    step: Tensor = (within <= threshold - before).sum(dim=-1).clamp(max=BLOCK - 1)
    drawn: Tensor = (block[:, 0] * BLOCK + step).clamp(max=n_pieces - 1)
    return drawn

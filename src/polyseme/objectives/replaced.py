"""Replaced-piece detection (ELECTRA, Clark et al. 2020) and its ablations: a generator fills masks, a model reads that.

The generator, a small model of the same family, learns as a masked language model. What it draws replaces the masks,
and the model, the discriminator, predicts of every ordinary piece whether it was replaced; a piece that was drawn right
counts as original. No gradient passes through the drawing. What lies between that and BERT (section 3.4 of the paper)
is `learn`:

| learn | the paper's name | what the model learns |
|---|---|---|
| all | ELECTRA | of every piece, whether it was replaced |
| masked | ELECTRA 15% | the same, only of the pieces that were masked |
| replace | Replace MLM | what the masked pieces were, where it reads the generator's |
| all-tokens | All-Tokens MLM | what every piece was; it is copied from what is read with a probability of its own |

Shapes: R rows, T pieces of a row, K targets of a row, N pieces, D width, V pieces of the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.corpus.packed_rows import Packed
from polyseme.corpus.random_keys import uniform
from polyseme.cost import forward_flops
from polyseme.errors import OptionError, nearest
from polyseme.objectives.generator import Sharing, generator_for, put, sample, transformer_of
from polyseme.objectives.masked import WithMaskRate, places_of, target_arrays
from polyseme.objectives.objective import Arrays, Nets, Parts, batch_of, output_flops, pick, shared_arrays, with_outputs
from polyseme.objectives.target_selection import choose_pieces, count_targets, most
from polyseme.outputs.labels import ReplacedOutput
from polyseme.outputs.pieces import MaskedOutput, piece_losses
from polyseme.parts.memory_and_cache import Memory
from polyseme.parts.precision import single_precision
from polyseme.types import Example, Needs, Rows

Learn = Literal["all", "masked", "replace", "all-tokens"]

OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "all": ("replaced",),
    "masked": ("replaced",),
    "replace": ("masked",),
    "all-tokens": ("masked", "replaced"),
}
"""The outputs of the model, by what it learns. The one that detects also says what is copied: a piece that was not
replaced."""
SHARE = "replaced_share"
"""The part of the losses that is none: the share of pieces that were replaced, which tells what the loss is worth."""
USUAL_SHARE = 1 / 4
_STEPS = 2.0**24
"""As many numbers as single precision distinguishes between 0 and 1."""


@dataclass(frozen=True, kw_only=True)
class Replaced(WithMaskRate):
    """The loss is the generator's plus the model's, each a mean over its own targets; detection is weighted."""

    name: ClassVar[str] = "replaced"
    judges_models = False  # the better the generator, the harder is what the model learns

    learn: Learn = "all"
    """What the model learns of the rows that the generator has changed."""
    weight: float = 50.0
    """Of detection (all, masked). Predicting pieces counts once, as the generator's loss does."""
    sharing: Sharing = "embeddings"
    generator_share: float | None = None
    """How wide the generator is, against the model; None: a quarter, or all of it where all is shared."""
    generator_depth: float = 1.0
    """How many layers it has, against the model; published generators have as many."""
    discriminator_rate: float = 1.0
    """The learning rate of what only a model that detects has, against the generator's. What it learns from is faint at
    first: long steps carry a deep one away before it has found that."""
    temperature: float = 1.0
    """What the generator's logits are divided by when pieces are drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learn not in OUTPUTS:
            raise OptionError(
                f"The setting learn of the objective 'replaced' cannot be {self.learn!r}. "
                f"{nearest(self.learn, OUTPUTS)}"
            )
        if self.sharing not in get_args(Sharing):
            raise OptionError(
                f"What is shared must be none, embeddings or all. Got {self.sharing!r} instead. "
                f"{nearest(self.sharing, get_args(Sharing))}"
            )
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

    @classmethod
    def replaced_by(cls, settings: Mapping[str, Any]) -> Sequence[str]:
        """Where one encoder is both, a recipe's size of the generator goes."""
        return ("generator_share", "generator_depth") if settings.get("sharing") == "all" else ()

    @property
    def share(self) -> float:
        """The generator's width against the model's."""
        if self.generator_share is None:
            return 1.0 if self.sharing == "all" else USUAL_SHARE
        return self.generator_share

    @property
    def detects(self) -> bool:
        """Whether the model says which pieces were replaced; else it says what they were."""
        return self.learn in ("all", "masked")

    @property
    def part(self) -> str:
        """The model's part of the loss."""
        return "replaced" if self.detects else "restored"

    @property
    def needs(self) -> Needs:
        return Needs(directions=("both",), outputs=OUTPUTS[self.learn], layout=Packed())

    @property
    def weights(self) -> Mapping[str, float]:
        return {"masked": 1.0, self.part: self.weight if self.detects else 1.0, SHARE: 0.0}

    @property
    def prediction_parts(self) -> tuple[str, ...]:
        """The generator's."""
        return ("masked",)

    def label_entropies(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        if not self.detects:
            return {}
        share = min(max(losses[SHARE], 1e-9), 1 - 1e-9)
        return {"replaced": -share * math.log(share) - (1 - share) * math.log(1 - share)}

    def rate_factors(self, nets: nn.Module) -> Mapping[nn.Parameter, float]:
        if self.discriminator_rate == 1 or not self.detects:
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
        n_targets = count_targets(allowed, self.rate_at(rows.progress))
        chosen = choose_pieces(allowed, n_targets, rows.keys)
        places, real = places_of(chosen, width)
        numbers = np.floor(uniform(rows.keys, "drawn pieces", width) * _STEPS) / _STEPS
        judged = allowed if self.learn in ("all", "all-tokens") else chosen
        arrays = {
            **shared_arrays(rows, np.where(chosen, self.vocabulary.mask, rows.pieces)),
            **target_arrays(rows.pieces, places, real),
            "random_numbers": numbers.astype(np.float32),
            "judged": judged,
        }
        n_judged = float(judged.sum())
        return Example(arrays, {"masked": float(real.sum()), self.part: n_judged, SHARE: n_judged})

    def nets(self, bundle: Bundle) -> nn.Module:
        generator = generator_for(bundle, self.sharing, self.share, self.generator_depth)
        return NETS[self.learn](bundle, OUTPUTS[self.learn][0], generator, self.temperature)

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        nets = cast(ReplacedNets, nets)
        lengths, n_targets = [length] * n_rows, n_rows * most(length, self.rate_at(0.5))
        n_judged = n_rows * length if self.learn in ("all", "all-tokens") else n_targets
        forward = forward_flops(nets.generator.config, lengths) + output_flops(nets.generator_output, n_targets)
        forward += forward_flops(nets.encoder.config, lengths) + output_flops(nets.output, n_judged)
        if isinstance(nets, CopyingNets):
            forward += output_flops(nets.replaced, n_judged)
        return 3.0 * forward

    def result(self, nets: nn.Module) -> dict[str, Bundle]:
        """The model, and the generator beside it, which has the masked output."""
        nets = cast(ReplacedNets, nets)
        bundles = {"model": (nets.bundle, OUTPUTS[self.learn]), "generator": (nets.generator_bundle, ("masked",))}
        return {
            name: with_outputs(bundle, {output: bundle.outputs[output] for output in outputs})
            for name, (bundle, outputs) in bundles.items()
        }


class ReplacedNets(Nets):
    """Generator and model under one root; here the model detects what was replaced."""

    compiled_methods: ClassVar[tuple[str, ...]] = ("generated", "detected")

    def __init__(self, bundle: Bundle, output: str, generator: Bundle, temperature: float) -> None:
        super().__init__(bundle, output)
        self.generator = generator.encoder
        self.generator_output = cast(MaskedOutput, generator.outputs["masked"])
        self.temperature = temperature
        self._generator_bundle = (generator,)  # in a tuple, so that it is no submodule

    @property
    def generator_bundle(self) -> Bundle:
        return self._generator_bundle[0]

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: pieces and judged [R, T]; places, targets, weights and random_numbers [R, K]."""
        masked, places, targets = (arrays[name].long() for name in ("pieces", "places", "targets"))
        weights = arrays["weights"]
        states = self.generator(batch_of(arrays, masked), layers=[-1])[-1]
        losses, drawn = self.generated(pick(states, places), targets.flatten(), arrays["random_numbers"].flatten())
        replaced = put(masked, places, drawn.view_as(targets), weights)
        original = put(masked, places, targets, weights)
        states = self.encoder(batch_of(arrays, replaced), layers=[-1])[-1]
        model = self.model_losses(states, replaced, original, arrays)
        share = (replaced != original).sum().to(losses.dtype)
        return {"masked": (losses * weights.flatten()).sum(), **model, SHARE: share}, None

    def generated(self, states: Tensor, targets: Tensor, random_numbers: Tensor) -> tuple[Tensor, Tensor]:
        """[N, D], [N] and [N] → the generator's losses [N] and the pieces that it draws [N]."""
        logits = self.generator_output.logits(states)
        return piece_losses(logits, targets), sample(logits, random_numbers, self.temperature)

    def model_losses(self, states: Tensor, read: Tensor, original: Tensor, arrays: Arrays) -> dict[str, Tensor]:
        """The model's part, from its states [R, T, D], the pieces that it read, and those that were there [R, T]."""
        return {"replaced": (self.detected(states, read != original) * arrays["judged"]).sum()}

    def detected(self, states: Tensor, labels: Tensor) -> Tensor:
        """[R, T, D] and [R, T] → the discriminator's losses [R, T]."""
        scores = single_precision(cast(ReplacedOutput, self.output).logits(states))
        return F.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype), reduction="none")


class RestoringNets(ReplacedNets):
    """The model predicts what was masked, from rows in which the generator has filled it."""

    compiled_methods = ("generated",)

    def model_losses(self, states: Tensor, read: Tensor, original: Tensor, arrays: Arrays) -> dict[str, Tensor]:
        losses = self.output.loss(pick(states, arrays["places"].long()), arrays["targets"].long().flatten())
        return {"restored": (losses * arrays["weights"].flatten()).sum()}


class CopyingNets(ReplacedNets):
    """The model predicts every piece; it may copy the one that it reads."""

    compiled_methods = ("generated", "copied")

    def __init__(self, bundle: Bundle, output: str, generator: Bundle, temperature: float) -> None:
        super().__init__(bundle, output, generator, temperature)
        self.replaced = cast(ReplacedOutput, bundle.outputs["replaced"])

    def model_losses(self, states: Tensor, read: Tensor, original: Tensor, arrays: Arrays) -> dict[str, Tensor]:
        losses = self.copied(states.flatten(0, 1), read.flatten(), original.flatten())
        return {"restored": (losses * arrays["judged"].flatten()).sum()}

    def copied(self, states: Tensor, read: Tensor, original: Tensor) -> Tensor:
        """[N, D], [N] and [N] → [N]: minus the logarithm of D · 1[read = original] + (1 - D) · softmax(original)."""
        replaced = single_precision(self.replaced.logits(states))
        predicted = F.logsigmoid(replaced) - self.output.loss(states, original)
        copied = torch.logaddexp(F.logsigmoid(-replaced), predicted)
        return -torch.where(read == original, copied, predicted)


NETS: Mapping[str, type[ReplacedNets]] = {
    "all": ReplacedNets,
    "masked": ReplacedNets,
    "replace": RestoringNets,
    "all-tokens": CopyingNets,
}

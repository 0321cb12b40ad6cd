"""What every objective is, a corruption of rows and a loss, and what all of them do with rows and tensors.

A new objective is one file, with a `BaseObjective` and its `Nets`, and one line of `objective_table`. Those of two
stacks share `TwoStackNets`: an encoder reads a source, and a decoder predicts the target.

Shapes: R rows, S pieces of a source, T pieces of a row or a target, K targets of a row, D width.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.config import Config, EncoderConfig
from polyseme.corpus.corpus import Corpus, unigram_cross_entropy
from polyseme.cost import decoder_flops, forward_flops
from polyseme.encoders.encoder import Encoder
from polyseme.errors import ModelError, OptionError, nearest
from polyseme.options import wrong_type
from polyseme.outputs.output import Output
from polyseme.parts.masks import OwnSource, SameDocument
from polyseme.parts.memory_and_cache import Memory
from polyseme.parts.precision import single_precision
from polyseme.types import Batch, Example, Loss, Needs, Rows, Tokenizer

Arrays: TypeAlias = Mapping[str, Tensor]
"""What a pass reads, by name."""
Parts: TypeAlias = tuple[dict[str, Tensor], Memory | None]
"""The parts of a pass's loss, summed, and the memory that it ends with."""
AnyObjective = TypeVar("AnyObjective", bound="BaseObjective")
AnyVocabulary = TypeVar("AnyVocabulary", bound="Vocabulary")


@dataclass(frozen=True, kw_only=True)
class Vocabulary(Config):
    """What an objective must know of a tokenizer's pieces."""

    n_pieces: int
    specials: Mapping[str, int]
    """The special pieces by role."""
    before: tuple[int, ...] = ()
    """The segments of the special pieces that the frame puts before the text of a row …"""
    after: tuple[int, ...] = ()
    """… and behind it."""

    @classmethod
    def of(cls: type[AnyVocabulary], tokenizer: Tokenizer, **more: Any) -> AnyVocabulary:
        """The vocabulary of a tokenizer; `more` are the fields that a kind of vocabulary adds."""
        framed = tokenizer.frame(np.zeros(0, np.int64))
        segments = tuple(framed.segments.tolist())
        return cls(
            n_pieces=tokenizer.n_pieces,
            specials=dict(tokenizer.specials),
            before=segments[: framed.offset],
            after=segments[framed.offset :],
            **more,
        )

    @cached_property
    def ordinary(self) -> NDArray[np.int64]:
        """Every piece that is not special: what a random piece is drawn from."""
        special = sorted(set(self.specials.values()))
        return np.delete(np.arange(self.n_pieces, dtype=np.int64), special)

    @property
    def mask(self) -> int:
        """The mask piece."""
        if "mask" not in self.specials:
            raise ModelError("The tokenizer has no mask piece, so no piece of a row can be masked.")
        return self.specials["mask"]

    @property
    def pad(self) -> int | None:
        """The padding piece, where there is one that stands for nothing else."""
        others = {id for role, id in self.specials.items() if role != "pad"}
        pad = self.specials.get("pad")
        return None if pad in others else pad


@dataclass(frozen=True, kw_only=True)
class BaseObjective(Config, ABC):
    """A corruption of rows and a loss (`types.Objective`); its fields are its settings."""

    name: ClassVar[str]
    has_perplexity: ClassVar[bool] = True
    """Whether the loss is of probabilities over all pieces, so that e to its power is a perplexity."""
    baseline_name: ClassVar[str] = "the unigram entropy"
    """What `baseline` is."""
    least_gain: ClassVar[float] = 0.3
    """How far below the baseline the loss must be for a model to have learned something from context …"""
    fair_share: ClassVar[float] = 0.2
    """… after this share of the steps."""
    updates_in_place: ClassVar[bool] = False
    """Whether plain SGD is taken by `update`: where each step touches a few rows of large tables."""
    judges_models: ClassVar[bool] = True
    """Whether of two models of one run the one with the lower held-out loss is the better one."""
    needs_teacher: ClassVar[bool] = False
    """Whether a second model, which is not trained, belongs to it (`with_models`)."""

    known_vocabulary: Vocabulary | None = field(default=None, repr=False)
    """Of the tokenizer that its rows are made with. Like all that begins with `known_`, it is no setting."""

    def __post_init__(self) -> None:
        """Subclasses check their settings here."""

    @classmethod
    def settings(cls) -> dict[str, str]:
        """The names of the settings, with their types."""
        return {each.name: str(each.type) for each in dataclasses.fields(cls) if not each.name.startswith("known_")}

    def to_json(self) -> dict[str, Any]:
        """The settings, as `json.dump` takes them."""
        known = {each.name: None for each in dataclasses.fields(self) if each.name not in self.settings()}
        settings = dataclasses.asdict(self.replace(**known))
        return {name: settings[name] for name in self.settings()}

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> Any:
        """The objective of `to_json`. An unknown setting is an error that names the nearest one."""
        types = cls.settings()
        for name, value in settings.items():
            if name not in types:
                advice = nearest(name, sorted(types)) if types else "It has none."
                raise OptionError(f"The objective {cls.name!r} has no setting {name!r}. {advice}")
            if (wrong := wrong_type(value, types[name])) is not None:
                raise OptionError(f"The setting {name!r} of the objective {cls.name!r} {wrong}")
        return super().from_json(settings)

    def for_tokenizer(self: AnyObjective, tokenizer: Tokenizer) -> AnyObjective:
        """The same objective, with the vocabulary that its rows are in."""
        return self.replace(known_vocabulary=self.read_vocabulary(tokenizer))

    def read_vocabulary(self, tokenizer: Tokenizer) -> Vocabulary:
        """What the objective must know of a tokenizer."""
        return Vocabulary.of(tokenizer)

    @property
    def vocabulary(self) -> Vocabulary:
        if self.known_vocabulary is None:
            raise OptionError(
                f"The objective {self.name!r} does not know its vocabulary yet. Call for_tokenizer(…) first."
            )
        return self.known_vocabulary

    @property
    @abstractmethod
    def needs(self) -> Needs: ...

    def for_corpus(self: AnyObjective, corpus: Corpus) -> AnyObjective:
        """The same objective, with all that it must know of a corpus."""
        return self.for_tokenizer(corpus.tokenizer)

    @classmethod
    def replaced_by(cls, settings: Mapping[str, Any]) -> Sequence[str]:
        """Settings of a recipe that mean nothing beside these of a user."""
        return ()

    def for_encoder(self: AnyObjective, config: EncoderConfig) -> AnyObjective:
        """The same objective, with the settings in which it must follow an encoder."""
        return self

    def with_models(self: AnyObjective) -> AnyObjective:
        """The same objective, with those models loaded that it reads beside the one that is trained."""
        return self

    @property
    def weights(self) -> Mapping[str, float]:
        """How much the mean of each part counts in what is minimized."""
        return {self.name: 1.0}

    @property
    def prediction_parts(self) -> tuple[str, ...]:
        """The parts of the loss that predict pieces; their mean counts. Empty where targets are smoothed."""
        return (self.name,)

    def target_counts(self, nets: nn.Module, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """How often each piece is predicted, if each occurs so often."""
        return counts

    def label_entropies(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        """For parts that predict labels: the loss, in nats, of knowing how frequent each label is, and nothing else."""
        return {}

    def rate_factors(self, nets: nn.Module) -> Mapping[nn.Parameter, float]:
        """What the learning rate of single parameters is multiplied by; of the others, by 1."""
        return {}

    def baseline(self, nets: nn.Module, corpus: Corpus, most: int) -> float | None:
        """The held-out loss of knowing how frequent each piece is in the training text, and nothing else.

        At most so many pieces are counted. None where no part of the loss can be compared with it.
        """
        if not self.prediction_parts:
            return None
        train, held = (self.target_counts(nets, corpus.piece_counts(split, most=most)) for split in ("train", "held"))
        return unigram_cross_entropy(train, held)

    def row_length(self, length: int, n_specials: int) -> int:
        """How long rows must be so that the encoder reads `length` pieces of them, `n_specials` of the frame."""
        return length

    def n_read(self, bundle: Bundle) -> int | None:
        """How many different pieces a bundle can read; None where there is no bound."""
        return bundle.config.n_pieces

    def refuse(self, bundle: Bundle) -> None:
        """Raise `OptionError` where a bundle that has what `needs` names still will not do."""

    @abstractmethod
    def nets(self, bundle: Bundle) -> nn.Module: ...

    @abstractmethod
    def corrupt(self, rows: Rows) -> Example: ...

    def loss(self, nets: nn.Module, batch: Mapping[str, Tensor], memory: Memory | None = None) -> Loss:
        """The parts of the loss, summed; the memory that comes back is cut off from this step's graph."""
        parts, after = nets(batch, memory)
        return Loss(parts, None if after is None else after.detach())

    def update(self, nets: nn.Module, batch: Mapping[str, Tensor], rate: float) -> Mapping[str, Tensor]:
        """Move the networks by plain SGD; the parts of the loss, as they were before. Only where `updates_in_place`."""
        raise TypeError(f"The objective {self.name!r} is trained by gradients: it has no update of its own.")

    @abstractmethod
    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float: ...

    def result(self, nets: nn.Module) -> dict[str, Bundle]:
        """The bundles to keep, by name: the model with the outputs that were trained."""
        bundle = cast(Nets, nets).bundle
        return {"model": with_outputs(bundle, {name: bundle.outputs[name] for name in self.needs.outputs})}


class Nets(nn.Module):
    """What is trained: encoder, decoder and one output of a bundle; subclasses add more, and the forward pass."""

    compiled_methods: ClassVar[tuple[str, ...]] = ()
    """Methods that are worth compiling, beside the layers of encoders and the losses of outputs."""

    def __init__(self, bundle: Bundle, output: str) -> None:
        super().__init__()
        self.encoder = bundle.encoder
        self.decoder = bundle.decoder
        self.output = cast(Output, bundle.outputs[output])
        self._bundle = (bundle,)  # in a tuple, so that it is no submodule: what else it holds is not trained

    @property
    def bundle(self) -> Bundle:
        return self._bundle[0]

    def new_memory(self, n_rows: int) -> Memory:
        """What streams begin with."""
        return self.encoder.new_memory(n_rows)

    def frozen_models(self) -> Iterator[nn.Module]:
        """Models that are run and not trained; they are no submodules."""
        return iter(())


def with_outputs(bundle: Bundle, outputs: Mapping[str, nn.Module]) -> Bundle:
    """A bundle of the same parts with only these outputs: others no longer fit an encoder that was trained."""
    return Bundle(
        family=bundle.family,
        encoder=bundle.encoder,
        decoder=bundle.decoder,
        outputs=outputs,
        tokenizer=bundle.tokenizer,
        tied=bundle.tied,
        foreign=bundle.foreign,
    )


# --- rows and tensors ------------------------------------------------------------------------------------------------

DETAILS = ("documents", "positions", "segments", "lengths")
"""What a layout may say of its rows, for the encoder."""


def shared_arrays(rows: Rows, pieces: NDArray[np.int64]) -> dict[str, NDArray[np.generic]]:
    """What an encoder reads of rows, as small as it may be: `pieces`, and what the layout says of them."""
    details = {name: getattr(rows, name) for name in DETAILS}
    arrays = {"pieces": pieces, **{name: value for name, value in details.items() if value is not None}}
    return {name: value.astype(np.int32) for name, value in arrays.items()}


def batch_of(arrays: Mapping[str, Tensor], pieces: Tensor) -> Batch:
    """A batch as the encoder reads it; documents are hidden from each other where the rows tell which is which."""
    details = {name: arrays[name].long() for name in DETAILS if name in arrays}
    documents = details.pop("documents", None)
    return Batch(pieces, mask=None if documents is None else SameDocument(documents), **cast(dict[str, Any], details))


def pick(states: Tensor, places: Tensor) -> Tensor:
    """The states [R, T, D] at `places` [R, K], as [R·K, D]: only these reach the vocabulary."""
    n_rows, n_pieces = states.shape[:2]
    first = torch.arange(n_rows, device=states.device)[:, None] * n_pieces
    return states.flatten(0, 1).index_select(0, (places + first).flatten())


# --- two stacks ------------------------------------------------------------------------------------------------------


class TwoStackNets(Nets):
    """Encoder, decoder and output; the decoder predicts each piece of a target from those before it and the source."""

    def __init__(self, bundle: Bundle, vocabulary: Vocabulary | None, part: str, smoothing: float = 0.0) -> None:
        super().__init__(bundle, "causal")
        self.part = part
        self.smoothing = smoothing
        self.first = 0 if vocabulary is None else vocabulary.specials.get(str(bundle.family.first), 0)
        """What a decoder reads before any piece of the target."""

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
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

    def _target(self, arrays: Arrays, targets: Tensor) -> Batch:
        """Each piece of a target is read one place later than it is predicted, and a first one before all."""
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
        logits = single_precision(cast(Any, self.output).logits(states))
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


# --- cost ------------------------------------------------------------------------------------------------------------


def output_flops(output: nn.Module, n_targets: int) -> float:
    """Floating-point operations of an output over `n_targets` states: two for each weight of its matrices."""
    return 2.0 * n_targets * sum(each.numel() for each in output.parameters() if each.dim() > 1)


def memory_flops(config: EncoderConfig, n_queries: int) -> float:
    """What a memory of earlier pieces costs per row: its keys and values, and reading them by every query."""
    held = config.memory_length or 0 if config.memory == "segment" else 0
    return 4.0 * held * config.attention_widths * (config.widths[-1] + n_queries)


def training_flops(nets: TwoStackNets, n_rows: int, source_length: int, target_length: int) -> float:
    """Floating-point operations of a step over rows of these lengths, forwards and backwards."""
    forward = forward_flops(nets.encoder.config, [source_length] * n_rows)
    forward += n_rows * decoder_flops(cast(Encoder, nets.decoder).config, source_length, target_length)
    return 3.0 * (forward + output_flops(nets.output, n_rows * target_length))

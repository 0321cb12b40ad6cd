"""The slots of the Transformer encoder: one config for the whole line from BERT to ModernBERT."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from polyseme.config import Direction, EncoderConfig
from polyseme.errors import ModelError, nearest
from polyseme.parts.bucketed_positions import BUCKETS
from polyseme.parts.feed_forward import ACTIVATIONS
from polyseme.parts.masks import get_mask, masks_by_layer
from polyseme.parts.norms import NormKind
from polyseme.parts.positions import LEARNED, NO_POSITIONS, SINUSOIDAL, Heads, PositionKind
from polyseme.parts.relative_positions import RELATIVE
from polyseme.parts.rotary_positions import ROTARY

POSITION_KINDS: Mapping[str, PositionKind] = {
    "learned": LEARNED,
    "sinusoidal": SINUSOIDAL,
    "buckets": BUCKETS,
    "relative": RELATIVE,
    "rotary": ROTARY,
    "none": NO_POSITIONS,
}
"""Name → the kind of positions; a new kind is a file of `parts/` and a line here."""


KeptHeads = tuple[Heads, ...]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(EncoderConfig):
    """Every published Transformer of the line is a value of this; the defaults are BERT's."""

    kind: ClassVar[str] = "transformer"

    width: int
    n_layers: int
    n_heads: int
    inner_width: int
    """Width of the feed-forward part."""
    head_width: int | None = None
    """None: width / n_heads."""
    embedding_width: int | None = None
    """None: as the stack; else a map brings the token layer from this width to the stack's (ALBERT, ELECTRA)."""
    adaptive: bool = False
    """Whether pieces are in clusters by frequency, each with its own map to the stack's width (Transformer-XL)."""
    cutoffs: tuple[int, ...] = ()
    """The first piece of each cluster but the first."""
    narrowing: int = 1
    """How many times narrower the table of each cluster is than the one before; 1: all are one table."""
    shared_maps: bool = True
    """Whether an adaptive output shares the maps of all clusters but the first."""
    layer_map: tuple[int, ...] | None = None
    """Which set of weights each layer uses (ALBERT shares); None: its own."""
    sets_in_group: int = 1
    """How many sets of weights are kept together in a checkpoint (ALBERT's inner groups)."""

    norm: Literal["after", "before", "none"] = "after"
    """Where the norm stands: after each residual sum, before each part, or nowhere."""
    norm_kind: NormKind = "layer"
    norm_epsilon: float = 1e-12
    embedding_norm: bool = True
    first_norm: bool = True
    """Whether the first layer's attention has a norm; ModernBERT's has none, since the token layer is normed."""
    final_norm: bool = False
    """A norm above the top layer."""

    activation: str = "gelu"
    gated: bool = False
    attention_bias: bool = True
    attention_output_bias: bool = True
    inner_bias: bool = True
    scale: float | None = None
    """Of the attention scores; None: 1 / √head width."""
    scale_by_layer: bool = False
    """Also divided by the layer's number."""

    positions: str = "learned"
    """A name of `POSITION_KINDS`, with settings after a colon where the kind has such: `rotary:BASE:LOCAL`."""
    position_offset: int = 0
    """Rows at the start of the table of positions that belong to none."""
    sinusoids: Literal["halves", "interleaved"] = "halves"
    n_buckets: int = 32
    max_distance: int = 128
    clamp_distance: int | None = None
    """Relative distances beyond it count as it."""
    n_segments: int = 2
    """Kinds of segment; 0: the encoder does not tell them apart."""
    relative_segments: bool = False
    """Whether scores know if two pieces are of the same segment (XLNet), instead of a table below."""
    shared_biases: bool = False
    """Whether all layers have the same biases in their relative terms (Transformer-XL's `untie_r` false)."""
    embedding_scale: float = 1.0

    masks: tuple[str, ...] = ("all",)
    """What a piece sees: `all`, `causal`, `band:WIDTH`, `local:WIDTH`; one for all layers, one per layer, or
    several that repeat: GPT-3's are `causal`, `band:WIDTH`, in turn.

    `local:WIDTH:EVERY` is for all layers, of which the first and each EVERY-th after it see all.
    """
    sees_itself: bool = False
    """Whether a piece sees itself whatever the batch's mask says (XLNet's content stream)."""
    cross: bool = False
    """Whether each layer also reads `batch.source`."""
    query_stream: bool = False
    """Whether there is a second stream that knows its position but not its piece (XLNet)."""
    decoder_layers: int | None = None
    """Layers of a second stack, causal, which reads the states of this one (BART, T5); None: there is none."""
    decoder_heads: int | None = None
    """None: as many as in this one."""
    heads_left: KeptHeads | None = None
    """Of each set of weights, the heads that are left after pruning, by number; None: all `n_heads`."""
    cross_heads_left: KeptHeads | None = None
    """The same of attention to a source; in a model with two stacks, of the second."""
    decoder_heads_left: KeptHeads | None = None
    """The same of the second stack."""
    decoder_inner_width: int | None = None
    """None: as in this one."""
    output_scale: float = 1.0
    """What the top states are multiplied with before pieces are predicted (T5)."""

    dropout_rate: float = 0.1
    attention_dropout_rate: float = 0.1
    """Of the weights of attention."""
    attention_output_dropout_rate: float | None = None
    """Of what attention adds; None: `dropout_rate`, which is of all that is added."""
    inner_dropout_rate: float = 0.0
    embedding_dropout_rate: float = 0.1
    init_std: float = 0.02
    init_cutoff: float | None = None
    """How many standard deviations from 0 weights are first drawn at most (ModernBERT); None: without bound."""
    spread_by_depth: bool = False
    """Whether what is added to the residual stream is first drawn narrower, by 1 / √(2 · layers) (GPT-2)."""
    spread_by_width: bool = False
    """Whether each matrix is first drawn narrower, by 1 / √(width it reads) (T5)."""

    def __post_init__(self) -> None:
        for name in ("width", "n_heads", "inner_width", "n_pieces", "head_width", "embedding_width"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ModelError(f"The '{name}' of a Transformer must be at least 1. Got {value} instead.")
        for each in dataclasses.fields(self):
            if each.name.endswith("_rate") and not 0 <= (getattr(self, each.name) or 0.0) <= 1:
                raise ModelError(f"'{each.name}' must be from 0 to 1. Got {getattr(self, each.name)} instead.")
        if self.head_width is None and self.width % self.n_heads:
            raise ModelError(f"A width of {self.width} cannot be divided among {self.n_heads} heads.")
        if self.activation not in ACTIVATIONS:
            raise ModelError(f"There is no activation {self.activation!r}. {nearest(self.activation, ACTIVATIONS)}")
        bounds = (0, *self.cutoffs, self.n_pieces)
        if list(bounds) != sorted(set(bounds)):
            raise ModelError(
                f"'cutoffs' must rise, from at least 1 to below the {self.n_pieces:,} pieces. Got "
                f"{list(self.cutoffs)} instead."
            )
        if self.narrowing < 1 or self.width_of_embeddings < self.narrowing ** len(self.cutoffs):
            raise ModelError(
                f"A token layer {self.width_of_embeddings} wide cannot grow {self.narrowing} times narrower "
                f"{len(self.cutoffs)} times."
            )
        if self.positions.partition(":")[0] not in POSITION_KINDS:
            raise ModelError(f"There are no positions {self.positions!r}. {nearest(self.positions, POSITION_KINDS)}")
        if self.layer_map is not None and len(self.layer_map) != self.n_layers:
            raise ModelError(
                f"'layer_map' must name {self.n_layers} sets of weights. Got {len(self.layer_map)} instead."
            )
        if self.sets_in_group < 1 or self.n_sets % self.sets_in_group:
            raise ModelError(f"The sets of weights cannot be kept in groups of {self.sets_in_group}.")
        if len(self.masks) != 1 and (not self.masks or not self.n_layers or self.n_layers % len(self.masks)):
            raise ModelError(
                f"'masks' must be one, {self.n_layers}, or as many as divide {self.n_layers} layers, and repeat. "
                f"Got {len(self.masks)} instead."
            )
        for mask in masks_by_layer(self.masks, max(self.n_layers, 1)):
            get_mask(mask)
        for heads in (self.heads_left, None if self.decoder_layers is not None else self.cross_heads_left):
            self._check_heads(heads)
        refusal = self.position_kind.refusal(self)
        if refusal is not None:
            raise ModelError(refusal)

    def _check_heads(self, heads_left: KeptHeads | None) -> None:
        """Refuse heads that there are not; those of a second stack are checked with its own config."""
        if heads_left is None:
            return
        if len(heads_left) != self.n_sets or any(
            list(heads) != sorted({*heads} & {*range(self.n_heads)}) for heads in heads_left
        ):
            raise ModelError(
                f"The heads that are left must be {self.n_sets} lists of rising numbers below {self.n_heads}. Got "
                f"{[list(heads) for heads in heads_left]} instead."
            )

    @property
    def decoder(self) -> TransformerConfig | None:
        if self.decoder_layers is None:
            return None
        return self.replace(
            n_layers=self.decoder_layers,
            n_heads=self.n_heads if self.decoder_heads is None else self.decoder_heads,
            inner_width=self.inner_width if self.decoder_inner_width is None else self.decoder_inner_width,
            decoder_layers=None,
            decoder_heads=None,
            decoder_inner_width=None,
            heads_left=self.decoder_heads_left,
            decoder_heads_left=None,
            masks=("causal",),
            cross=True,
            memory="cache",
        )

    def narrowed(self, share: float, *, depth: float = 1.0, embedding_width: int | None = None) -> TransformerConfig:
        """The same stack made narrower, as ELECTRA makes its generator: width, heads and inner width by `share`.

        By `depth` as many layers, at least one; at least one head; a width that the heads divide, in eights where it is
        wide enough for that. `embedding_width` is the token layer's; None: the new stack's.

        >>> small = TransformerConfig(n_pieces=99, width=256, n_layers=12, n_heads=4, inner_width=1024, max_positions=9)
        >>> narrow = small.narrowed(1 / 4, embedding_width=128)
        >>> narrow.width, narrow.n_heads, narrow.inner_width, narrow.embedding_width
        (64, 1, 256, 128)
        """
        n_heads = max(round(self.n_heads * share), 1)
        step = 8 * n_heads if self.width * share >= 8 * n_heads else n_heads
        width = max(round(self.width * share / step), 1) * step
        return self.replace(
            n_layers=max(round(self.n_layers * depth), 1),
            width=width,
            n_heads=n_heads,
            inner_width=max(round(self.inner_width * share), 1),
            embedding_width=None if embedding_width == width else embedding_width,
        )

    @property
    def weight_sets(self) -> tuple[int, ...]:
        """Which set of weights each layer uses."""
        return tuple(range(self.n_layers)) if self.layer_map is None else self.layer_map

    @property
    def n_sets(self) -> int:
        """How many sets of weights there are."""
        return max(self.weight_sets, default=-1) + 1

    def _widths_of_heads(self, heads_left: KeptHeads | None) -> int:
        """Summed over layers, the width of all heads together."""
        counts = [self.n_heads] * self.n_sets if heads_left is None else [len(heads) for heads in heads_left]
        return sum(counts[number] for number in self.weight_sets) * self.width_of_heads

    @property
    def layer_masks(self) -> tuple[str, ...]:
        """The mask of each layer."""
        return masks_by_layer(self.masks, self.n_layers)

    @property
    def position_kind(self) -> PositionKind:
        return POSITION_KINDS[self.positions.partition(":")[0]]

    @property
    def width_of_heads(self) -> int:
        return self.width // self.n_heads if self.head_width is None else self.head_width

    @property
    def width_of_embeddings(self) -> int:
        return self.width if self.embedding_width is None else self.embedding_width

    @property
    def direction(self) -> Direction:
        if self.n_layers == 0:
            return "none"
        if self.query_stream:
            return "any-order"
        return "causal" if all(get_mask(mask).window[1] == 0 for mask in self.layer_masks) else "both"

    @property
    def has_normed_states(self) -> bool:
        return self.norm == "after"

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.width,) * (self.n_layers + 1)

    @property
    def matrix_weights(self) -> int:
        heads = self.attention_widths + (self.source_widths if self.cross else 0)
        feed_forward = self.n_layers * (3 if self.gated else 2) * self.inner_width
        return (4 * heads + feed_forward + sum(self._mapped_widths)) * self.width

    @property
    def _mapped_widths(self) -> list[int]:
        """The widths of the token layer that a map brings to the stack's; of clusters, every one's."""
        if self.adaptive and self.narrowing > 1:
            return [self.width_of_embeddings // self.narrowing**number for number in range(len(self.cutoffs) + 1)]
        return [] if self.embedding_width is None else [self.embedding_width]

    @property
    def attention_widths(self) -> int:
        return self._widths_of_heads(self.heads_left)

    @property
    def source_widths(self) -> int:
        return self._widths_of_heads(self.cross_heads_left)

    def share_up_to(self, layer: int) -> float:
        return layer / self.n_layers

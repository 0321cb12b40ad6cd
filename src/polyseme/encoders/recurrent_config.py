"""The configs of recurrent encoders: a stack that reads one way or both, the decoder that reads such a one's states,
and two stacks over one token layer.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from polyseme.config import Direction, EncoderConfig, MemoryKind
from polyseme.errors import ModelError, nearest
from polyseme.json_reading import is_number
from polyseme.parts.feed_forward import ACTIVATIONS
from polyseme.parts.recurrence import N_GATES, CellKind
from polyseme.parts.source_attention import SCORES

Reads = Literal["forwards", "backwards", "both"]
Feeding = Literal["none", "attentional", "context"]
ATTENTIONS = ("none", *SCORES)


@dataclass(frozen=True, kw_only=True)
class StackConfig(EncoderConfig):
    """A token layer and the recurrent layers above it."""

    memory: MemoryKind = "state"

    token_width: int
    """Of the token layer."""
    width: int
    """Of the states of a layer, in one direction."""
    n_layers: int
    inner_width: int | None = None
    """Cells of a layer, where a projection brings them to the width of its states; None: as many as its states are
    wide, without a projection."""
    top_width: int | None = None
    """Of the top layer, where it is another (as wide as the token layer, to share its table); None: as the others."""
    cells: CellKind = "lstm"
    skip: bool = False
    """Whether each layer from the second on is added to what it reads."""
    cell_clip: float | None = None
    """What cells are held within, ±."""
    projection_clip: float | None = None
    """What projected states are held within, ±."""
    forget_bias: float = 0.0
    """Added to the forget gates, beside the bias that is learned."""

    filter_widths: tuple[int, ...] = ()
    """Characters that the filters of each kind span; none: pieces have a table of their own, and are not spelled."""
    filter_counts: tuple[int, ...] = ()
    """How many filters of each kind there are."""
    character_width: int = 16
    max_characters: int = 50
    """Characters of a piece, its marks of begin and end included."""
    n_highways: int = 0
    filter_activation: str = "relu"

    output_cutoffs: tuple[int, ...] = ()
    """Where the clusters of rare pieces begin in the softmax above, if that is an adaptive one; none: it is full."""

    dropout_rate: float = 0.0
    """Of the states of each layer."""
    embedding_dropout_rate: float = 0.0
    """Of the token layer."""
    output_dropout_rate: float | None = None
    """Of the states of the top layer, where it is another; None: as of the others."""
    word_dropout_rate: float = 0.0
    """Of whole words: a word that is dropped is zero wherever it is read in a batch, and is still predicted."""
    weight_dropout_rate: float = 0.0
    """Of the recurrent weights (DropConnect): those that are dropped are so for all times of a batch."""
    locked_dropout: bool = False
    """Whether a row has one mask for all its pieces (variational dropout), and not one for each."""
    init_std: float = 0.1
    """Of the table of pieces; other weights are drawn as torch and ELMo's authors do."""

    def __post_init__(self) -> None:
        self._check_sizes()
        if self.cells not in N_GATES:
            raise ModelError(f"There is no cell {self.cells!r}. {nearest(str(self.cells), N_GATES)}")
        if self.cells != "lstm" and (self.inner_width is not None or self.cell_clip is not None or self.forget_bias):
            raise ModelError(
                f"Cells of kind {self.cells!r} have no projection, clip or forget gate; those are of kind 'lstm'."
            )
        if self.projection_clip is not None and self.inner_width is None:
            raise ModelError("'projection_clip' needs a projection: an 'inner_width'.")
        if self.skip and self.top_width not in (None, self.width):
            raise ModelError("Skip connections need layers of one width, and 'top_width' is another.")
        if len(self.filter_widths) != len(self.filter_counts):
            raise ModelError(
                f"'filter_widths' names {len(self.filter_widths)} kinds of filter and 'filter_counts' "
                f"{len(self.filter_counts)}."
            )
        if self.filter_widths and max(self.filter_widths) > self.max_characters:
            raise ModelError(
                f"A filter spans {max(self.filter_widths)} characters, and a piece has only {self.max_characters}."
            )
        if self.spelled and self.word_dropout_rate:
            raise ModelError(
                "'word_dropout_rate' drops rows of a table of pieces, and pieces that are spelled have none."
            )
        if self.filter_activation not in ACTIVATIONS:
            known = nearest(str(self.filter_activation), ACTIVATIONS)
            raise ModelError(f"There is no activation {self.filter_activation!r}. {known}")

    def _check_sizes(self) -> None:
        least = {"n_layers": 0, "n_highways": 0}
        for name in ("n_pieces", "token_width", "width", "n_layers", "inner_width", "top_width", "character_width",
                     "max_characters", "n_highways"):  # fmt: skip
            value = getattr(self, name)
            if value is None and name in ("inner_width", "top_width"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least.get(name, 1):
                raise ModelError(
                    f"The '{name}' of a recurrent encoder must be a whole number from {least.get(name, 1)} on. "
                    f"Got {value!r} instead."
                )
        for name in ("filter_widths", "filter_counts", "output_cutoffs"):
            for value in getattr(self, name):
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    raise ModelError(f"'{name}' must be whole numbers from 1 on. Got {value!r} among them.")
        for name in ("cell_clip", "projection_clip"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value > 0):
                raise ModelError(f"The '{name}' must be a number above 0, or none. Got {value!r} instead.")
        for name in ("dropout_rate", "embedding_dropout_rate", "output_dropout_rate", "word_dropout_rate",
                     "weight_dropout_rate"):  # fmt: skip
            value = getattr(self, name)
            if value is None and name == "output_dropout_rate":
                continue
            if not (is_number(value) and 0 <= value < 1):
                raise ModelError(f"The '{name}' must be a number from 0 to below 1. Got {value!r} instead.")
        for name in ("forget_bias", "init_std"):
            if not is_number(getattr(self, name)):
                raise ModelError(f"The '{name}' must be a number. Got {getattr(self, name)!r} instead.")

    @property
    def follows_masks(self) -> bool:
        return False

    @property
    def spelled(self) -> bool:
        """Whether pieces come as characters, [R, T, C]."""
        return bool(self.filter_widths)

    @property
    def state_widths(self) -> tuple[int, ...]:
        """The width of each layer's states in one direction, the first layer's first."""
        top = self.width if self.top_width is None else self.top_width
        return (*(self.width,) * (self.n_layers - 1), top)[: self.n_layers]

    @property
    def cell_widths(self) -> tuple[int, ...]:
        """The cells of each layer, which only those of an LSTM carry on beside its states."""
        if self.cells != "lstm":
            return ()
        return self.state_widths if self.inner_width is None else (self.inner_width,) * self.n_layers

    def _weights_above(self, n_directions: int, joined: bool) -> int:
        """Weights that a piece meets above the token layer, in so many directions, joined after each layer or not."""
        total, below = 0, self.token_width
        for width in self.state_widths:
            cells = width if self.inner_width is None else self.inner_width
            projection = 0 if self.inner_width is None else cells * width
            total += n_directions * (N_GATES[self.cells] * cells * (below + width) + projection)
            below = n_directions * width if joined else width
        return total

    @property
    def _weights_of_tokens(self) -> int:
        if not self.spelled:
            return 0
        n_filters = sum(self.filter_counts)
        spans = zip(self.filter_widths, self.filter_counts, strict=True)
        filters = sum((self.max_characters - span + 1) * span * self.character_width * count for span, count in spans)
        return filters + 2 * self.n_highways * n_filters * n_filters + n_filters * self.token_width


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(StackConfig):
    """A stack read in one direction, or in both, joined after every layer."""

    kind: ClassVar[str] = "recurrent"

    reads: Reads = "forwards"

    decoder_layers: int | None = None
    """Layers of a second stack that writes what this one reads; None: there is none."""
    decoder_width: int | None = None
    """Of its states; None: as wide as this stack's, all directions together."""
    decoder_attention: str = "general"
    """How it attends to this stack's states: "dot", "general", "additive"; "none": it begins in the last one alone."""
    decoder_feeding: Feeding = "none"
    """What each piece that it reads has beside it: "none", the "attentional" state of the piece before (input feeding),
    or the "context" that the state before finds in the source (Bahdanau et al. 2015)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder_layers is not None:
            _ = self.decoder  # which checks its own settings
        if self.reads not in ("forwards", "backwards", "both"):
            raise ModelError(
                f"A recurrent encoder reads forwards, backwards or both. Got {self.reads!r} for 'reads' instead."
            )
        if self.memory not in (("none",) if self.reads == "both" else ("state", "none")):
            raise ModelError(
                f"A recurrent encoder that reads {self.reads} cannot have memory {self.memory!r}. Read one way, it "
                "returns its 'state'; read both ways, it has 'none', since neither end of a row is the last."
            )

    @property
    def n_ways(self) -> int:
        return 2 if self.reads == "both" else 1

    @property
    def decoder(self) -> RecurrentDecoderConfig | None:
        """A stack of the same cells over the same table of pieces; without attention its top layer is as wide as the
        table, which the output may share.
        """
        if self.decoder_layers is None:
            return None
        shared: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(StackConfig)}
        own = {
            "memory": "state",
            "n_layers": self.decoder_layers,
            "width": self.widths[-1] if self.decoder_width is None else self.decoder_width,
            "top_width": self.token_width if self.decoder_attention == "none" else None,
            "source_width": self.widths[-1],
            "source_ways": self.n_ways,
            "attention": self.decoder_attention,
            "feeding": self.decoder_feeding,
        }
        return RecurrentDecoderConfig(**{**shared, **own})

    @property
    def direction(self) -> Direction:
        """In the order of reading, which in a backward half is from the end."""
        if self.n_layers == 0:
            return "none"
        return "both" if self.reads == "both" else "causal"

    @property
    def reads_backwards(self) -> bool:
        return self.reads == "backwards"

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.token_width, *(self.n_ways * width for width in self.state_widths))

    @property
    def matrix_weights(self) -> int:
        return self._weights_of_tokens + self._weights_above(self.n_ways, joined=True)


@dataclass(frozen=True, kw_only=True)
class RecurrentDecoderConfig(StackConfig):
    """A stack that reads a source: from its last state on, and with attention to all of them or without."""

    kind: ClassVar[str] = "recurrent-decoder"

    source_width: int
    source_ways: int = 2
    """Directions in which the source was read."""
    attention: str = "general"
    feeding: Feeding = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (("attention", ATTENTIONS), ("feeding", get_args(Feeding))):
            value = getattr(self, name)
            if value not in known:
                raise ModelError(f"There is no {name} {value!r} of a recurrent decoder. {nearest(str(value), known)}")
        if self.n_layers == 0 or self.spelled:
            raise ModelError("A recurrent decoder has at least one layer, and reads pieces by a table, not spelled.")
        if self.attention == "none" and self.feeding != "none":
            raise ModelError(f"Without attention there is nothing to feed back. Got {self.feeding!r} for the feeding.")
        if self.feeding != "none" and (self.weight_dropout_rate or self.locked_dropout):
            raise ModelError(
                f"A decoder with feeding {self.feeding!r} reads piece by piece, so that no mask can stay the same for "
                "a whole row. Leave out 'weight_dropout_rate' and 'locked_dropout', or set 'decoder_feeding' to none."
            )
        if self.attention == "dot" and self.state_widths[-1] != self.source_width:
            raise ModelError(
                f"Attention of kind 'dot' needs a decoder as wide as its source. Got {self.state_widths[-1]} and "
                f"{self.source_width}; 'general' takes any widths."
            )

    @property
    def stack(self) -> RecurrentConfig:
        """The recurrent layers, which read what is fed back beside the token layer."""
        shared: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(StackConfig)}
        return RecurrentConfig(**{**shared, "token_width": self.token_width + self.fed_width})

    @property
    def fed_width(self) -> int:
        return {"none": 0, "attentional": self.token_width, "context": self.source_width}[self.feeding]

    @property
    def direction(self) -> Direction:
        return "causal"

    @property
    def widths(self) -> tuple[int, ...]:
        attentional = () if self.attention == "none" else (self.token_width,)
        return (self.token_width, *self.state_widths, *attentional)

    @property
    def matrix_weights(self) -> int:
        top = self.state_widths[-1]
        combined = 0 if self.attention == "none" else self.token_width * (self.source_width + top)
        queries = top * top if self.attention == "additive" else 0
        return self.stack.matrix_weights + combined + queries

    def source_flops(self, source_length: int, target_length: int) -> float:
        """Keys of the source, and scores and contexts of all pairs."""
        if self.attention == "none":
            return 0.0
        top = self.state_widths[-1]
        keys = 0 if self.attention == "dot" else self.source_width * top
        return 2.0 * source_length * (keys + target_length * (top + self.source_width))


@dataclass(frozen=True, kw_only=True)
class TwoWayConfig(StackConfig):
    """A forward and a backward stack side by side, over one token layer (ELMo) or one each (Flair)."""

    kind: ClassVar[str] = "two-way"

    n_outputs: int | None = None
    """Words that the softmax above chooses from; None: there is none, or it chooses from the pieces that are read."""
    own_tokens: bool = False
    """Whether each half has a table of pieces of its own."""
    edges: tuple[int, int] | None = None
    """What a half reads, in its direction, where a text begins and where it ends (in Flair, the end of a line and a
    blank), instead of the last two pieces, which mark the two ends of a row and are in no table. None: these pieces are
    like others."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.edges is None:
            return
        if not self.own_tokens or self.spelled:
            raise ModelError("'edges' are for halves with tables of pieces of their own ('own_tokens').")
        known = [piece for piece in self.edges if isinstance(piece, int) and 0 <= piece < self.n_pieces - 2]
        if len(self.edges) != 2 or len(known) != 2:
            raise ModelError(
                f"'edges' must be two of the {self.n_pieces - 2} pieces before the markers. Got {self.edges!r} instead."
            )

    @property
    def n_predicted(self) -> int:
        """How many choices a softmax above has: words of its own, or the pieces that are read, markers left out."""
        n_read = self.n_pieces if self.edges is None else self.n_pieces - 2
        return n_read if self.n_outputs is None else self.n_outputs

    @property
    def direction(self) -> Direction:
        return "two-way"

    @property
    def usual_pooling(self) -> str:
        return "mean" if self.edges is None else "outer-ends"

    @property
    def window(self) -> int | None:
        """Markers are at the ends of a text, not at those of a window."""
        return self.max_positions if self.edges is None else None

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(2 * width for width in (self.token_width, *self.state_widths))

    @property
    def matrix_weights(self) -> int:
        return self._weights_of_tokens + self._weights_above(2, joined=False)

    def half(self, reads: Reads) -> RecurrentConfig:
        """The config of the forward or the backward half."""
        shared: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(StackConfig)}
        return RecurrentConfig(**shared, reads=reads)

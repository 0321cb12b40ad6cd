"""Configs: frozen keyword-only dataclasses that go to JSON and come back.

`EncoderConfig` is what every room may ask of any encoder, whatever it computes. The configs of the kinds of encoder
(`encoders/`) add their own fields; nothing outside `encoders/` and `convert/` reads those.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from polyseme.errors import ModelError, nearest

Direction = Literal["both", "causal", "two-way", "any-order", "none"]
MemoryKind = Literal["none", "state", "segment", "cache"]
Own = TypeVar("Own", bound="Config")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A record of settings; equal settings are equal objects."""

    def to_json(self) -> dict[str, Any]:
        """Every field, as `json.dump` takes it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls: type[Own], settings: Mapping[str, Any]) -> Own:
        """The config of `to_json`. An unknown field is an error that names the nearest one."""
        names = {field.name for field in dataclasses.fields(cls) if field.init}
        for name in settings:
            if name not in names:
                raise ModelError(f"{cls.__name__} has no field {name!r}. {nearest(name, sorted(names))}")
        return cls(**{name: _tuples(value) for name, value in settings.items()})

    def replace(self: Own, **changes: Any) -> Own:
        """The same settings but for `changes`."""
        return dataclasses.replace(self, **changes)


def _tuples(value: Any) -> Any:
    """Lists as tuples, lists in lists too: JSON knows no tuples, and records hold no lists."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(Config, ABC):
    """What any encoder says of itself. `kind` names the class that computes it (`encoders/`)."""

    kind: ClassVar[str]

    n_pieces: int
    """Rows of the table of pieces."""
    max_positions: int | None = None
    """The longest row the encoder can read, specials included; None where there is no bound."""
    memory: MemoryKind = "none"
    """What `new_memory` makes: recurrent states, segments of earlier states, or a cache of keys and values."""
    memory_length: int | None = None
    """How many earlier pieces a segment memory keeps; None keeps all."""
    first_memory: Literal["empty", "zeros"] = "empty"
    """Whether a new segment memory has no pieces, or `memory_length` pieces of zeros that count as seen."""
    reuse: int | None = None
    """How many pieces of a row go into its segment memory (XLNet's reuse length); None: all."""

    @property
    @abstractmethod
    def direction(self) -> Direction:
        """Which side of a piece its state has seen."""

    @property
    def reads_backwards(self) -> bool:
        """Whether a causal encoder reads a text from its end, so that a state has seen what follows."""
        return False

    @property
    @abstractmethod
    def widths(self) -> tuple[int, ...]:
        """The width of each layer, layer 0 first."""

    @property
    def has_normed_states(self) -> bool:
        """Whether the states of all layers are of like size; where norms are before the parts, they grow."""
        return True

    @property
    def depth(self) -> int:
        """The number of the top layer; layer 0 is the token layer."""
        return len(self.widths) - 1

    @property
    def decoder(self) -> EncoderConfig | None:
        """The second stack of a model that has two, which reads this one's states; None: there is none."""
        return None

    @property
    def usual_pooling(self) -> str:
        """How the pieces of a word become one vector where nobody says otherwise."""
        return "mean"

    @property
    def window(self) -> int | None:
        """The longest row worth giving the encoder at once; windows are cut to it."""
        return self.max_positions

    @property
    def follows_masks(self) -> bool:
        """Whether a batch's mask narrows what its pieces see, so that texts can share a row."""
        return True

    @property
    @abstractmethod
    def matrix_weights(self) -> int:
        """Weights each piece is multiplied with on its way through (for `cost`)."""

    @property
    def attention_widths(self) -> int:
        """Summed over layers, the width of the queries that meet every key of a row (for `cost`)."""
        return 0

    @property
    def source_widths(self) -> int:
        """The same of the queries that meet a source (for `cost`)."""
        return self.attention_widths

    def source_flops(self, source_length: int, target_length: int) -> float:
        """What reading a source costs a row of a decoder, beside its own pieces (for `cost`).

        Keys and values are made of the source's pieces, not of its own, and met by all of these.
        """
        keys_and_values = 2 * self.widths[-1] * self.source_widths
        across = 4.0 * source_length * target_length * self.source_widths
        return 2.0 * (source_length - target_length) * keys_and_values + across

    def share_up_to(self, layer: int) -> float:
        """The share of a pass that is computed if no layer above this one is requested (for `cost`)."""
        return 1.0

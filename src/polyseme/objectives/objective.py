"""What every objective is: a record of settings that is told of the vocabulary it works in."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.config import Config
from polyseme.errors import ModelError, OptionError, nearest
from polyseme.parts.memory import Memory
from polyseme.types import Example, Loss, Needs, Rows, Tokenizer

SomeObjective = TypeVar("SomeObjective", bound="BaseObjective")


@dataclass(frozen=True, kw_only=True)
class Vocabulary(Config):
    """What an objective must know of a tokenizer's pieces."""

    n_pieces: int
    specials: Mapping[str, int]
    """The special pieces by role."""

    @cached_property
    def ordinary(self) -> NDArray[np.int64]:
        """Every piece that is no special one: what a random piece is drawn from."""
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

    known: Vocabulary | None = field(default=None, repr=False)
    """The vocabulary it was told of; no setting, so it is not in the JSON."""

    def to_json(self) -> dict[str, Any]:
        """The settings, as `json.dump` takes them."""
        settings = super().to_json()
        del settings["known"]
        return settings

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> Any:
        """The objective of `to_json`. An unknown setting is an error that names the nearest one."""
        names = sorted(each.name for each in dataclasses.fields(cls) if each.name != "known")
        for given in settings:
            if given not in names:
                told = nearest(given, names) if names else "It has none."
                raise OptionError(f"The objective {cls.name!r} has no setting {given!r}. {told}")
        return super().from_json(settings)

    def for_tokenizer(self: SomeObjective, tokenizer: Tokenizer) -> SomeObjective:
        """The same objective, told of the vocabulary that its rows are in."""
        vocabulary = Vocabulary(n_pieces=tokenizer.n_pieces, specials=dict(tokenizer.specials))
        told: SomeObjective = self.replace(known=vocabulary)
        return told

    @property
    def vocabulary(self) -> Vocabulary:
        if self.known is None:
            raise OptionError(
                f"The objective {self.name!r} does not know its vocabulary yet. Call for_tokenizer(…) first."
            )
        return self.known

    @property
    @abstractmethod
    def needs(self) -> Needs: ...

    @property
    def weights(self) -> Mapping[str, float]:
        """How much the mean of each part counts in what is minimized."""
        return {self.name: 1.0}

    @property
    def same_rows(self) -> bool:
        """Whether rows must be cut alike in every epoch, since what becomes of one follows from its content."""
        return False

    @property
    def keeps_apart(self) -> bool:
        """Whether the documents of a packed row can be hidden from each other."""
        return True

    @property
    def sentences(self) -> bool:
        """Whether rows must say where sentences begin."""
        return False

    @property
    def ahead(self) -> int:
        """How many pieces of the next row those of streams show too, as targets."""
        return 1

    def row_length(self, length: int, n_specials: int) -> int:
        """How long packed rows must be so that the encoder reads `length` pieces of them, `n_specials` of the frame."""
        return length

    @property
    def both_ways(self) -> bool:
        """Whether rows of streams come in pairs, one read from the stream's beginning and one from its end."""
        return False

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

    @abstractmethod
    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float: ...

    @abstractmethod
    def result(self, nets: nn.Module) -> dict[str, Bundle]: ...

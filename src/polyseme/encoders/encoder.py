"""The contract of every encoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Literal

from torch import Tensor, nn

from polyseme.config import EncoderConfig
from polyseme.errors import ModelError
from polyseme.parts.embeddings import Clusters
from polyseme.parts.memory_and_cache import Memory
from polyseme.types import Batch, States

Layers = Literal["all"] | Collection[int]


class Encoder(nn.Module, ABC):
    """Batch → states. A decoder is an encoder that also reads `batch.source`."""

    config: EncoderConfig

    @abstractmethod
    def forward(
        self, batch: Batch, *, layers: Layers = "all", attentions: bool = False, memory: Memory | None = None
    ) -> States:
        """The states of these layers; a memory is returned exactly if one was passed in, which is then spent."""

    def new_memory(self, rows: int, capacity: int | None = None) -> Memory:
        """A memory of nothing yet, for so many rows and, in a cache, at most `capacity` pieces each.

        The padding of a call takes up room too, until the next call writes over it.
        """
        raise ModelError(
            f"An encoder of kind {self.config.kind!r} with memory {self.config.memory!r} has none to make."
        )

    def halves(self) -> list[Encoder]:
        """A two-way encoder's forward and backward one, each with its own memory; others are one whole."""
        return [self]

    def apply_final_norm(self, states: Tensor) -> Tensor:
        """States of a layer below the top as an output reads those of the top: normed, where a norm ends the stack."""
        return states

    def token_modules(self) -> list[nn.Module]:
        """The modules that look pieces up, [R, T] → [R, T, D], before anything is added; none: it is no module's."""
        return []

    def layer_modules(self) -> list[nn.Module]:
        """The modules whose results are layers 0, 1 … before any final norm, as they are called, each as often as it
        is; what they return is the states, or begins with them. A stack that reads piece by piece calls them again
        for each. None: layers are no modules' results.
        """
        return []

    def piece_table(self) -> nn.Parameter | None:
        """The table of pieces an output may share, [V, width of embeddings], where there is one."""
        return None

    def piece_clusters(self) -> Clusters | None:
        """The tables of pieces of an encoder that has several, which an output may share."""
        return None

    def tie(self, table: nn.Parameter) -> None:
        """Share another stack's table of pieces, where there is one; called whenever weights are put in place."""

    @abstractmethod
    def layer_groups(self) -> list[list[nn.Parameter]]:
        """All parameters, each once, in groups from bottom to top; shared ones are in the lowest that uses them."""

    def repeated_parts(self) -> list[nn.Module]:
        """What is worth compiling by itself: layers of one kind are compiled once for all; else the whole encoder."""
        return [self]


def check_rows(memory: Memory, n_rows: int) -> None:
    """Refuse a memory of other rows than the batch's."""
    if memory.lengths.shape[0] != n_rows:
        raise ModelError(
            f"The memory is of {memory.lengths.shape[0]} rows and the batch of {n_rows}. Pick the rows with "
            "memory.select, or begin with new_memory."
        )


def wanted_layers(layers: Layers, depth: int) -> frozenset[int]:
    """The numbers of these layers, negative ones counted from the top."""
    if isinstance(layers, str):
        return frozenset(range(depth + 1))
    numbers = set()
    for layer in layers:
        if not -depth - 1 <= layer <= depth:
            raise ModelError(f"The encoder has layers 0 to {depth} (or {-depth - 1} to -1). Got {layer} instead.")
        numbers.add(layer if layer >= 0 else depth + 1 + layer)
    return frozenset(numbers)

"""The published sizes as configs, from the papers' table `sizes`, and counts of their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polyseme.bundle import count_parameters
from polyseme.convert.elmo import SIZES as ELMO_SIZES
from polyseme.convert.families import FAMILIES
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError, nearest
from polyseme.papers.figures import tables


@dataclass(frozen=True)
class Size:
    """A published model: its family, shape and vocabulary, and its parameters by the paper."""

    family: str
    layers: int
    width: int
    heads: int
    inner: int
    vocabulary: int
    embedding: int | None
    parameters: float
    """As in the paper, rounded."""
    positions: int = 512
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further differences from the family's base config."""

    @property
    def config(self) -> TransformerConfig:
        """The whole config: the family's own settings with this shape."""
        base: TransformerConfig = FAMILIES[self.family].base()  # type: ignore[assignment]
        return base.replace(
            n_layers=self.layers,
            width=self.width,
            n_heads=self.heads,
            inner_width=self.inner,
            n_pieces=self.vocabulary,
            embedding_width=self.embedding,
            max_positions=self.positions,
            layer_map=None if base.layer_map is None else (0,) * self.layers,
            sets_in_group=1,
            **({} if base.decoder_layers is None else self._second_stack),
            **self.more,
        )

    @property
    def _second_stack(self) -> dict[str, Any]:
        """A decoder as deep and as wide as the encoder."""
        return {"decoder_layers": self.layers, "decoder_heads": None, "decoder_inner_width": None}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Outputs that the reference's bare model has besides the stack."""
        return ("pooled",) if "pooled" in FAMILIES[self.family].outputs else ()


def _sizes() -> dict[str, Size]:
    """The sizes of the table that name a family."""
    table = tables()["sizes"]
    shapes: dict[str, dict[str, Any]] = {}
    for figure in table.figures:
        shapes.setdefault(figure.system, {})[figure.metric] = figure.value
    return {
        name: Size(
            family=known["family"],
            layers=shapes[name]["layers"],
            width=shapes[name]["width"],
            heads=shapes[name]["heads"],
            inner=shapes[name]["inner width"],
            vocabulary=shapes[name]["vocabulary"],
            embedding=shapes[name].get("embedding width"),
            parameters=shapes[name]["parameters"],
            positions=shapes[name]["positions"],
            more=known.get("more", {}),
        )
        for name, known in table.systems.items()
        if "family" in known
    }


SIZES: Mapping[str, Size] = _sizes()


def get_size(name: str) -> Size:
    """A published size; an unknown name is refused with the nearest."""
    if name not in SIZES:
        raise ModelError(f"There is no published size {name!r}. {nearest(name, SIZES)}")
    return SIZES[name]


def counted_parameters() -> dict[str, int]:
    """The number of parameters of every size with a known architecture, counted without allocating them."""
    of_elmo = {name: count_parameters("elmo", config, []) for name, config in ELMO_SIZES.items()}
    return {name: count_parameters(size.family, size.config, size.outputs) for name, size in SIZES.items()} | of_elmo

"""The published sizes by name: a line each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from polyseme.convert.families import FAMILIES
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError, nearest


@dataclass(frozen=True)
class Size:
    """A published model: its family, shape and vocabulary, and the figure its paper prints."""

    family: str
    layers: int
    width: int
    heads: int
    inner: int
    vocabulary: int
    embedding: int | None
    paper: str
    """Parameters as the paper rounds them."""

    @property
    def config(self) -> TransformerConfig:
        """The whole config: the family's own settings with this shape."""
        small: TransformerConfig = FAMILIES[self.family].tiny()  # type: ignore[assignment]
        config: TransformerConfig = small.replace(
            n_layers=self.layers,
            width=self.width,
            n_heads=self.heads,
            inner_width=self.inner,
            n_pieces=self.vocabulary,
            embedding_width=self.embedding,
            max_positions=512,
            layer_map=None if small.layer_map is None else (0,) * self.layers,
            sets_in_group=1,
        )
        return config

    @property
    def outputs(self) -> tuple[str, ...]:
        """What the reference's bare model has beside the stack."""
        return ("pooled",) if "pooled" in FAMILIES[self.family].outputs else ()


SIZES: Mapping[str, Size] = {
    "bert-base": Size("bert", 12, 768, 12, 3072, 30522, None, "110M"),
    "bert-base-cased": Size("bert", 12, 768, 12, 3072, 28996, None, "110M"),
    "bert-large": Size("bert", 24, 1024, 16, 4096, 30522, None, "340M"),
    "bert-large-cased": Size("bert", 24, 1024, 16, 4096, 28996, None, "340M"),
    "spanbert-base": Size("bert", 12, 768, 12, 3072, 28996, None, "110M"),
    "spanbert-large": Size("bert", 24, 1024, 16, 4096, 28996, None, "340M"),
    "roberta-base": Size("roberta", 12, 768, 12, 3072, 50265, None, "125M"),
    "roberta-large": Size("roberta", 24, 1024, 16, 4096, 50265, None, "355M"),
    "xlm-r-base": Size("xlm-roberta", 12, 768, 12, 3072, 250002, None, "270M"),
    "xlm-r-large": Size("xlm-roberta", 24, 1024, 16, 4096, 250002, None, "550M"),
    "electra-small": Size("electra", 12, 256, 4, 1024, 30522, 128, "14M"),
    "electra-base": Size("electra", 12, 768, 12, 3072, 30522, None, "110M"),
    "electra-large": Size("electra", 24, 1024, 16, 4096, 30522, None, "335M"),
    "albert-base": Size("albert", 12, 768, 12, 3072, 30000, 128, "12M"),
    "albert-large": Size("albert", 24, 1024, 16, 4096, 30000, 128, "18M"),
    "albert-xlarge": Size("albert", 24, 2048, 16, 8192, 30000, 128, "60M"),
    "albert-xxlarge": Size("albert", 12, 4096, 64, 16384, 30000, 128, "235M"),
    "distilbert": Size("distilbert", 6, 768, 12, 3072, 30522, None, "66M"),
}


def size_named(name: str) -> Size:
    """A published size; an unknown name is refused with the nearest."""
    if name not in SIZES:
        raise ModelError(f"There is no published size {name!r}. {nearest(name, SIZES)}")
    return SIZES[name]

"""The published sizes by name: one line each; what tests and benchmarks compare with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    positions: int = 512
    more: Mapping[str, Any] = field(default_factory=dict)
    """What else is not as in the family's base config."""

    @property
    def config(self) -> TransformerConfig:
        """The whole config: the family's own settings with this shape."""
        base: TransformerConfig = FAMILIES[self.family].base()  # type: ignore[assignment]
        config: TransformerConfig = base.replace(
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
        return config

    @property
    def _second_stack(self) -> dict[str, Any]:
        """A decoder as deep and as wide as the encoder."""
        return {"decoder_layers": self.layers, "decoder_heads": None, "decoder_inner_width": None}

    @property
    def outputs(self) -> tuple[str, ...]:
        """What the reference's bare model has beside the stack."""
        return ("pooled",) if "pooled" in FAMILIES[self.family].outputs else ()


def _t5(layers: int, width: int, heads: int, inner: int, paper: str, head: int = 64, *, gated: bool = False) -> Size:
    """Version 1.1 is gated, does not scale its output, and gives it a table of its own."""
    more = {
        "head_width": head,
        "gated": gated,
        "activation": "gelu_new" if gated else "relu",
        "output_scale": 1.0 if gated else width**-0.5,
    }
    return Size("t5", layers, width, heads, inner, 32128, None, paper, more=more)


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
    "modernbert-base": Size("modernbert", 22, 768, 12, 1152, 50368, None, "149M", 8192),
    "modernbert-large": Size("modernbert", 28, 1024, 16, 2624, 50368, None, "395M", 8192),
    "gpt": Size("openai-gpt", 12, 768, 12, 3072, 40478, None, "117M"),
    "gpt2": Size("gpt2", 12, 768, 12, 3072, 50257, None, "117M", 1024),
    "gpt2-medium": Size("gpt2", 24, 1024, 16, 4096, 50257, None, "345M", 1024),
    "gpt2-large": Size("gpt2", 36, 1280, 20, 5120, 50257, None, "762M", 1024),
    "gpt2-xl": Size("gpt2", 48, 1600, 25, 6400, 50257, None, "1542M", 1024),
    "xlnet-base": Size("xlnet", 12, 768, 12, 3072, 32000, None, "110M"),
    "xlnet-large": Size("xlnet", 24, 1024, 16, 4096, 32000, None, "340M"),
    "bart-base": Size("bart", 6, 768, 12, 3072, 50265, None, "140M", 1024),
    "bart-large": Size("bart", 12, 1024, 16, 4096, 50265, None, "400M", 1024),
    "t5-small": _t5(6, 512, 8, 2048, "60M"),
    "t5-base": _t5(12, 768, 12, 3072, "220M"),
    "t5-large": _t5(24, 1024, 16, 4096, "770M"),
    "t5-3b": _t5(24, 1024, 32, 16384, "3B", 128),
    "t5-11b": _t5(24, 1024, 128, 65536, "11B", 128),
    "t5-v1.1-small": _t5(8, 512, 6, 1024, "77M", gated=True),
    "t5-v1.1-base": _t5(12, 768, 12, 2048, "250M", gated=True),
    "t5-v1.1-large": _t5(24, 1024, 16, 2816, "800M", gated=True),
    "t5-v1.1-xl": _t5(24, 2048, 32, 5120, "3B", gated=True),
    "t5-v1.1-xxl": _t5(24, 4096, 64, 10240, "11B", gated=True),
}


def size_named(name: str) -> Size:
    """A published size; an unknown name is refused with the nearest."""
    if name not in SIZES:
        raise ModelError(f"There is no published size {name!r}. {nearest(name, SIZES)}")
    return SIZES[name]

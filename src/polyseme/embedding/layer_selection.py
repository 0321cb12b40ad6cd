"""Which layers make a vector: `-1`, `all`, `sum:a:b`, `mean:a:b`, `concat:a:b`, `mix:last3:0.2,0.3,0.5`, `mix`.

Layers are numbered alike everywhere: 0 is the token layer, −1 the top. Both ends of a range count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from polyseme.config import EncoderConfig
from polyseme.errors import OptionError, nearest

Mode = Literal["one", "all", "sum", "mean", "concat", "mix"]
MODES = ("all", "sum", "mean", "concat", "mix")
FORMS = ("-1", "0", "all", "sum:a:b", "mean:a:b", "concat:a:b", "mix", "mix:lastN:w1,…,wN")


@dataclass(frozen=True)
class LayerChoice:
    """The layers to take, lowest first, and how they become one vector."""

    mode: Mode
    layers: tuple[int, ...]
    weights: tuple[float, ...] = ()

    def width(self, config: EncoderConfig) -> int:
        """How wide the vectors are (each layer's, where all are kept apart)."""
        widths = [config.widths[layer] for layer in self.layers]
        return sum(widths) if self.mode == "concat" else widths[0]

    def side_by_side(self, config: EncoderConfig) -> list[int]:
        """The widths of layers that are concatenated in a vector; none where it is of one layer."""
        return [config.widths[layer] for layer in self.layers] if self.mode == "concat" else []

    def combine(self, states: Mapping[int, Tensor]) -> Tensor:
        """[N, D] a layer → [N, D], or [N, layers, D] where all are kept apart."""
        chosen = [states[layer] for layer in self.layers]
        if self.mode == "one":
            return chosen[0]
        if self.mode == "concat":
            return torch.cat(chosen, dim=-1)
        if self.mode == "all":
            return torch.stack(chosen, dim=1)
        weights = self.weights or (1.0 if self.mode == "sum" else 1.0 / len(chosen),) * len(chosen)
        combined = chosen[0] * weights[0]
        for state, weight in zip(chosen[1:], weights[1:], strict=True):
            combined = combined + state * weight
        return combined


def is_layer(text: str | int) -> bool:
    """Whether something is written as a layer is, rather than as the name of a model.

    >>> is_layer(0), is_layer("mean:-4:-1"), is_layer("glove.txt"), is_layer("models/mean")
    (True, True, False, False)
    """
    spec = str(text).strip()
    return _is_int(spec) or spec.partition(":")[0] in MODES


def parse_layers(spec: str | int, config: EncoderConfig) -> LayerChoice:
    """What a user's `--layer` means for an encoder. An unknown form is refused with the nearest one."""
    spec = str(spec).strip()
    depth = config.depth
    head, _, rest = spec.partition(":")
    if _is_int(spec):
        return LayerChoice("one", (_number(int(spec), depth, spec),))
    if spec == "all":
        return _same_width(LayerChoice("all", tuple(range(depth + 1))), config, spec)
    if head in ("sum", "mean", "concat"):
        choice = LayerChoice(head, _range(rest, depth, spec))  # type: ignore[arg-type]
        return choice if head == "concat" else _same_width(choice, config, spec)
    if spec == "mix":
        return _same_width(LayerChoice("mix", tuple(range(depth + 1))), config, spec)
    if head == "mix":
        return _same_width(_mix(rest, depth, spec), config, spec)
    meant = "mean" if head in ("avg", "average") else "concat" if head in ("cat", "range") or _is_int(head) else head
    raise OptionError(f"There is no layer {spec!r}. {nearest(meant, MODES)} {_forms()}")


def _mix(rest: str, depth: int, spec: str) -> LayerChoice:
    which, _, listed = rest.partition(":")
    try:
        weights = tuple(float(weight) for weight in listed.split(","))
    except ValueError:
        weights = (math.nan,)
    if not all(map(math.isfinite, weights)):
        raise OptionError(f"The weights of layer {spec!r} must be numbers with commas between them. {_forms()}")
    if not any(weights):
        raise OptionError(f"The weights of layer {spec!r} are all 0, and so would all vectors be. {_forms()}")
    if not which.startswith("last") or not _is_int(which[4:]):
        raise OptionError(f"A mix names its layers as last1, last2, …. Got {which!r} in {spec!r} instead. {_forms()}")
    count = int(which[4:])
    if not 1 <= count <= depth + 1:
        raise OptionError(f"The encoder has {depth + 1} layers, counting layer 0. Got {which!r} in {spec!r} instead.")
    if len(weights) != count:
        raise OptionError(f"Layer {spec!r} mixes {count} layers and gives {len(weights)} weights.")
    return LayerChoice("mix", tuple(range(depth + 1 - count, depth + 1)), weights)


def _range(rest: str, depth: int, spec: str) -> tuple[int, ...]:
    ends = rest.split(":")
    if len(ends) != 2 or not all(_is_int(end) for end in ends):
        raise OptionError(f"Layer {spec!r} must name two ends, as in {spec.partition(':')[0]}:-4:-1. {_forms()}")
    first, last = (_number(int(end), depth, spec) for end in ends)
    if first > last:
        raise OptionError(f"Layer {spec!r} runs from {first} down to {last}; name the lower layer first.")
    return tuple(range(first, last + 1))


def _number(layer: int, depth: int, spec: str) -> int:
    if not -depth - 1 <= layer <= depth:
        raise OptionError(f"Layer {spec!r} is not there: the encoder has layers 0 to {depth}, or {-depth - 1} to -1.")
    return layer if layer >= 0 else depth + 1 + layer


def _same_width(choice: LayerChoice, config: EncoderConfig, spec: str) -> LayerChoice:
    if len({config.widths[layer] for layer in choice.layers}) > 1:
        raise OptionError(f"Layer {spec!r} needs layers of one width, and this encoder's differ; use concat:a:b.")
    return choice


def _is_int(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _forms() -> str:
    return f"A layer is written as one of: {', '.join(FORMS)}."

"""How a family's config.json is named: one mapping, read in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polyseme.errors import ModelError, nearest

ACTIVATION_NAMES: Mapping[str, str] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "quick_gelu": "gelu_sigmoid",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""Their name → ours. Of several that compute the same, the first is written."""

MAY_BE_NONE = ("n_layers", "n_segments")
"""The sizes, by our names, that may be 0."""


@dataclass(frozen=True)
class Settings:
    """`names` are ours → theirs; `defaults` are theirs, for what a file leaves out; `fixed` are ours, the same in all.

    Settings are whole numbers, but for the activation and those whose default has a fraction.
    """

    names: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Our fields from a config.json."""
        ours = dict(self.fixed)
        for our_name, their_name in self.names.items():
            value = theirs.get(their_name, self.defaults.get(their_name))
            if value is None:
                raise ModelError(f"{where} does not say {their_name!r}, which the model cannot be built without.")
            if our_name == "activation":
                ours[our_name] = _activation(value, where)
            elif isinstance(self.defaults.get(their_name), float):
                ours[our_name] = _fraction(value, their_name, where)
            else:
                ours[our_name] = whole(value, their_name, where, least=0 if our_name in MAY_BE_NONE else 1)
        return ours

    def write(self, ours: Any) -> dict[str, Any]:
        """The part of a config.json that follows from our config."""
        written = {their_name: getattr(ours, our_name) for our_name, their_name in self.names.items()}
        if "activation" in self.names:
            name = next(theirs for theirs, our in ACTIVATION_NAMES.items() if our == ours.activation)
            written[self.names["activation"]] = name
        return written


def whole(value: Any, name: str, where: str, *, least: int = 1) -> int:
    """A size that a config.json gives under `name`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ModelError(f"In {where}, {name!r} must be a whole number from {least} on. Got {value!r} instead.")
    return value


def _fraction(value: Any, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ModelError(f"In {where}, {name!r} must be a number from 0 to 1. Got {value!r} instead.")
    return value


def _activation(name: Any, where: str) -> str:
    if not isinstance(name, str) or name not in ACTIVATION_NAMES:
        raise ModelError(f"{where} names an unknown activation {name!r}. {nearest(str(name), ACTIVATION_NAMES)}")
    return ACTIVATION_NAMES[name]

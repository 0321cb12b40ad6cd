"""A model's config.json: how it is read, and how a family's settings are named in it, in both directions."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyseme.config import Config
from polyseme.errors import ModelError, nearest
from polyseme.json_reading import load_json

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

MOST = 2**31 - 1
"""The largest size or id that a config may name; tensors have no more rows."""
MOST_LAYERS = 10_000
"""Of a stack. Each is built; the deepest published model has 1,000."""
REPEATED = ("layer", "group", "highway")
"""In the names of numbers of parts that are built one by one."""
FIRST_WEIGHTS = "init_std"
"""By our name, the one setting with a fraction that may exceed 1 (a factor in T5): weights in files do not need it."""
MAY_BE_NONE = ("n_layers", "n_segments")
"""The sizes, by our names, that may be 0."""


def model_type(theirs: Mapping[str, Any]) -> Any:
    """What a config says it is. The first years' name no type, and were all BERT's (SpanBERT's is one)."""
    untyped_bert = "model_type" not in theirs and not theirs.get("architectures") and "type_vocab_size" in theirs
    return "bert" if untyped_bert else theirs.get("model_type")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of a model folder."""
    try:
        content: dict[str, Any] = load_json(path, kind=dict)
    except (OSError, ValueError) as error:
        raise ModelError(f"The file {path} cannot be read as JSON: {error}. Is the model folder whole?") from None
    return content


@dataclass(frozen=True)
class Settings:
    """`names` are ours → theirs; `defaults` are theirs, for what a file leaves out; `fixed` are ours, the same in all.

    `usual` are theirs, which all published models set alike; a file that sets another value is refused. Settings are
    whole numbers, but for the activation and those whose default has a fraction.
    """

    names: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    usual: Mapping[str, Any] = field(default_factory=dict)

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Our fields from a config.json."""
        _refuse_unknown_positions(theirs, where)
        for name, value in self.usual.items():
            if theirs.get(name, value) != value:
                raise ModelError(
                    f"{where} sets {name!r} to {theirs[name]!r}; all published models have {value!r}, and polyseme "
                    "knows no other."
                )
        ours = dict(self.fixed)
        for our_name, their_name in self.names.items():
            value = theirs.get(their_name, self.defaults.get(their_name))
            if value is None:
                raise ModelError(f"{where} does not say {their_name!r}, which the model cannot be built without.")
            if our_name == "activation":
                ours[our_name] = _activation(value, where)
            elif isinstance(self.defaults.get(their_name), float):
                ours[our_name] = _fraction(value, their_name, where, most=None if our_name == FIRST_WEIGHTS else 1)
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
        raise ModelError(
            f"In {where}, {name!r} must be a whole number from {least} on. Got {shorten_value(value)} instead."
        )
    _refuse_large(value, name, where)
    return value


def _refuse_large(value: Any, name: str, where: str) -> None:
    """Refuse a size, by its name, for which building the model would not end."""
    most = MOST_LAYERS if any(part in name.lower() for part in REPEATED) else MOST
    if isinstance(value, int) and abs(value) > most:
        raise ModelError(f"In {where}, {name!r} must be at most {most:,}. Got {shorten_value(value)} instead.")


def shorten_value(value: Any) -> str:
    """A value as a message shows it."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}…"


def flag(theirs: Mapping[str, Any], name: str, where: str, *, default: bool = False) -> bool:
    """A switch that a config.json may have under `name`."""
    value = theirs.get(name, default)
    if not isinstance(value, bool):
        raise ModelError(f"In {where}, {name!r} must be true or false. Got {value!r} instead.")
    return value


def _fraction(value: Any, name: str, where: str, *, most: int | None) -> float:
    largest = sys.float_info.max if most is None else most
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= largest:
        bounds = "from 0 on" if most is None else f"from 0 to {most}"
        raise ModelError(f"In {where}, {name!r} must be a number {bounds}. Got {shorten_value(value)} instead.")
    return value


def _activation(name: Any, where: str) -> str:
    if not isinstance(name, str) or name not in ACTIVATION_NAMES:
        raise ModelError(f"{where} names an unknown activation {name!r}. {nearest(str(name), ACTIVATION_NAMES)}")
    return ACTIVATION_NAMES[name]


def _refuse_unknown_positions(theirs: Mapping[str, Any], where: str) -> None:
    """Refuse what no published checkpoint of the line uses, instead of computing something else."""
    kind = theirs.get("position_embedding_type", "absolute")
    if kind not in (None, "absolute"):
        raise ModelError(f"{where} asks for positions of kind {kind!r}; polyseme knows only 'absolute' here.")
    for option in ("is_decoder", "add_cross_attention"):
        if theirs.get(option):
            raise ModelError(f"{where} sets {option!r}: a decoder of this family is not among what polyseme loads.")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object as a file of a model folder."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_native_config(kind: type[Config], theirs: Mapping[str, Any], where: str) -> Any:
    """A config that config.json holds under our names, among other things."""
    fields = {each.name: each for each in dataclasses.fields(kind)}
    settings = {name: value for name, value in theirs.items() if name in fields}
    for name, each in fields.items():
        if each.default is dataclasses.MISSING and name not in settings:
            raise ModelError(f"{where} does not say {name!r}, which the model cannot be built without.")
    for name, value in settings.items():
        for each in value if isinstance(value, list) else [value]:
            _refuse_large(each, name, where)
    return kind.from_json(settings)


def write_own(config: Config) -> dict[str, Any]:
    """A config under our names, as `read_native_config` reads it."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in config.to_json().items()}

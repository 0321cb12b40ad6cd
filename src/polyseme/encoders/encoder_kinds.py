"""The kinds of encoder: which config goes with which class. One explicit table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyseme.config import EncoderConfig
from polyseme.encoders.encoder import Encoder
from polyseme.errors import ModelError, nearest
from polyseme.extras import LateTable, later

Kind = tuple[type[EncoderConfig], Callable[[Any], Encoder]]


def _load(home: tuple[str, str, str, str]) -> Kind:
    config_file, config, file, encoder = home
    kind: Kind = (
        getattr(later(f"polyseme.encoders.{config_file}"), config),
        getattr(later(f"polyseme.encoders.{file}"), encoder),
    )
    return kind


KINDS: Mapping[str, Kind] = LateTable(
    {
        "transformer": ("transformer_config", "TransformerConfig", "transformer", "Transformer"),
        "recurrent": ("recurrent_config", "RecurrentConfig", "recurrent", "Recurrent"),
        "recurrent-decoder": (
            *("recurrent_config", "RecurrentDecoderConfig"),
            *("recurrent_decoder", "RecurrentDecoder"),
        ),
        "two-way": ("recurrent_config", "TwoWayConfig", "recurrent", "TwoWay"),
        "fixed-context": ("fixed_context", "FixedContextConfig", "fixed_context", "FixedContext"),
        "static": ("static", "StaticConfig", "static", "Static"),
    },
    _load,
)
"""Kind → the files of its config and its class in this folder, which are loaded on first use."""


def build_encoder(config: EncoderConfig) -> Encoder:
    """The encoder a config describes, with freshly drawn weights."""
    return _kind(config.kind)[1](config)


def config_to_json(config: EncoderConfig) -> dict[str, Any]:
    """A config with its kind, as `config_from_json` reads it."""
    return {"kind": config.kind, **config.to_json()}


def config_from_json(settings: Mapping[str, Any]) -> EncoderConfig:
    """The config of the kind that `settings` name."""
    settings = dict(settings)
    return _kind(str(settings.pop("kind", "")))[0].from_json(settings)


def _kind(name: str) -> Kind:
    if name not in KINDS:
        raise ModelError(f"There is no kind of encoder called {name!r}. {nearest(name, KINDS)}")
    return KINDS[name]

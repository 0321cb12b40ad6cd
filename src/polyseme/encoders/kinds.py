"""The kinds of encoder: which config goes with which class. One explicit table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyseme.config import EncoderConfig
from polyseme.encoders.base import Encoder
from polyseme.encoders.recurrent import Recurrent
from polyseme.encoders.recurrent_config import RecurrentConfig, TwoWayConfig
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.encoders.two_way import TwoWay
from polyseme.errors import ModelError, nearest

KINDS: Mapping[str, tuple[type[EncoderConfig], Callable[[Any], Encoder]]] = {
    "transformer": (TransformerConfig, Transformer),
    "recurrent": (RecurrentConfig, Recurrent),
    "two-way": (TwoWayConfig, TwoWay),
}


def build_encoder(config: EncoderConfig) -> Encoder:
    """The encoder a config describes, with freshly drawn weights."""
    return _kind(config.kind)[1](config)


def config_to_json(config: EncoderConfig) -> dict[str, Any]:
    """A config with its kind, as `config_from_json` reads it."""
    return {"kind": config.kind, **config.to_json()}


def config_from_json(settings: Mapping[str, Any]) -> EncoderConfig:
    """The config of the kind that `settings` name."""
    settings = dict(settings)
    config: EncoderConfig = _kind(str(settings.pop("kind", "")))[0].from_json(settings)
    return config


def _kind(name: str) -> tuple[type[EncoderConfig], Callable[[Any], Encoder]]:
    if name not in KINDS:
        raise ModelError(f"There is no kind of encoder called {name!r}. {nearest(name, KINDS)}")
    return KINDS[name]

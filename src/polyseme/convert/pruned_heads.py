"""Pruned heads in config.json: `pruned_heads` by layer, as `transformers` wrote and read them before version 5.

    "pruned_heads": {"0": [2, 5], "3": [0]}

A second stack has its own beside them, `pruned_decoder_heads`, and those of its attention to the source are
`pruned_cross_heads`. Layers that share their weights are one entry, by the number of the set of weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyseme.config import EncoderConfig
from polyseme.encoders.transformer_config import KeptHeads, TransformerConfig
from polyseme.errors import ModelError

NAMES = {
    "pruned_heads": "heads_left",
    "pruned_cross_heads": "cross_heads_left",
    "pruned_decoder_heads": "decoder_heads_left",
}
"""Their name → the field of our config."""


def read_pruned(config: EncoderConfig, theirs: Mapping[str, Any], where: str) -> EncoderConfig:
    """The config, with the heads that a config.json says are removed."""
    pruned = {name: theirs[name] for name in NAMES if theirs.get(name)}
    if not pruned:
        return config
    if not isinstance(config, TransformerConfig):
        raise ModelError(f"{where} names pruned heads, and a model of kind {config.kind!r} has no attention heads.")
    changes = {
        NAMES[name]: _remaining_heads(value, _stack(config, name), name, where) for name, value in pruned.items()
    }
    return config.replace(**changes)


def write_pruned(config: EncoderConfig) -> dict[str, Any]:
    """The part of a config.json that says which heads are removed; nothing where none is."""
    if not isinstance(config, TransformerConfig):
        return {}
    return {
        name: removed
        for name, ours in NAMES.items()
        if (removed := _removed_heads(config, name, getattr(config, ours)))
    }


def unpruned(config: EncoderConfig) -> EncoderConfig:
    """The same config with all heads."""
    if not isinstance(config, TransformerConfig):
        return config
    return config.replace(**dict.fromkeys(NAMES.values()))


def _stack(config: TransformerConfig, name: str) -> TransformerConfig:
    """The config of the stack that a name is about."""
    second = config.decoder
    return config if name == "pruned_heads" or second is None else second


def _removed_heads(config: TransformerConfig, name: str, left: KeptHeads | None) -> dict[str, list[int]]:
    everything = range(_stack(config, name).n_heads)
    removed = [[head for head in everything if head not in heads] for heads in left or ()]
    return {str(number): heads for number, heads in enumerate(removed) if heads}


def _remaining_heads(removed: Any, config: TransformerConfig, name: str, where: str) -> KeptHeads:
    layers, heads = range(config.n_sets), range(config.n_heads)
    valid = isinstance(removed, Mapping) and all(
        str(number).isdecimal() and int(number) in layers and isinstance(each, list) and all(h in heads for h in each)
        for number, each in removed.items()
    )
    if not valid:
        raise ModelError(
            f"In {where}, {name!r} must say of layers which heads are removed, by numbers from 0 on: "
            f'{{"0": [2, 5]}}. The model has {config.n_sets} layers of {config.n_heads} heads. Got {removed!r} instead.'
        )
    removed = {int(number): each for number, each in removed.items()}
    return tuple(tuple(head for head in heads if head not in removed.get(number, ())) for number in layers)

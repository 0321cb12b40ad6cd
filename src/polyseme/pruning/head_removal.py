"""Attention heads taken out of a model: its matrices become smaller, in memory and in its folder.

A pruned model equals the whole one with the outputs of these heads set to zero. Heads keep the numbers that they had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, cast

from polyseme.bundle import Bundle
from polyseme.convert.pruned_heads import unpruned
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_config import KeptHeads, TransformerConfig
from polyseme.encoders.transformer_layer import TransformerLayer
from polyseme.errors import ModelError
from polyseme.parts.attention import Attention

Part = Literal["encoder", "decoder", "cross"]
FIELDS: Mapping[Part, str] = {
    "encoder": "heads_left",
    "decoder": "decoder_heads_left",
    "cross": "cross_heads_left",
}
"""Part of a model → the field of its config that says which heads are left."""


class AttentionPlace(NamedTuple):
    """Which attention of a model."""

    part: Part
    """The (first) stack, the second, or the second's attention to its source."""
    layer: int
    """Counted from 0; of layers that share their weights, the number of the set."""

    def __str__(self) -> str:
        return f"layer {self.layer + 1}" if self.part == "encoder" else f"{self.part} layer {self.layer + 1}"


class HeadPlace(NamedTuple):
    """One head of a model."""

    at: AttentionPlace
    head: int


Attentions = Mapping[AttentionPlace, Attention]


def attentions_of(bundle: Bundle, parts: Iterable[Part] = ("encoder", "decoder", "cross")) -> Attentions:
    """Every attention of these parts; an error where the model has none."""
    if not isinstance(bundle.encoder, Transformer) or not len(bundle.encoder.layers):
        raise ModelError(
            f"A model of the family {bundle.family.name} has no attention heads, so there is nothing to prune. Take a "
            "Transformer."
        )
    stacks = {"encoder": bundle.encoder, "decoder": bundle.decoder, "cross": bundle.decoder}
    attentions: dict[AttentionPlace, Attention] = {}
    for part in parts:
        for number, layer in enumerate(cast(Transformer, stacks[part]).layers if stacks[part] is not None else ()):
            attention = cast(TransformerLayer, layer).cross if part == "cross" else layer.attention
            attentions[AttentionPlace(part, number)] = cast(Attention, attention)
    return attentions


def heads_of(attention: Attention) -> Sequence[int]:
    """The heads that an attention has now, by number."""
    return attention.head_numbers


def without_heads(bundle: Bundle, places: Iterable[HeadPlace]) -> Bundle:
    """A copy of a model without these heads."""
    pruned = bundle.copied()
    attentions = attentions_of(pruned)
    removed: dict[AttentionPlace, set[int]] = {}
    for place in places:
        if place.at not in attentions or place.head not in heads_of(attentions[place.at]):
            raise ModelError(f"There is no head {place.head} in {place.at}.")
        removed.setdefault(place.at, set()).add(place.head)
    for at, heads in removed.items():
        attentions[at].keep([head for head in heads_of(attentions[at]) if head not in heads])
    changes: dict[str, KeptHeads] = {}
    for part, field in FIELDS.items():
        of_part = [attention for at, attention in attentions.items() if at.part == part]
        if any(attention.heads is not None for attention in of_part):
            changes[field] = tuple(tuple(heads_of(attention)) for attention in of_part)
    _set_config(pruned, cast(TransformerConfig, pruned.config).replace(**changes))
    return pruned


def with_all_heads(bundle: Bundle) -> Bundle:
    """A copy of a pruned model in the shape that it had, with zeros for the heads that are missing.

    It computes the same, and libraries open it that know no pruned models.
    """
    filled = bundle.copied()
    config = cast(TransformerConfig, unpruned(bundle.config))
    for at, attention in attentions_of(filled).items():
        stack = config if at.part == "encoder" else cast(TransformerConfig, config.decoder)
        attention.fill(stack.n_heads)
    _set_config(filled, config)
    return filled


def is_pruned(bundle: Bundle) -> bool:
    """Whether heads are missing from a model."""
    return unpruned(bundle.config) != bundle.config


def _set_config(bundle: Bundle, config: TransformerConfig) -> None:
    bundle.encoder.config = config
    if bundle.decoder is not None and config.decoder is not None:
        bundle.decoder.config = config.decoder

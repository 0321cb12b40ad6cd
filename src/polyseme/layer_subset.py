"""Make a smaller model from some layers of a larger one, for instance to initialize a student."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyseme.bundle import Bundle, named_tensors, new_bundle
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import OptionError
from polyseme.parts.initialization import skip_initialization
from polyseme.parts.masks import masks_by_layer, named_together

LAYER = "encoder.layers."
"""How the names of a layer's weights begin."""


def spread_layers(depth: int, n_layers: int) -> tuple[int, ...]:
    """Which of `depth` layers, counted from 1, a model of `n_layers` begins with: the first, the last, evenly between.

    >>> spread_layers(12, 6)  # as DistilBERT took those of BERT
    (1, 3, 5, 8, 10, 12)
    >>> spread_layers(6, 3), spread_layers(5, 2), spread_layers(4, 1)
    ((1, 4, 6), (1, 5), (1,))
    """
    gaps = max(n_layers - 1, 1)
    # A half is rounded up: `round` would take the even one.
    return tuple(1 + (2 * number * (depth - 1) + gaps) // (2 * gaps) for number in range(n_layers))


def check_layers(bundle: Bundle, n_layers: int, name: str) -> None:
    """Refuse a number of layers that cannot be taken from a model."""
    depth = bundle.config.depth
    if not isinstance(bundle.config, TransformerConfig) or bundle.decoder is not None:
        kind = "two stacks" if bundle.decoder is not None else f"an encoder of kind {bundle.config.kind!r}"
        raise OptionError(
            f"Layers are taken from a Transformer of one stack, and {name} has {kind}. Name the student instead: its "
            "folder (--student), or a recipe (--recipe)."
        )
    if not 1 <= n_layers <= depth:
        larger = "; a student has no more layers than its teacher" if n_layers > depth else ""
        raise OptionError(f"{name} has {depth} layers, of which 1 to {depth} can be taken{larger}. Got {n_layers}.")


def with_layers(bundle: Bundle, layers: Sequence[int], name: str = "the model") -> Bundle:
    """A bundle of the same family with these layers alone, counted from 1, and weights of its own."""
    check_layers(bundle, len(layers), name)
    config: Any = bundle.config
    taken = [number - 1 for number in layers]
    sets = [config.weight_sets[number] for number in taken]
    weight_sets = sorted(set(sets))
    changes: dict[str, Any] = {"n_layers": len(layers)}
    if config.layer_map is not None:
        changes["layer_map"] = tuple(weight_sets.index(each) for each in sets)
    else:
        weight_sets = sets
    if config.heads_left is not None:
        changes["heads_left"] = tuple(config.heads_left[each] for each in weight_sets)
    masks = [config.layer_masks[number] for number in taken]
    fit = len(config.masks) == 1 and masks_by_layer(config.masks, len(masks)) == tuple(masks)
    changes["masks"] = config.masks if fit and len(set(masks)) > 1 else named_together(masks)
    with skip_initialization():
        small = new_bundle(bundle.family, config.replace(**changes), bundle.outputs, bundle.tokenizer, tied=bundle.tied)
    theirs = named_tensors(bundle)
    small.to(next(bundle.parameters()).dtype).to_empty(device=bundle.device)
    small.tie()
    for mine_name, mine in named_tensors(small).items():
        mine.data.copy_(theirs[_their_name(mine_name, weight_sets)])
    small.foreign = dict(bundle.foreign)
    return small.eval()


def _their_name(name: str, weight_sets: Sequence[int]) -> str:
    """The name that a weight has in the larger model."""
    if not name.startswith(LAYER):
        return name
    number, _, rest = name.removeprefix(LAYER).partition(".")
    return f"{LAYER}{weight_sets[int(number)]}.{rest}"

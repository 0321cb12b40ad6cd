"""The slots of the Transformer: what does not fit together is refused; what the config says of the encoder is so."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from conformance.cases import BUCKETS, TRANSFORMERS
from polyseme.encoders.transformer import Transformer
from polyseme.errors import ModelError

BERT = TRANSFORMERS["bert"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 0}, "'width' of a Transformer must be at least 1. Got 0"),
        ({"n_heads": 0}, "'n_heads' of a Transformer must be at least 1. Got 0"),
        ({"n_heads": 5}, "width of 32 cannot be divided among 5 heads"),
        ({"activation": "gelu_knew"}, "'gelu_knew'. Did you mean 'gelu_new'"),
        ({"max_positions": None}, "Learned positions need 'max_positions'"),
        ({"positions": "relative", "memory": "cache"}, "Relative positions go with a memory of segments"),
        ({"layer_map": (0, 0)}, "'layer_map' must name 3 sets of weights. Got 2"),
        ({"sets_in_group": 2}, "in groups of 2"),
        ({"sets_in_group": 0}, "in groups of 0"),
        ({"masks": ("causal", "all")}, "'masks' must be one or 3. Got 2"),
        ({"masks": ("behind",)}, "all, causal or band:WIDTH. Got 'behind'"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as error:
        BERT.replace(**changes)
    assert message in str(error.value)


def test_heads_of_their_own_width_need_not_divide() -> None:
    assert Transformer(BERT.replace(n_heads=5, head_width=3)).layers[0].attention.project.weight.shape == (45, 32)


def test_directions() -> None:
    other = {"causal": "causal", "openai-gpt": "causal", "gpt2": "causal", "any order": "any-order"}
    other["xlnet"] = "any-order"
    for name, config in TRANSFORMERS.items():
        assert config.direction == other.get(name, "both"), name
    assert BERT.replace(masks=("causal", "all", "causal")).direction == "both"
    assert BERT.replace(n_layers=0).direction == "none"


CONFIGS = {**TRANSFORMERS, "decoder": BUCKETS.replace(masks=("causal",), cross=True, memory="cache")}


@pytest.mark.parametrize("name", CONFIGS)
def test_matrix_weights_are_those_each_piece_meets(name: str) -> None:
    """Counted in the encoder itself; a set of weights that several layers share is met by each of them."""
    config = CONFIGS[name]
    encoder = Transformer(config)
    below = [encoder.embeddings.map] if isinstance(encoder.embeddings.map, nn.Linear) else []
    met = list(below)
    for number in config.weight_sets:
        layer = encoder.layers[number]
        met += [
            module
            for where, module in layer.named_modules()
            if isinstance(module, nn.Linear) and "relative" not in where  # the distances' map meets no piece
        ]
    assert config.matrix_weights == sum(linear.weight.numel() for linear in met)

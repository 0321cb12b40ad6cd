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
        (
            {"masks": ("causal", "all")},
            "'masks' must be one, 3, or as many as divide 3 layers, and repeat. Got 2",
        ),
        ({"head_width": 0}, "'head_width' of a Transformer must be at least 1. Got 0"),
        ({"inner_dropout_rate": 2.0}, "'inner_dropout_rate' must be from 0 to 1. Got 2.0"),
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


CLUSTERS = BUCKETS.replace(adaptive=True, cutoffs=(20, 60), narrowing=2)
CONFIGS = {
    **TRANSFORMERS,
    "decoder": BUCKETS.replace(masks=("causal",), cross=True, memory="cache"),
    "clusters": CLUSTERS,
    "clusters of one width": CLUSTERS.replace(narrowing=1),
    "clusters of another width": CLUSTERS.replace(narrowing=1, embedding_width=12),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_matrix_weights_are_those_each_piece_meets(name: str) -> None:
    """Counted in the encoder itself; a set of weights that several layers share is met by each of them."""
    config = CONFIGS[name]
    encoder = Transformer(config)
    met = [module for module in encoder.embeddings.modules() if isinstance(module, nn.Linear)]
    for number in config.weight_sets:
        layer = encoder.layers[number]
        met += [
            module
            for where, module in layer.named_modules()
            if isinstance(module, nn.Linear) and "relative" not in where  # the distances' map meets no piece
        ]
    assert config.matrix_weights == sum(linear.weight.numel() for linear in met)


def test_a_second_stack_is_the_first_but_for_what_is_said() -> None:
    config = BUCKETS.replace(decoder_layers=5, decoder_heads=2)
    second = config.decoder
    assert second is not None
    assert (second.n_layers, second.n_heads, second.inner_width) == (5, 2, BUCKETS.inner_width)
    assert (second.direction, second.cross, second.memory) == ("causal", True, "cache")
    assert second.decoder is None
    assert BUCKETS.decoder is None
    changed = {"n_layers", "n_heads", "masks", "cross", "memory"}
    for name, value in second.to_json().items():
        assert name in changed or value == BUCKETS.to_json()[name], name


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cutoffs": (60, 20)}, r"'cutoffs' must rise.*Got \[60, 20\]"),
        ({"cutoffs": (0, 20)}, "from at least 1"),
        ({"cutoffs": (20, 99)}, "below the 99 pieces"),
        ({"narrowing": 6}, "32 wide cannot grow 6 times narrower 2 times"),
        ({"narrowing": 0}, "cannot grow 0 times narrower"),
    ],
)
def test_clusters_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        CLUSTERS.replace(**changes)

"""The published sizes have exactly the parameters of the reference's bare model classes, counted without allocating."""

from __future__ import annotations

import pytest
import torch

from polyseme.bundle import count_parameters
from polyseme.convert.families import FAMILIES
from polyseme.errors import ModelError
from polyseme.recipes.published_sizes import SIZES, get_size
from references import reference_class


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if getattr(size.config, "n_layers", 0) >= 24 else ())
        for name, size in SIZES.items()
    ],
)
def test_parameter_count_is_the_references(name: str) -> None:
    size = SIZES[name]
    family = FAMILIES[size.family]
    bare = reference_class(family, family.architectures[-1][0])
    with torch.device("meta"):
        reference = bare(bare.config_class(**family.write_config(size.config)))
    expected = sum(parameter.numel() for parameter in reference.parameters())
    assert count_parameters(size.family, size.config, size.outputs) == expected


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("bert-base", 109_482_240),
        ("roberta-base", 124_645_632),
        ("albert-base", 11_683_584),
        ("distilbert", 66_362_880),
        ("gpt", 116_534_784),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_parameter_count_is_the_published_one(name: str, count: int) -> None:
    size = SIZES[name]
    assert count_parameters(size.family, size.config, size.outputs) == count


@pytest.mark.parametrize(
    ("name", "share", "shape"),
    [
        ("electra-small", 1 / 4, (64, 1, 256)),
        ("electra-base", 1 / 3, (256, 4, 1024)),
        ("electra-large", 1 / 4, (256, 4, 1024)),
        ("electra-base", 1.0, (768, 12, 3072)),
        ("electra-small", 1 / 5, (48, 1, 205)),
        ("electra-small", 1e-9, (1, 1, 1)),
    ],
)
def test_a_scaled_stack_is_narrower_and_as_deep(name: str, share: float, shape: tuple[int, int, int]) -> None:
    config = SIZES[name].config
    narrow = config.narrowed(share, embedding_width=config.width_of_embeddings)
    assert (narrow.width, narrow.n_heads, narrow.inner_width) == shape
    assert narrow.n_layers == config.n_layers
    assert narrow.width_of_embeddings == config.width_of_embeddings
    assert config.narrowed(share).width_of_embeddings == shape[0]


def test_unknown_size_names_the_nearest() -> None:
    with pytest.raises(ModelError, match="bert-large"):
        get_size("bert-lrge")

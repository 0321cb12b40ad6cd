"""The published sizes have exactly the parameters of the reference's bare model classes, counted without allocating."""

from __future__ import annotations

import pytest
import torch

from polyseme.bundle import count_parameters
from polyseme.convert.families import FAMILIES
from polyseme.convert.sizes import SIZES, size_named
from polyseme.errors import ModelError
from references import reference_class


@pytest.mark.parametrize("name", SIZES)
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
    ],
)
def test_parameter_count_is_the_published_one(name: str, count: int) -> None:
    size = SIZES[name]
    assert count_parameters(size.family, size.config, size.outputs) == count


def test_unknown_size_names_the_nearest() -> None:
    with pytest.raises(ModelError, match="bert-large"):
        size_named("bert-lrge")

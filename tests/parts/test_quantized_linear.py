"""Products in bf16 and int8: close to fp32, row by row, the same with and without the processor's instructions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from polyseme.parts.feed_forward import gelu_tanh
from polyseme.parts.inference_linear import Product, packing_works
from polyseme.parts.quantized_linear import HalfProduct, Int8Product, IntegerSums, PackedSums, PlainSums, Sums

SMALL = {"bf16": (HalfProduct, 2e-2), "int8": (Int8Product, 3e-2)}


def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(96, 160)


@pytest.mark.parametrize("activation", [None, F.gelu, gelu_tanh, F.relu], ids=["none", "gelu", "tanh", "relu"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_fp32_product_equals_the_layer(activation, packed) -> None:  # type: ignore[no-untyped-def]
    linear, x = layer(), torch.randn(33, 96)
    product = Product(linear, activation)
    if packed:
        product.pack(33)
        assert (product.packed is not None) == packing_works()
    expected = linear(x) if activation is None else activation(linear(x))
    with torch.inference_mode():
        torch.testing.assert_close(product(x), expected, atol=1e-5, rtol=1e-5)
        residual = torch.randn(33, 160)
        torch.testing.assert_close(product(x, residual.clone()), expected + residual, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("activation", [None, F.gelu], ids=["none", "gelu"])
def test_small_product_is_close_to_fp32(name: str, activation) -> None:  # type: ignore[no-untyped-def]
    kind, tolerance = SMALL[name]
    linear, x, residual = layer(), torch.randn(33, 96), torch.randn(33, 160)
    with torch.inference_mode():
        expected = linear(x) if activation is None else activation(linear(x))
        plain = kind(linear, activation)
        settled = kind(linear, activation)
        settled.pack(33)
        largest = float(expected.abs().max())
        for product in (plain, settled):
            assert float((product(x).float() - expected).abs().max()) <= tolerance * largest
            summed = product(x, residual.clone())
            assert summed.dtype == torch.float32
            assert float((summed - expected - residual).abs().max()) <= tolerance * largest
        assert float((plain(x).float() - settled(x).float()).abs().max()) <= 1e-2 * largest


@pytest.mark.parametrize("name", SMALL)
def test_a_row_does_not_depend_on_its_neighbors(name: str) -> None:
    product = SMALL[name][0](layer())
    product.pack(64)
    x = torch.randn(40, 96)
    crowd = x.clone()
    crowd[1:] *= 1000
    with torch.inference_mode():
        alone, together = product(x[:1]), product(crowd)[:1]
    torch.testing.assert_close(alone.float(), together.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [PackedSums, IntegerSums, PlainSums])
def test_sums_of_whole_numbers(kind: type[Sums]) -> None:
    """Every second weight is 0, so that no two products are added up in the few bits an old processor has for that."""
    torch.manual_seed(0)
    weight = torch.randint(-127, 128, (48, 96), dtype=torch.int8)
    weight[:, ::2] = 0
    x = torch.randint(-127, 128, (33, 96), dtype=torch.int8)
    scale = torch.rand(48)
    with torch.inference_mode():
        sums = kind(weight, scale)
        sums.pack(33)
        found = sums(x.float())
        expected = (x.double() @ weight.double().T * scale.double()).float()
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))
        if kind is not PlainSums:
            assert torch.equal(sums(x[5:6].float()), found[5:6])


def test_int8_takes_rows_of_zeros() -> None:
    product = Int8Product(layer())
    with torch.inference_mode():
        torch.testing.assert_close(product(torch.zeros(2, 96)), product.bias.expand(2, -1))

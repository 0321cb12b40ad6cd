"""Products by oneDNN equal torch's own, with gradients; they run where they are known to pay, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.parts import linear as products
from polyseme.types import Batch

HERE = products._works()
needs_operator = pytest.mark.skipif(not HERE, reason="this torch has no product of oneDNN")


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """All products by oneDNN, also small ones and on processors where that is slower."""
    monkeypatch.setattr(products, "MIN_OPERATIONS", 0)
    monkeypatch.setattr(products, "onednn_pays", lambda: True)


def tensors(*shape: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x, weight, bias = (torch.randn(*each, generator=generator) for each in ((*shape, 20), (28, 20), (28,)))
    return x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()


@needs_operator
@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("shape", [(9,), (3, 5), (1, 1)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_values_and_gradients_are_those_of_torch(shape: tuple[int, ...], with_bias: bool) -> None:
    results = []
    for product in (products.linear, F.linear):
        x, weight, bias = tensors(*shape)
        y = product(x, weight, bias if with_bias else None)
        y.square().sum().backward()
        results.append([y, x.grad, weight.grad, *([bias.grad] if with_bias else [])])
    assert "OneDNNProduct" in str(products.linear(x, weight).grad_fn)
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-5)


@needs_operator
@pytest.mark.usefixtures("everywhere")
def test_a_gradient_of_the_gradient_and_inputs_that_take_none() -> None:
    x, weight, bias = tensors(4)
    seconds = []
    for product in (products.linear, F.linear):
        [first] = torch.autograd.grad(product(x, weight, bias).pow(3).sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), weight)[0])
    torch.testing.assert_close(*seconds, atol=1e-1, rtol=1e-4)
    products.linear(x.detach(), weight, bias.detach()).sum().backward()
    assert x.grad is None
    assert bias.grad is None
    assert weight.grad is not None


@needs_operator
@pytest.mark.usefixtures("everywhere")
def test_gradients_of_an_encoder_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = FAMILIES["bert"].base().replace(n_layers=2, width=32, n_heads=2, inner_width=64, n_pieces=50)
    bundle = new_bundle(FAMILIES["bert"], config, ["masked"]).eval()
    product, n_calls = products._product, 0

    def counted(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        nonlocal n_calls
        n_calls += 1
        return product(x, weight, bias)

    monkeypatch.setattr(products, "_product", counted)
    batch = Batch(torch.randint(50, (3, 7)), torch.tensor([7, 4, 2]))

    def gradients() -> list[Tensor]:
        bundle.zero_grad()
        states = bundle.encoder(batch, layers=[-1])[-1].flatten(0, 1)
        bundle.outputs["masked"].loss(states, batch.pieces.flatten()).sum().backward()  # type: ignore[operator]
        return [each.grad.clone() for each in bundle.parameters() if each.grad is not None]

    mine = gradients()
    assert n_calls == 3 * 10  # four products of each layer and two of the output: forward, and both of the gradient
    monkeypatch.setattr(products, "onednn_pays", lambda: False)
    theirs = gradients()
    largest = max(float(each.abs().max()) for each in theirs)
    assert max(float((one - other).abs().max()) for one, other in zip(mine, theirs, strict=True)) <= 1e-5 * largest


def test_where_the_operator_pays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(products, "CPUINFO", cpuinfo)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    for maker, capability, expected in (
        ("AuthenticAMD", "AVX512", HERE),
        ("AuthenticAMD", "AVX2", False),
        ("GenuineIntel", "AVX512", False),
        (None, "AVX512", False),
    ):
        cpuinfo.unlink(missing_ok=True)
        if maker is not None:
            cpuinfo.write_text(f"processor\t: 0\nvendor_id\t: {maker}\n", encoding="ascii")
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda capability=capability: capability)
        assert products.onednn_pays.__wrapped__() is expected


@pytest.mark.usefixtures("everywhere")
def test_other_kinds_of_numbers_run_plainly_and_no_gradient_is_needed() -> None:
    x, weight, bias = tensors(4)
    plain = [(x.double(), weight.double(), bias.double()), (x.bfloat16(), weight.bfloat16(), bias.bfloat16())]
    for some in plain:
        assert "OneDNN" not in str(products.linear(*some).grad_fn)
    with torch.no_grad():
        torch.testing.assert_close(products.linear(x, weight, bias), F.linear(x, weight, bias))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert products.linear(x, weight, bias).dtype == torch.bfloat16


@needs_operator
@pytest.mark.usefixtures("everywhere")
@pytest.mark.filterwarnings("ignore")
def test_an_exported_graph_has_products_that_other_programs_know() -> None:
    x, weight, bias = tensors(9)
    module = products.Linear(20, 28)
    module.load_state_dict({"weight": weight.detach(), "bias": bias.detach()})
    traced = torch.jit.trace(module, x, check_trace=False)
    kinds = {node.kind() for node in traced.inlined_graph.nodes()}
    assert "aten::linear" in kinds
    assert not {kind for kind in kinds if "mkldnn" in kind or "Python" in kind}

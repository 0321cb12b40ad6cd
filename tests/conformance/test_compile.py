"""`torch.compile(fullgraph=True)` takes the whole forward pass, whatever an encoder reads, and agrees with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from conformance.cases import TRANSFORMERS, family_name, redrawn
from polyseme.convert.families import FAMILIES
from polyseme.convert.family import Family
from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.parts.masks import FactorizationOrder
from polyseme.types import Batch
from references import assert_close, ragged_batch, real

# The backends agree with the plain run to rounding: eager runs what was captured, aot_eager the same operators without
# changes in place, inductor fuses them.
BACKENDS = ["eager", *(pytest.param(name, marks=pytest.mark.slow) for name in ("aot_eager", "inductor"))]
backends = pytest.mark.parametrize("backend", BACKENDS)
TOLERANCE = 1e-5


def shallow(config: TransformerConfig) -> TransformerConfig:
    """Two layers show what three do, one what several alike do, and compile faster."""
    n_layers = max(len(set(config.masks[:2])), config.sets_in_group)
    changed: TransformerConfig = config.replace(n_layers=n_layers, layer_map=None, masks=config.masks[:n_layers])
    return changed


SHALLOW = {name: shallow(config) for name, config in TRANSFORMERS.items()}
AS_ANOTHER = ("roberta", "xlm-roberta", "electra", "distilbert", "bart", "albert")
"""Families that compute what another one does, with other numbers in their config, or with its layers shared."""
WITH_MEMORY = ("gpt2", "openai-gpt", "xlnet", "t5")
"""Families whose computation, with its memory or its decoder, has a test of its own below."""
CAUSAL, ANY_ORDER, BUCKETS = (
    SHALLOW[name].replace(n_layers=1, masks=SHALLOW[name].masks[:1]) for name in ("causal", "any order", "buckets")
)
"""One layer has a memory, two streams and a source as more have."""


@pytest.fixture(autouse=True)
def forget_what_was_compiled() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def compiled(encoder: Any, backend: str) -> Any:
    return torch.compile(encoder, fullgraph=True, backend=backend)


def assert_same_layers(found: Any, expected: Any, keep: torch.Tensor) -> None:
    assert found.layers.keys() == expected.layers.keys()
    for number in expected.layers:
        assert_close(found[number][keep], expected[number][keep], TOLERANCE)


@backends
@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, id=family_name(family), marks=pytest.mark.slow if name in AS_ANOTHER + WITH_MEMORY else ())
        for name, family in FAMILIES.items()
    ],
)
def test_families(family: Family, backend: str) -> None:
    config = family.tiny()
    if not isinstance(config, TransformerConfig):
        shallow_one = {"n_layers": 1} if hasattr(config, "n_layers") else {}  # a graph of every step
        config, batch = config.replace(**shallow_one), ragged_batch(config, lengths=(4, 1, 3))
    else:
        config, batch = config if config.layer_map else shallow(config), ragged_batch(config)
    encoder = redrawn(build_encoder(config))
    fast = compiled(encoder, backend)
    with torch.no_grad():
        assert_same_layers(fast(batch), encoder(batch), real(batch))


@backends
def test_attentions(backend: str) -> None:
    encoder = redrawn(Transformer(SHALLOW["bert"]))
    batch = ragged_batch(encoder.config)
    with torch.no_grad():
        expected = encoder(batch, attentions=True).attentions["self"]
        found = compiled(encoder, backend)(batch, attentions=True).attentions["self"]
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs, TOLERANCE)


@backends
def test_a_causal_cache(backend: str) -> None:
    """Ragged prompts and steps of one piece; no step compiles anew, though rows grow longer."""
    encoder = redrawn(Transformer(CAUSAL))
    fast = compiled(encoder, backend)
    prompts = ragged_batch(CAUSAL, lengths=(7, 2, 4))
    steps = torch.randint(5, 99, (6, 3, 1), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = encoder(prompts, memory=encoder.new_memory(3, capacity=16))
        found = fast(prompts, memory=encoder.new_memory(3, capacity=16))
        assert_same_layers(found, expected, real(prompts))
        for number, step in enumerate(steps):
            expected = encoder(Batch(step), memory=expected.memory)
            with torch.compiler.set_stance("fail_on_recompile" if number else "default"):
                found = fast(Batch(step), memory=found.memory)
            assert_same_layers(found, expected, torch.ones_like(step, dtype=torch.bool))
            assert torch.equal(found.memory.lengths, expected.memory.lengths)


@backends
def test_two_streams_with_memory(backend: str) -> None:
    encoder = redrawn(Transformer(ANY_ORDER))
    fast = compiled(encoder, backend)
    generator = torch.Generator().manual_seed(2)
    before, batch = (ragged_batch(ANY_ORDER, seed=seed, lengths=(8, 5, 8)) for seed in range(2))
    batch.mask = FactorizationOrder(torch.stack([torch.randperm(8, generator=generator) for _ in range(3)]))
    batch.targets = torch.tensor([[7, 0], [4, -1], [3, 2]])
    with torch.no_grad():
        memory = encoder(before, memory=encoder.new_memory(3)).memory
        expected = encoder(batch, memory=memory)
        found = fast(batch, memory=memory)
    assert_same_layers(found, expected, real(batch))
    targets = batch.targets >= 0
    for number, layer in expected.queries.items():
        assert_close(found.queries[number][targets], layer[targets], TOLERANCE)
    for name, tensor in expected.memory.tensors().items():
        assert_close(found.memory.tensors()[name], tensor, TOLERANCE)


@backends
def test_a_decoder_that_reads_a_source(backend: str) -> None:
    """The source is projected in the first call and comes from the cache in the next."""
    reader = redrawn(Transformer(BUCKETS))
    encoder = redrawn(Transformer(BUCKETS.replace(n_layers=1, masks=("causal",), cross=True, memory="cache")))
    fast = compiled(encoder, backend)
    source = ragged_batch(BUCKETS, seed=3, lengths=(9, 1, 4))
    pieces = torch.randint(5, 99, (3, 6), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        read = reader(source, layers=[-1])
        whole = encoder(Batch(pieces, source=read))
        first = fast(Batch(pieces[:, :5], source=read), memory=encoder.new_memory(3, capacity=8))
        last = fast(Batch(pieces[:, 5:]), memory=first.memory)
    for number in whole.layers:
        together = torch.cat([first[number], last[number]], dim=1)
        assert_close(together, whole[number], TOLERANCE)


@pytest.mark.slow
@backends
def test_training(backend: str) -> None:
    """Gradients of the compiled pass are those of the plain one; by default the nets of objectives show that."""
    encoder = redrawn(Transformer(SHALLOW["bert"]))
    batch = ragged_batch(encoder.config)
    gradients = []
    for run in (encoder, compiled(encoder, backend)):
        run.zero_grad()
        run(batch)[-1][real(batch)].square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in encoder.parameters()])
    largest = max(float(gradient.abs().max()) for gradient in gradients[0])
    for ours, theirs in zip(gradients[1], gradients[0], strict=True):
        assert_close(ours, theirs, TOLERANCE, largest)

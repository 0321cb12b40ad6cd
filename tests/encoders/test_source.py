"""The Transformer as a decoder that reads a source: BART and T5 against the reference, at once and from a cache."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BartConfig, BartModel, T5Config, T5Model
from transformers.models.t5.modeling_t5 import T5LayerNorm

from encoders.filled import filled, redrawn
from perturbation import drawing, who_sees_whom
from polyseme.convert.conversion_table import Alias, Rule, Table, module
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError
from polyseme.types import Batch
from references import assert_close, ragged_batch, real

N_ENCODER, N_DECODER = 2, 3
QKV = ("q", "k", "v")


@dataclasses.dataclass
class Pair:
    """A reference of two stacks, and our two encoders with its weights."""

    reference: Any
    encoder: Transformer
    decoder: Transformer


def two_stacks(encoder: TransformerConfig, table: Table, reference: nn.Module) -> Pair:
    decoder = dataclasses.replace(encoder, n_layers=N_DECODER, masks=("causal",), cross=True, memory="cache")
    ours = nn.ModuleDict({"encoder": Transformer(encoder), "decoder": Transformer(decoder)})
    ours["decoder"].embeddings.pieces = ours["encoder"].embeddings.pieces  # one table for both stacks
    filled(ours, table, reference)
    return Pair(reference, ours["encoder"], ours["decoder"])


SHARED = [
    Rule(("shared.weight",), ("encoder.embeddings.pieces.weight",)),
]
ALIASES = [Alias(f"{stack}.embed_tokens.weight", "shared.weight") for stack in ("encoder", "decoder")]


# --- BART ------------------------------------------------------------------------------------------------------------

BART = TransformerConfig(
    n_pieces=61,
    width=24,
    n_layers=N_ENCODER,
    n_heads=3,
    inner_width=40,
    max_positions=30,
    position_offset=2,
    n_segments=0,
    norm_epsilon=1e-5,
)


def bart_attention(theirs: str, ours: str) -> list[Rule]:
    return [
        *module(tuple(f"{theirs}.{name}_proj" for name in QKV), f"{ours}.project"),
        *module(f"{theirs}.out_proj", f"{ours}.output"),
    ]


def bart_stack(stack: str, n_layers: int) -> list[Rule]:
    rules = [
        *module(f"{stack}.embed_positions", f"{stack}.embeddings.positions.table", bias=False),
        *module(f"{stack}.layernorm_embedding", f"{stack}.embeddings.norm"),
    ]
    for number in range(n_layers):
        layer = f"{stack}.layers.{number}"
        rules += bart_attention(f"{layer}.self_attn", f"{layer}.attention")
        rules += module(f"{layer}.self_attn_layer_norm", f"{layer}.attention_norm")
        if stack == "decoder":
            rules += bart_attention(f"{layer}.encoder_attn", f"{layer}.cross")
            rules += module(f"{layer}.encoder_attn_layer_norm", f"{layer}.cross_norm")
        rules += module(f"{layer}.fc1", f"{layer}.feed_forward.up")
        rules += module(f"{layer}.fc2", f"{layer}.feed_forward.down")
        rules += module(f"{layer}.final_layer_norm", f"{layer}.feed_forward_norm")
    return rules


def bart(*, scaled: bool = False) -> Pair:
    config = dataclasses.replace(BART, embedding_scale=BART.width**0.5 if scaled else 1.0)
    reference = BartModel(
        BartConfig(
            vocab_size=config.n_pieces,
            d_model=config.width,
            encoder_layers=N_ENCODER,
            decoder_layers=N_DECODER,
            encoder_attention_heads=config.n_heads,
            decoder_attention_heads=config.n_heads,
            encoder_ffn_dim=config.inner_width,
            decoder_ffn_dim=config.inner_width,
            max_position_embeddings=config.max_positions,
            scale_embedding=scaled,
            attn_implementation="eager",
        )
    )
    body = [*SHARED, *bart_stack("encoder", N_ENCODER), *bart_stack("decoder", N_DECODER)]
    return two_stacks(config, Table("model.", 1, body, {}, ALIASES), redrawn(reference))


# --- T5 --------------------------------------------------------------------------------------------------------------

T5 = TransformerConfig(
    n_pieces=61,
    width=24,
    n_layers=N_ENCODER,
    n_heads=3,
    head_width=5,
    inner_width=40,
    norm="before",
    norm_kind="rms",
    norm_epsilon=1e-6,
    embedding_norm=False,
    final_norm=True,
    activation="relu",
    attention_bias=False,
    attention_output_bias=False,
    inner_bias=False,
    scale=1.0,
    positions="buckets",
    n_buckets=8,
    max_distance=10,
    n_segments=0,
)


def t5_attention(theirs: str, ours: str) -> list[Rule]:
    return [
        *module(tuple(f"{theirs}.{name}" for name in QKV), f"{ours}.project", bias=False),
        *module(f"{theirs}.o", f"{ours}.output", bias=False),
    ]


def t5_stack(stack: str, n_layers: int, *, gated: bool) -> list[Rule]:
    first = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
    rules = [
        *module(first, f"{stack}.positions.table", bias=False),
        *module(f"{stack}.final_layer_norm", f"{stack}.norm", bias=False),
    ]
    for number in range(n_layers):
        parts = [f"{stack}.block.{number}.layer.{part}" for part in range(3 if stack == "decoder" else 2)]
        layer = f"{stack}.layers.{number}"
        rules += t5_attention(f"{parts[0]}.SelfAttention", f"{layer}.attention")
        rules += module(f"{parts[0]}.layer_norm", f"{layer}.attention_norm", bias=False)
        if stack == "decoder":
            rules += t5_attention(f"{parts[1]}.EncDecAttention", f"{layer}.cross")
            rules += module(f"{parts[1]}.layer_norm", f"{layer}.cross_norm", bias=False)
        inner = f"{parts[-1]}.DenseReluDense"
        up = (f"{inner}.wi_0", f"{inner}.wi_1") if gated else f"{inner}.wi"
        rules += module(up, f"{layer}.feed_forward.up", bias=False)
        rules += module(f"{inner}.wo", f"{layer}.feed_forward.down", bias=False)
        rules += module(f"{parts[-1]}.layer_norm", f"{layer}.feed_forward_norm", bias=False)
    return rules


def t5(*, gated: bool) -> Pair:
    """Version 1.0 has a plain relu inside, version 1.1 a gated GELU (the tanh one, whatever its name says)."""
    config = dataclasses.replace(T5, gated=gated, activation="gelu_new" if gated else "relu")
    reference = T5Model(
        T5Config(
            vocab_size=config.n_pieces,
            d_model=config.width,
            d_kv=config.head_width,
            d_ff=config.inner_width,
            num_layers=N_ENCODER,
            num_decoder_layers=N_DECODER,
            num_heads=config.n_heads,
            relative_attention_num_buckets=config.n_buckets,
            relative_attention_max_distance=config.max_distance,
            layer_norm_epsilon=config.norm_epsilon,
            feed_forward_proj="gated-gelu" if gated else "relu",
            attn_implementation="eager",
        )
    )
    body = [
        *SHARED,
        *t5_stack("encoder", N_ENCODER, gated=gated),
        *t5_stack("decoder", N_DECODER, gated=gated),
    ]
    return two_stacks(config, Table("transformer.", 1, body, {}, ALIASES), redrawn(reference))


@pytest.fixture(autouse=True)
def norm_in_the_precision_of_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference's RMS norm sums in float32, which would hide everything below 1e-7."""

    def forward(self: T5LayerNorm, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    monkeypatch.setattr(T5LayerNorm, "forward", forward)


PAIRS = {
    "bart": bart,
    "bart, scaled": lambda: bart(scaled=True),
    "t5 v1.0": lambda: t5(gated=False),
    "t5 v1.1": lambda: t5(gated=True),
}
pairs = pytest.mark.parametrize("make", PAIRS.values(), ids=PAIRS)


def source_and_target(pair: Pair) -> tuple[Batch, Batch]:
    """Ragged on both sides, and longer than the far buckets."""
    source = ragged_batch(pair.encoder.config, seed=1, lengths=(17, 1, 6))
    target = ragged_batch(pair.decoder.config, seed=2, lengths=(5, 14, 9))
    return source, target


# --- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "fused"])
@pairs
def test_both_stacks_equal_the_reference(make: Any, eager: bool) -> None:
    pair = make()
    pair.encoder.eager = pair.decoder.eager = eager
    source, target = source_and_target(pair)
    with torch.no_grad():
        theirs = pair.reference(
            input_ids=source.pieces,
            attention_mask=real(source).long(),
            decoder_input_ids=target.pieces,
            decoder_attention_mask=real(target).long(),
            output_hidden_states=True,
        )
        read = pair.encoder(source)
        states = pair.decoder(dataclasses.replace(target, source=read))
    for ours, expected, batch in (
        (read, theirs.encoder_hidden_states, source),
        (states, theirs.decoder_hidden_states, target),
    ):
        assert ours.depth == len(expected) - 1
        for number, layer in enumerate(expected):
            assert_close(ours[number][real(batch)], layer[real(batch)], 1e-10)


@pairs
def test_attentions_equal_the_reference(make: Any) -> None:
    pair = make()
    source, target = source_and_target(pair)
    with torch.no_grad():
        theirs = pair.reference(
            input_ids=source.pieces,
            attention_mask=real(source).long(),
            decoder_input_ids=target.pieces,
            decoder_attention_mask=real(target).long(),
            output_attentions=True,
        )
        read = pair.encoder(source, attentions=True)
        states = pair.decoder(dataclasses.replace(target, source=read), attentions=True)
    assert set(states.attentions) == {"self", "cross"}
    for ours, expected, batch in (
        (read.attentions["self"], theirs.encoder_attentions, source),
        (states.attentions["self"], theirs.decoder_attentions, target),
        (states.attentions["cross"], theirs.cross_attentions, target),
    ):
        for our_layer, their_layer in zip(ours, expected, strict=True):
            queries = real(batch)[:, None, :, None].expand_as(our_layer)
            assert_close(our_layer[queries], their_layer[queries], 1e-10)


@pairs
def test_cached_decoding_equals_reading_at_once(make: Any) -> None:
    """The first call projects the source; after it the batch has none, and rows may be picked."""
    pair = make()
    source, target = source_and_target(pair)
    picked = torch.tensor([2, 0, 1, 0])
    with torch.no_grad():
        read = pair.encoder(source)
        expected = pair.decoder(Batch(target.pieces, source=read))
        memory = pair.decoder.new_memory(3, capacity=20)
        states = pair.decoder(Batch(target.pieces[:, :4], source=read), memory=memory)
        found = [states[-1]]
        for step in range(4, 9):
            states = pair.decoder(Batch(target.pieces[:, step : step + 1]), memory=states.memory)
            found.append(states[-1])
        assert_close(torch.cat(found, dim=1), expected[-1][:, :9], 1e-10)

        memory = states.memory.select(picked)
        for step in range(9, 14):
            states = pair.decoder(Batch(target.pieces[picked, step : step + 1]), memory=memory)
            memory = states.memory
            assert_close(states[-1][:, 0], expected[-1][picked, step], 1e-10, float(expected[-1].abs().max()))


@pairs
def test_who_sees_whom_across(make: Any) -> None:
    """Every piece of the target sees every real piece of the source, and no other."""
    pair = make()
    target = torch.tensor([[7, 8, 9]])

    def states_of(pieces: Tensor) -> Tensor:
        read = pair.encoder(Batch(pieces, torch.tensor([4]).expand(len(pieces))))
        return pair.decoder(Batch(target.repeat(len(pieces), 1), source=read))[-1]

    assert drawing(who_sees_whom(states_of, torch.tensor([[11, 12, 13, 14, 15, 16]]), 61)) == ["xxxx.."] * 3


def test_a_decoder_without_its_source_is_refused() -> None:
    pair = bart()
    with pytest.raises(ModelError, match="reads a source, and the batch has none"):
        pair.decoder(Batch(torch.tensor([[1, 2]])))
    with pytest.raises(ModelError, match="reads a source, and the batch has none"):
        pair.decoder(Batch(torch.tensor([[1, 2]])), memory=pair.decoder.new_memory(1))


def test_a_source_without_cross_attention_is_refused() -> None:
    pair = bart()
    source = pair.encoder(Batch(torch.tensor([[1, 2]])))
    with pytest.raises(ModelError, match="no cross-attention"):
        pair.encoder(Batch(torch.tensor([[1, 2]]), source=source))

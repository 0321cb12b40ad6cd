"""The Transformer as GPT-2: equal to the reference, and cached reading equal to reading at once."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor
from transformers import GPT2Config, GPT2Model

from encoders.filled import filled, redrawn
from perturbation import drawing, who_sees_whom
from polyseme.convert.conversion_table import Rule, Table, module
from polyseme.convert.tensor_transforms import TRANSPOSE
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError
from polyseme.parts.memory_and_cache import Cache
from polyseme.types import Batch
from references import assert_close, ragged_batch, real, reference_inputs

CONFIG = TransformerConfig(
    n_pieces=53,
    width=24,
    n_layers=3,
    n_heads=4,
    inner_width=40,
    max_positions=32,
    norm="before",
    norm_epsilon=1e-5,
    embedding_norm=False,
    final_norm=True,
    activation="gelu_new",
    n_segments=0,
    masks=("causal",),
    memory="cache",
)


def conv1d(theirs: str, ours: str) -> list[Rule]:
    """GPT-2's Conv1D keeps its matrix the other way round."""
    return [
        Rule((f"{theirs}.weight",), (f"{ours}.weight",), TRANSPOSE),
        Rule((f"{theirs}.bias",), (f"{ours}.bias",)),
    ]


GPT2 = Table(
    prefix="transformer.",
    n_sets=CONFIG.n_layers,
    body=[
        *module("{p}wte", "embeddings.pieces", bias=False),
        *module("{p}wpe", "embeddings.positions.table", bias=False),
        *module("{p}h.{i}.ln_1", "layers.{i}.attention_norm"),
        *conv1d("{p}h.{i}.attn.c_attn", "layers.{i}.attention.project"),
        *conv1d("{p}h.{i}.attn.c_proj", "layers.{i}.attention.output"),
        *module("{p}h.{i}.ln_2", "layers.{i}.feed_forward_norm"),
        *conv1d("{p}h.{i}.mlp.c_fc", "layers.{i}.feed_forward.up"),
        *conv1d("{p}h.{i}.mlp.c_proj", "layers.{i}.feed_forward.down"),
        *module("{p}ln_f", "norm"),
    ],
    outputs={},
)


def gpt2(config: TransformerConfig = CONFIG) -> tuple[GPT2Model, Transformer]:
    reference = GPT2Model(
        GPT2Config(
            vocab_size=config.n_pieces,
            n_positions=config.max_positions,
            n_embd=config.width,
            n_layer=config.n_layers,
            n_head=config.n_heads,
            n_inner=config.inner_width,
            scale_attn_by_inverse_layer_idx=config.scale_by_layer,
            attn_implementation="eager",
        )
    )
    reference = redrawn(reference)
    return reference, filled(Transformer(config), GPT2, reference)


@pytest.mark.parametrize("scale_by_layer", [False, True], ids=["one scale", "scale by layer"])
@pytest.mark.parametrize("eager", [True, False], ids=["eager", "fused"])
def test_gpt2_equals_the_reference(eager: bool, scale_by_layer: bool) -> None:
    reference, ours = gpt2(dataclasses.replace(CONFIG, scale_by_layer=scale_by_layer))
    ours.eager = eager
    batch = ragged_batch(CONFIG)
    with torch.no_grad():
        theirs = reference(**reference_inputs(batch), output_hidden_states=True, output_attentions=True)
        states = ours(batch)
        attentions = ours(batch, attentions=True).attentions["self"]
    assert ours.config.direction == "causal"
    assert len(theirs.hidden_states) == states.depth + 1
    for number, layer in enumerate(theirs.hidden_states):
        assert_close(states[number][real(batch)], layer[real(batch)], 1e-10)
    for our_layer, their_layer in zip(attentions, theirs.attentions, strict=True):
        queries = real(batch)[:, None, :, None].expand_as(our_layer)
        assert_close(our_layer[queries], their_layer[queries], 1e-10)


# --- the cache -------------------------------------------------------------------------------------------------------

PROMPTS = torch.tensor([5, 2, 7])
CHUNKS = [PROMPTS, torch.tensor([1, 1, 1]), torch.tensor([2, 3, 0]), torch.tensor([1, 1, 1]), torch.tensor([0, 1, 1])]
"""How many pieces each row reads in each call."""


def whole_rows() -> Tensor:
    return torch.randint(0, CONFIG.n_pieces, (3, 12), generator=torch.Generator().manual_seed(2))


def chunk_of(rows: Tensor, first: Tensor, lengths: Tensor) -> Batch:
    """The next `lengths` pieces of each row; behind them, padding that would show."""
    longest = int(lengths.max())
    places = first[:, None] + torch.arange(longest)
    pieces = rows.gather(1, places.clamp(max=rows.shape[1] - 1))
    padding = torch.arange(longest)[None] >= lengths[:, None]
    return Batch(pieces.masked_fill(padding, 1), lengths)


def poisoned(memory: Cache) -> Cache:
    """A cache whose empty slots would be noticed."""
    return dataclasses.replace(
        memory,
        keys=tuple(torch.full_like(each, 50.0) for each in memory.keys),
        values=tuple(torch.full_like(each, 1e3) for each in memory.values),
    )


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "fused"])
@pytest.mark.parametrize("masks", [("causal",), ("causal", "band:3", "causal")], ids=["causal", "bands"])
def test_cached_reading_equals_reading_at_once(masks: tuple[str, ...], eager: bool) -> None:
    """Prompts of different lengths, then further pieces, one or several or none a row."""
    ours = filled(Transformer(dataclasses.replace(CONFIG, masks=masks)), GPT2, gpt2()[0])
    ours.eager = eager
    rows = whole_rows()
    with torch.no_grad():
        expected = ours(Batch(rows))
        memory = poisoned(ours.new_memory(3, capacity=20))
        read = torch.zeros(3, dtype=torch.long)
        for lengths in CHUNKS:
            states = ours(chunk_of(rows, read, lengths), memory=memory)
            memory = states.memory
            for number in range(CONFIG.n_layers + 1):
                for row, (start, n_new) in enumerate(zip(read.tolist(), lengths.tolist(), strict=True)):
                    if n_new:
                        at_once = expected[number][row, start : start + n_new]
                        assert_close(states[number][row, :n_new], at_once, 1e-10, float(expected[number].abs().max()))
            read = read + lengths
            assert torch.equal(memory.lengths, read)


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "fused"])
def test_slots_past_a_row_s_length_are_never_seen(eager: bool) -> None:
    """Not even by an encoder that would see what stands ahead."""
    ours = filled(Transformer(dataclasses.replace(CONFIG, masks=("all",))), GPT2, gpt2()[0])
    ours.eager = eager
    batch = Batch(whole_rows()[:, :7], PROMPTS)
    with torch.no_grad():
        expected = ours(batch)
        found = ours(batch, memory=poisoned(ours.new_memory(3, capacity=10)))
    assert_close(found[-1][real(batch)], expected[-1][real(batch)], 1e-10)


def test_without_lengths_every_row_reads_all_pieces() -> None:
    _, ours = gpt2()
    rows = whole_rows()
    with torch.no_grad():
        expected = ours(Batch(rows))
        memory = ours.new_memory(3)
        first = ours(Batch(rows[:, :8]), memory=memory)
        second = ours(Batch(rows[:, 8:]), memory=first.memory)
    assert second.memory.lengths.tolist() == [12, 12, 12]
    assert_close(torch.cat([first[-1], second[-1]], dim=1), expected[-1], 1e-10)


def test_beams_pick_rows_of_the_memory() -> None:
    """After `select` each row goes on from the row it was picked from, and rows picked twice go apart."""
    _, ours = gpt2()
    rows = whole_rows()
    picked = torch.tensor([2, 0, 0, 1])
    ends = torch.randint(0, CONFIG.n_pieces, (4, 3), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        states = ours(Batch(rows[:, :7], PROMPTS), memory=ours.new_memory(3, capacity=12))
        memory = states.memory.select(picked)
        for step in range(3):
            states = ours(Batch(ends[:, step : step + 1]), memory=memory)
            memory = states.memory
    for row, origin in enumerate(picked.tolist()):
        whole = torch.cat([rows[origin, : PROMPTS[origin]], ends[row]])[None]
        with torch.no_grad():
            assert_close(states[-1][row, -1], ours(Batch(whole))[-1][0, -1], 1e-10)


def test_a_memory_comes_back_exactly_if_one_was_passed_in() -> None:
    _, ours = gpt2()
    assert ours(Batch(whole_rows())).memory is None
    assert isinstance(ours(Batch(whole_rows()), memory=ours.new_memory(3)).memory, Cache)


def test_a_memory_of_other_rows_is_refused() -> None:
    _, ours = gpt2()
    with pytest.raises(ModelError, match="of 2 rows and the batch of 3"):
        ours(Batch(whole_rows()), memory=ours.new_memory(2))


def test_an_encoder_without_memory_has_none_to_make() -> None:
    with pytest.raises(ModelError, match="has none to make"):
        Transformer(dataclasses.replace(CONFIG, memory="none")).new_memory(1)


def test_a_cache_without_bound_needs_a_capacity() -> None:
    unbounded = Transformer(dataclasses.replace(CONFIG, positions="sinusoidal", max_positions=None))
    with pytest.raises(ModelError, match="capacity"):
        unbounded.new_memory(1)


# --- who sees whom ---------------------------------------------------------------------------------------------------


def pictures(masks: tuple[str, ...], *, cached: bool) -> list[list[str]]:
    """Who sees whom in each layer from 1 on."""
    config = dataclasses.replace(CONFIG, n_layers=len(masks), masks=masks)
    torch.manual_seed(0)
    ours = redrawn(Transformer(config))

    def layer(number: int) -> list[str]:
        def states_of(pieces: Tensor) -> Tensor:
            memory = ours.new_memory(len(pieces), capacity=9) if cached else None
            return ours(Batch(pieces), layers=[number], memory=memory)[number]

        return drawing(who_sees_whom(states_of, whole_rows()[:1, :6], CONFIG.n_pieces))

    return [layer(number) for number in range(1, len(masks) + 1)]


CAUSAL = ["x.....", "xx....", "xxx...", "xxxx..", "xxxxx.", "xxxxxx"]
BAND_3 = ["x.....", "xx....", "xxx...", ".xxx..", "..xxx.", "...xxx"]
BAND_3_OF_2 = ["x.....", "xx....", "xxx...", "xxxx..", ".xxxx.", "..xxxx"]


@pytest.mark.parametrize("cached", [False, True], ids=["at once", "cache"])
def test_a_causal_piece_sees_itself_and_what_stands_before_it(cached: bool) -> None:
    assert pictures(("causal", "causal"), cached=cached) == [CAUSAL, CAUSAL]


@pytest.mark.parametrize("cached", [False, True], ids=["at once", "cache"])
def test_bands_reach_as_far_as_their_widths_add_up(cached: bool) -> None:
    assert pictures(("band:3", "band:2"), cached=cached) == [BAND_3, BAND_3_OF_2]
    assert pictures(("band:3", "causal"), cached=cached) == [BAND_3, CAUSAL]


def test_alternating_masks_fall_on_their_own_layers() -> None:
    """GPT-3's way: every second layer sees a band only. Attention shows each layer by itself."""
    config = dataclasses.replace(CONFIG, n_layers=4, masks=("causal", "band:3", "causal", "band:3"))
    torch.manual_seed(0)
    ours = redrawn(Transformer(config))
    with torch.no_grad():
        weights = ours(Batch(whole_rows()[:1, :6]), attentions=True).attentions["self"]
    assert [drawing(each[0, 0] > 0) for each in weights] == [CAUSAL, BAND_3, CAUSAL, BAND_3]

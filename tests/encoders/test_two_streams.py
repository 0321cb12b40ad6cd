"""The Transformer as XLNet: two streams, segment memory, relative positions and segments, against the reference."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import XLNetConfig, XLNetModel

from encoders.filled import filled, redrawn
from perturbation import drawing, who_sees_whom
from polyseme.convert.conversion_table import Rule, Table, module
from polyseme.convert.tensor_transforms import TRANSPOSE, Chain, Stack, reshape
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError
from polyseme.parts.masks import FactorizationOrder, MatrixMask
from polyseme.parts.memory_and_cache import Segments
from polyseme.types import Batch
from references import assert_close

WIDTH, N_HEADS = 16, 4
CONFIG = TransformerConfig(
    n_pieces=50,
    width=WIDTH,
    n_layers=3,
    n_heads=N_HEADS,
    inner_width=32,
    norm_epsilon=1e-12,
    embedding_norm=False,
    attention_bias=False,
    attention_output_bias=False,
    positions="relative",
    relative_segments=True,
    clamp_distance=4,
    query_stream=True,
    sees_itself=True,
    memory="segment",
    memory_length=5,
)

BY_HEAD = reshape((WIDTH, N_HEADS, WIDTH // N_HEADS), (WIDTH, WIDTH))
ATTENTION = "layer.{i}.rel_attn"
RELATIVE = "layers.{i}.attention.relative"
XLNET = Table(
    prefix="transformer.",
    n_sets=CONFIG.n_layers,
    body=[
        *module("word_embedding", "embeddings.pieces", bias=False),
        Rule(("mask_emb",), ("query",), reshape((1, 1, WIDTH), (WIDTH,))),
        Rule(
            tuple(f"{ATTENTION}.{name}" for name in "qkv"),
            ("layers.{i}.attention.project.weight",),
            Chain((BY_HEAD, TRANSPOSE, Stack(3))),
        ),
        Rule((f"{ATTENTION}.o",), ("layers.{i}.attention.output.weight",), BY_HEAD),
        Rule((f"{ATTENTION}.r",), (f"{RELATIVE}.project.weight",), Chain((BY_HEAD, TRANSPOSE))),
        Rule((f"{ATTENTION}.r_w_bias",), (f"{RELATIVE}.content_bias",)),
        Rule((f"{ATTENTION}.r_r_bias",), (f"{RELATIVE}.position_bias",)),
        Rule((f"{ATTENTION}.r_s_bias",), (f"{RELATIVE}.segment_bias",)),
        Rule((f"{ATTENTION}.seg_embed",), (f"{RELATIVE}.segments",)),
        *module(f"{ATTENTION}.layer_norm", "layers.{i}.attention_norm"),
        *module("layer.{i}.ff.layer_1", "layers.{i}.feed_forward.up"),
        *module("layer.{i}.ff.layer_2", "layers.{i}.feed_forward.down"),
        *module("layer.{i}.ff.layer_norm", "layers.{i}.feed_forward_norm"),
    ],
    outputs={},
)


def xlnet(config: TransformerConfig = CONFIG) -> tuple[XLNetModel, Transformer]:
    reference = XLNetModel(
        XLNetConfig(
            vocab_size=config.n_pieces,
            d_model=config.width,
            n_layer=config.n_layers,
            n_head=config.n_heads,
            d_inner=config.inner_width,
            mem_len=config.memory_length,
            reuse_len=config.reuse,
            clamp_len=-1 if config.clamp_distance is None else config.clamp_distance,
        )
    )
    reference = redrawn(reference)
    in_float32 = reference.relative_positional_encoding
    reference.relative_positional_encoding = lambda *places, **more: in_float32(*places, **more).double()
    return reference, filled(Transformer(config), XLNET, reference)


@dataclasses.dataclass
class Row:
    """Rows with an order of factorization, and the last pieces of the order as targets."""

    batch: Batch
    rank: Tensor
    targets: Tensor


def drawn(generator: torch.Generator, lengths: tuple[int, ...], n_targets: int, *, segments: bool = True) -> Row:
    """Padding comes last in the order; rows of fewer pieces have fewer targets."""
    longest = max(lengths)
    rank = torch.arange(longest).repeat(len(lengths), 1)
    targets = torch.full((len(lengths), n_targets), -1)
    for row, length in enumerate(lengths):
        rank[row, :length] = torch.randperm(length, generator=generator)
        last = rank[row, :length].argsort()[1:][-n_targets:]  # the first in the order sees nothing
        targets[row, : len(last)] = last
    shape = (len(lengths), longest)
    batch = Batch(
        torch.randint(0, CONFIG.n_pieces, shape, generator=generator),
        None if min(lengths) == longest else torch.tensor(lengths),
        torch.randint(0, 2, shape, generator=generator) if segments else None,
        mask=FactorizationOrder(rank),
        targets=targets,
    )
    return Row(batch, rank, targets)


def reference_inputs(row: Row) -> dict[str, Tensor | None]:
    batch = row.batch
    inputs = {
        "input_ids": batch.pieces,
        "token_type_ids": batch.segments,
        "perm_mask": (row.rank[:, None, :] >= row.rank[:, :, None]).double(),
        "target_mapping": F.one_hot(row.targets + 1, batch.pieces.shape[1] + 1)[:, :, 1:].double(),
    }
    if batch.lengths is not None:
        inputs["attention_mask"] = real_pieces(row).double()
    return inputs


def real_pieces(row: Row) -> Tensor:
    if row.batch.lengths is None:
        return torch.ones_like(row.batch.pieces, dtype=torch.bool)
    return torch.arange(row.batch.pieces.shape[1])[None] < row.batch.lengths[:, None]


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "fused"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clamp_distance": None},
        {"memory_length": None},
        {"reuse": 3},
        {"segments": False},
    ],
    ids=["clamped", "any distance", "all remembered", "reuse", "no segments"],
)
def test_three_segments_equal_the_reference(changes: dict[str, int | None], eager: bool) -> None:
    """Both streams, every layer, and what is remembered from one segment to the next."""
    segments = changes.get("segments", True)
    changes = {name: value for name, value in changes.items() if name != "segments"}
    reference, ours = xlnet(dataclasses.replace(CONFIG, **changes))
    ours.eager = eager
    generator = torch.Generator().manual_seed(4)
    theirs, memory = None, ours.new_memory(3)
    for _ in range(3):
        row = drawn(generator, (7, 7, 7), 3, segments=bool(segments))
        with torch.no_grad():
            mems = None if theirs is None else theirs.mems
            theirs = reference(**reference_inputs(row), mems=mems, use_mems=True, output_hidden_states=True)
            states = ours(row.batch, memory=memory)
        memory = states.memory
        for number in range(CONFIG.n_layers + 1):
            assert_close(states[number], theirs.hidden_states[2 * number], 1e-10)
            assert_close(states.queries[number], theirs.hidden_states[2 * number + 1], 1e-10)
        for our_layer, their_layer in zip(memory.states, theirs.mems, strict=True):
            assert_close(our_layer, their_layer.transpose(0, 1), 1e-10)
        assert memory.lengths.tolist() == [theirs.mems[0].shape[0]] * 3


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "fused"])
@pytest.mark.parametrize("remembering", [False, True], ids=["alone", "memory"])
def test_ragged_rows_equal_the_reference(remembering: bool, eager: bool) -> None:
    reference, ours = xlnet()
    ours.eager = eager
    generator = torch.Generator().manual_seed(6)
    memory, mems = None, None
    if remembering:
        before = drawn(generator, (6, 6, 6), 2)
        with torch.no_grad():
            memory = ours(before.batch, memory=ours.new_memory(3)).memory
            mems = reference(**reference_inputs(before), use_mems=True).mems
    row = drawn(generator, (7, 3, 5), 3)
    assert (row.targets < 0).any()
    with torch.no_grad():
        theirs = reference(**reference_inputs(row), mems=mems, output_hidden_states=True)
        states = ours(row.batch, memory=memory)
    pieces, targets = real_pieces(row), row.targets >= 0
    for number in range(CONFIG.n_layers + 1):
        assert_close(states[number][pieces], theirs.hidden_states[2 * number][pieces], 1e-10)
        assert_close(states.queries[number][targets], theirs.hidden_states[2 * number + 1][targets], 1e-10)


def test_attentions_of_both_streams_equal_the_reference() -> None:
    reference, ours = xlnet()
    row = drawn(torch.Generator().manual_seed(8), (7, 7), 4)
    with torch.no_grad():
        theirs = reference(**reference_inputs(row), output_attentions=True).attentions
        found = ours(row.batch, attentions=True).attentions
    assert set(found) == {"self", "query"}
    for number, (content, query) in enumerate(theirs):
        assert_close(found["self"][number], content, 1e-10)
        targets = row.targets[:, None, :, None].expand_as(found["query"][number])  # theirs has a query a piece
        assert_close(found["query"][number], query.gather(2, targets), 1e-10)


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "fused"])
def test_a_content_stream_sees_itself_under_any_mask(eager: bool) -> None:
    """A mask written out, which hides most pieces from themselves: the reference shows them all the same."""
    reference, ours = xlnet()
    ours.eager = eager
    generator = torch.Generator().manual_seed(12)
    pieces = torch.randint(0, CONFIG.n_pieces, (3, 7), generator=generator)
    visible = torch.rand(3, 7, 7, generator=generator) < 0.3
    assert not visible.diagonal(dim1=1, dim2=2).all()
    targets = torch.arange(7).repeat(3, 1)
    with torch.no_grad():
        theirs = reference(
            pieces,
            perm_mask=(~visible).double(),
            target_mapping=F.one_hot(targets, 7).double(),
            output_hidden_states=True,
        )
        states = ours(Batch(pieces, mask=MatrixMask(visible), targets=targets))
    seeing = visible.any(dim=-1)
    assert not seeing.all()
    for number in range(CONFIG.n_layers + 1):
        assert_close(states[number], theirs.hidden_states[2 * number], 1e-10)
        assert_close(states.queries[number][seeing], theirs.hidden_states[2 * number + 1][seeing], 1e-10)


def test_one_stream_over_whole_rows_equals_the_reference() -> None:
    """How XLNet embeds: no targets, every piece sees every piece."""
    reference, ours = xlnet()
    row = drawn(torch.Generator().manual_seed(9), (6, 2, 4), 1)
    batch = dataclasses.replace(row.batch, mask=None, targets=None)
    with torch.no_grad():
        theirs = reference(
            batch.pieces,
            attention_mask=real_pieces(row).double(),
            token_type_ids=batch.segments,
            output_hidden_states=True,
        )
        states = ours(batch)
    assert not states.queries
    for number in range(CONFIG.n_layers + 1):
        kept = real_pieces(row)
        assert_close(states[number][kept], theirs.hidden_states[number][kept], 1e-10)


def test_ragged_segments_remember_real_pieces_only() -> None:
    """Rows that read different numbers of pieces go on as if each had been read by itself."""
    _, ours = xlnet()
    generator = torch.Generator().manual_seed(10)
    first, second = (torch.randint(0, CONFIG.n_pieces, (3, 6), generator=generator) for _ in range(2))
    lengths = torch.tensor([6, 1, 4])
    with torch.no_grad():
        memory = ours(Batch(first, lengths), memory=ours.new_memory(3)).memory
        together = ours(Batch(second), memory=memory)
        for row, length in enumerate(lengths.tolist()):
            alone = ours(Batch(first[row : row + 1, :length]), memory=ours.new_memory(1)).memory
            expected = ours(Batch(second[row : row + 1]), memory=alone)
            assert_close(together[-1][row], expected[-1][0], 1e-10)
    assert memory.lengths.tolist() == [5, 1, 4]


def test_a_first_memory_of_zeros_counts_as_seen() -> None:
    """Transformer-XL begins with a memory of zeros, which takes its share of attention."""
    config = dataclasses.replace(CONFIG, first_memory="zeros")
    _, ours = xlnet(config)
    memory = ours.new_memory(2)
    assert isinstance(memory, Segments)
    assert memory.lengths.tolist() == [5, 5]
    with torch.no_grad():
        weights = ours(Batch(torch.tensor([[3, 4], [5, 6]])), memory=memory, attentions=True).attentions["self"][0]
    assert weights.shape == (2, N_HEADS, 2, 7)
    assert (weights > 0).all()


# --- who sees whom ---------------------------------------------------------------------------------------------------

RANK = torch.tensor([[3, 1, 0, 2]])
"""The order 3 → 2 → 4 → 1, pieces counted from one."""
CONTENT = ["xxxx", ".xx.", "..x.", ".xxx"]
QUERY = [".xxx", "..x.", "....", ".xx."]


def in_order(pieces: Tensor) -> Batch:
    rows = len(pieces)
    return Batch(
        pieces,
        segments=pieces % 2,
        mask=FactorizationOrder(RANK.repeat(rows, 1)),
        targets=torch.arange(4).repeat(rows, 1),
    )


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_who_sees_whom_in_an_order(layer: int) -> None:
    """The content stream sees what came before it in the order, and itself; the query stream never its own piece."""
    _, ours = xlnet()
    pieces = torch.tensor([[8, 20, 31, 44]])

    def content(rows: Tensor) -> Tensor:
        return ours(dataclasses.replace(in_order(rows), segments=None))[layer]

    def query(rows: Tensor) -> Tensor:
        return ours(dataclasses.replace(in_order(rows), segments=None)).queries[layer]

    assert drawing(who_sees_whom(content, pieces, CONFIG.n_pieces)) == CONTENT
    assert drawing(who_sees_whom(query, pieces, CONFIG.n_pieces)) == QUERY


def test_every_stream_sees_the_memory() -> None:
    _, ours = xlnet()
    before, pieces = torch.tensor([[1, 2, 3]]), torch.tensor([[8, 20, 31, 44]])

    def after(rows: Tensor, stream: str) -> Tensor:
        memory = ours(Batch(rows), memory=ours.new_memory(len(rows))).memory
        states = ours(in_order(pieces.repeat(len(rows), 1)), memory=memory)
        return states[-1] if stream == "content" else states.queries[3]

    for stream in ("content", "query"):
        seen = who_sees_whom(lambda rows, stream=stream: after(rows, stream), before, CONFIG.n_pieces)
        assert drawing(seen) == ["xxx"] * 4


def test_a_query_that_sees_nothing_knows_only_itself() -> None:
    """The first in the order: its attention is nothing, and no piece moves it."""
    _, ours = xlnet()
    with torch.no_grad():
        states = ours(in_order(torch.tensor([[8, 20, 31, 44]])), attentions=True)
        weights = states.attentions["query"]
        for number, layer in enumerate(weights):
            assert not layer[:, :, 2].any(), number
            assert_close(layer[:, :, [0, 1, 3]].sum(-1), torch.ones(1, N_HEADS, 3), 1e-12)
        other = ours(in_order(torch.tensor([[9, 21, 32, 45]])))
    assert torch.equal(states.queries[3][0, 2], other.queries[3][0, 2])


def test_targets_need_a_query_stream() -> None:
    without = Transformer(dataclasses.replace(CONFIG, query_stream=False))
    with pytest.raises(ModelError, match="no query stream"):
        without(Batch(torch.tensor([[1, 2]]), targets=torch.tensor([[0]])))

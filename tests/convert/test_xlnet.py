"""XLNet: both streams with orders, targets and memory against the reference, through the family's own table."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import XLNetTokenizer

from convert.two_stacks import PRECISIONS, assert_same_gradients
from polyseme.bundle import count_parameters
from polyseme.convert.xlnet import FAMILY, read_config, write_config
from polyseme.errors import ModelError
from polyseme.parts.masks import FactorizationOrder
from polyseme.recipes.published_sizes import SIZES
from polyseme.text.documents import make_document
from polyseme.text.tokenizer_files import load_tokenizer
from polyseme.types import Batch
from references import assert_close, make_pair, ragged_batch, real
from tiny_models import TEXT, tiny_model
from tolerance import expect

TINY: Any = FAMILY.tiny()
FULL = "XLNetLMHeadModel"


def drawn(generator: torch.Generator, lengths: tuple[int, ...], n_targets: int) -> Batch:
    """Rows with an order each, and the last pieces of the order as targets: each sees at least one key."""
    seed = int(torch.randint(1000, (1,), generator=generator))
    batch = ragged_batch(TINY, seed=seed, lengths=lengths)
    rank = torch.arange(max(lengths)).repeat(len(lengths), 1)
    targets = torch.full((len(lengths), n_targets), -1)
    for row, length in enumerate(lengths):
        rank[row, :length] = torch.randperm(length, generator=generator)
        last = rank[row, :length].argsort()[1:][-n_targets:]  # the first in the order sees nothing
        targets[row, : len(last)] = last
    return dataclasses.replace(batch, mask=FactorizationOrder(rank), targets=targets)


def their_inputs(batch: Batch, dtype: torch.dtype) -> dict[str, Tensor]:
    assert isinstance(batch.mask, FactorizationOrder)
    assert batch.targets is not None
    rank = batch.mask.rank
    return {
        "input_ids": batch.pieces,
        "token_type_ids": batch.segments,
        "attention_mask": real(batch).to(dtype),
        "perm_mask": (rank[:, None, :] >= rank[:, :, None]).to(dtype),
        "target_mapping": F.one_hot(batch.targets + 1, batch.pieces.shape[1] + 1)[:, :, 1:].to(dtype),
    }  # type: ignore[dict-item]


OPTIONS = {
    "as it is": {},
    "all remembered": {"memory_length": None, "reuse": None},
    "any distance": {"clamp_distance": None},
    "as published": {"memory_length": None, "reuse": None, "clamp_distance": None},
}


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_two_streams_with_memory_equal_the_reference(changes: dict[str, Any], dtype: torch.dtype) -> None:
    """Two full segments that are remembered, then a ragged one: layers, queries, logits, loss, gradients."""
    pair = make_pair(FAMILY, FULL, TINY.replace(**changes))
    generator = torch.Generator().manual_seed(4)
    batches = [drawn(generator, lengths, 3) for lengths in ((7, 7, 7), (6, 6, 6), (9, 3, 5))]
    last = batches[-1].targets
    assert last is not None
    assert not (last >= 0).all()
    golds = torch.randint(0, TINY.n_pieces, (int((last >= 0).sum()),), generator=generator)

    def ask_all(reference: Any) -> dict[Any, Tensor]:
        mems, found = None, {}
        for i, batch in enumerate(batches):
            inputs = their_inputs(batch, reference.dtype)
            theirs = reference(**inputs, mems=mems, use_mems=True, output_hidden_states=True)
            mems, targets = theirs.mems, batch.targets >= 0  # type: ignore[operator]
            for number in range(TINY.n_layers + 1):
                content, queries = theirs.hidden_states[2 * number : 2 * number + 2]
                found[i, "content", number], found[i, "queries", number] = content[real(batch)], queries[targets]
            if batch is not batches[-1]:
                found |= {(i, "memory", number): each.transpose(0, 1) for number, each in enumerate(mems)}
            found[i, "logits"] = theirs.logits[targets]
        return {**found, "loss": F.cross_entropy(found[2, "logits"], golds)}

    with torch.no_grad():
        expected = expect(pair.reference, ask_all, dtype)
    ours = pair.ours.to(dtype)
    memory, output = ours.encoder.new_memory(3), ours.outputs["permuted"]
    for i, batch in enumerate(batches):
        states = ours.encoder(batch, memory=memory)
        memory, targets = states.memory, batch.targets >= 0  # type: ignore[operator]
        for number in range(TINY.n_layers + 1):
            expected[i, "content", number].check(states[number][real(batch)])
            expected[i, "queries", number].check(states.queries[number][targets])
        if batch is not batches[-1]:
            assert len(memory.states) == sum(place[:2] == (i, "memory") for place in expected)
            for number, each in enumerate(memory.states):
                expected[i, "memory", number].check(each)
        top = states.queries[TINY.n_layers][targets]
        expected[i, "logits"].check(output.logits(top))
    loss = output.loss(top, golds).mean()
    expected["loss"].check(loss)
    loss.backward()
    assert_same_gradients(pair, lambda reference: ask_all(reference)["loss"], dtype)


def test_attentions_of_both_streams_equal_the_reference() -> None:
    pair = make_pair(FAMILY, FULL)
    batch = drawn(torch.Generator().manual_seed(8), (7, 5), 3)
    assert batch.targets is not None
    with torch.no_grad():
        theirs = pair.reference(**their_inputs(batch, torch.float64), output_attentions=True).attentions
        ours = pair.ours.encoder(batch, attentions=True).attentions
    pieces = real(batch)[:, None, :, None]
    for number, (content, queries) in enumerate(theirs):
        assert_close(ours["self"][number] * pieces, content * pieces, 1e-10)
        places = batch.targets[:, None, :, None].expand_as(ours["query"][number])  # theirs has a query a piece
        assert_close(ours["query"][number], queries.gather(2, places), 1e-10)


def test_the_output_reads_one_stream_too() -> None:
    """Without targets the reference's logits are over the content stream."""
    pair = make_pair(FAMILY, FULL)
    batch = ragged_batch(TINY)
    with torch.no_grad():
        theirs = pair.reference(
            batch.pieces, attention_mask=real(batch).double(), token_type_ids=batch.segments
        ).logits[real(batch)]
        ours = pair.ours.outputs["permuted"].logits(pair.ours.encoder(batch)[-1][real(batch)])
    assert_close(ours, theirs, 1e-10)


# --- configs ---------------------------------------------------------------------------------------------------------

PUBLISHED = """{"architectures": ["XLNetLMHeadModel"], "attn_type": "bi", "bi_data": false, "bos_token_id": 1,
"clamp_len": -1, "d_head": 64, "d_inner": 3072, "d_model": 768, "dropout": 0.1, "end_n_top": 5, "eos_token_id": 2,
"ff_activation": "gelu", "initializer_range": 0.02, "layer_norm_eps": 1e-12, "mem_len": null, "model_type": "xlnet",
"n_head": 12, "n_layer": 12, "pad_token_id": 5, "reuse_len": null, "same_length": false, "start_n_top": 5,
"summary_activation": "tanh", "summary_last_dropout": 0.1, "summary_type": "last", "summary_use_proj": true,
"untie_r": true, "vocab_size": 32000}"""


def test_a_published_config_is_read() -> None:
    theirs = json.loads(PUBLISHED)
    assert read_config(theirs, "config.json") == SIZES["xlnet-base"].config
    theirs["n_token"] = theirs.pop("vocab_size")
    assert read_config(theirs, "config.json") == SIZES["xlnet-base"].config


@pytest.mark.parametrize(
    ("entry", "value"),
    [("attn_type", "uni"), ("bi_data", True), ("same_length", True), ("untie_r", False)],
)
def test_what_no_published_xlnet_has_is_refused(entry: str, value: Any) -> None:
    with pytest.raises(ModelError, match=f"sets '{entry}' to {value!r}"):
        read_config({**write_config(TINY), entry: value}, "config.json")


def test_heads_that_are_not_a_share_of_the_width_are_refused() -> None:
    with pytest.raises(ModelError, match=r"'d_head' must be 'd_model' / 'n_head'\. Got 9"):
        read_config({**write_config(TINY), "d_head": 9}, "config.json")


@pytest.mark.parametrize("nothing", [None, 0, -1])
@pytest.mark.parametrize("entry", ["mem_len", "reuse_len", "clamp_len"])
def test_bounds_that_are_none(entry: str, nothing: int | None) -> None:
    """The reference keeps everything where `mem_len` is 0."""
    config = read_config({**write_config(TINY), entry: nothing}, "config.json")
    names = {"mem_len": "memory_length", "reuse_len": "reuse", "clamp_len": "clamp_distance"}
    assert getattr(config, names[entry]) is None
    assert config.memory == "segment"


def test_a_bound_that_is_no_number_is_refused() -> None:
    with pytest.raises(ModelError, match="'mem_len' must be a whole number"):
        read_config({**write_config(TINY), "mem_len": "all"}, "config.json")


@pytest.mark.parametrize(("name", "count"), [("xlnet-base", 116_718_336), ("xlnet-large", 360_268_800)])
def test_parameter_counts(name: str, count: int) -> None:
    assert count_parameters("xlnet", SIZES[name].config, []) == count


# --- the tokenizer ---------------------------------------------------------------------------------------------------

SYMBOLS = ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]


def test_a_small_unigram_model_gives_the_ids_of_the_reference(tmp_path: Path) -> None:
    """<unk>, <s>, </s>, the six symbols of its own, then the pieces in the file's order; the frame comes last."""
    lines = [line for line in TEXT.replace(". ", ".\n").split("\n") if line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(tmp_path / "spiece"), vocab_size=90, num_threads=1,
        minloglevel=2, hard_vocab_limit=False, control_symbols=SYMBOLS,
    )  # fmt: skip
    theirs = XLNetTokenizer.from_pretrained(tmp_path)
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spiece.model"))
    ours = load_tokenizer(tmp_path, frame="xlnet")
    assert ours.pieces(range(9)) == ["<unk>", "<s>", "</s>", *SYMBOLS]
    assert dict(ours.specials) == {"start": 3, "end": 4, "pad": 5, "unknown": 0, "mask": 6}
    size = model.vocab_size()
    assert ours.n_pieces == len(theirs) == size
    assert ours.pieces(range(9, size)) == [model.id_to_piece(id) for id in range(9, size)]
    encoded = [ours.encode(make_document(line)).ids for line in lines]
    for line, ids in zip(lines, encoded, strict=True):
        found = theirs(line, return_token_type_ids=True)
        assert ours.frame(ids).ids.tolist() == found["input_ids"]
        assert ours.frame(ids).segments.tolist() == found["token_type_ids"]
    pair = ours.frame(encoded[0], encoded[1])
    found = theirs(lines[0], lines[1], return_token_type_ids=True)
    assert pair.ids.tolist() == found["input_ids"]
    assert pair.segments.tolist() == found["token_type_ids"]
    assert ours.frame(np.zeros(0, dtype=np.int64)).ids.tolist() == [4, 3]


# --- what users call -------------------------------------------------------------------------------------------------


def test_embed_and_pieces_read_the_content_stream() -> None:
    model = tiny_model("xlnet")
    [found] = model.embed("Sandy broke the law.", layer="all")
    assert found.vectors.shape == (5, TINY.n_layers + 1, TINY.width)
    assert model.pieces("Sandy broke the law.").pieces[-2:] == ["<sep>", "<cls>"]
    assert model.show().direction == "any-order"

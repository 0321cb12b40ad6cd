"""Causal language modeling: the loss of the reference, padding, documents apart, memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
import torch.nn.functional as F

from objectives.rows import bundle_for, some_rows, tensors, told
from perturbation import drawing, who_sees_whom
from polyseme.convert.families import FAMILIES
from polyseme.objectives.causal import Causal
from polyseme.types import Batch
from references import assert_close, make_pair
from tiny_models import tiny_config


def test_the_loss_equals_the_reference() -> None:
    for family, architecture in (("gpt2", "GPT2LMHeadModel"), ("openai-gpt", "OpenAIGPTLMHeadModel")):
        pair = make_pair(FAMILIES[family], architecture, tiny_config(family))
        objective = told(Causal(), family)
        example = objective.corrupt(some_rows(family))
        arrays = tensors(example)
        pieces = arrays["pieces"].long()
        result = pair.reference(input_ids=pieces, labels=pieces)
        theirs = F.cross_entropy(result.logits[:, :-1].flatten(0, 1), pieces[:, 1:].flatten())
        ours = objective.loss(objective.nets(pair.ours), arrays).parts["causal"] / example.counts["causal"]
        assert example.counts == {"causal": 6 * 23}
        assert_close(ours, theirs, 1e-10)
        assert_close(ours, result.loss, 1e-6)  # its own loss is worked out in float32
        ours.backward()
        theirs.backward()
        table = pair.ours.encoder.piece_table()
        assert table is not None
        assert_close(table.grad, pair.reference.get_input_embeddings().weight.grad, 1e-10)


def test_padding_is_no_target_and_separators_are() -> None:
    """With a tokenizer that has a padding piece; GPT-2's own has none."""
    objective = told(Causal(), "bert")
    rows = some_rows("bert", n_rows=3)
    assert objective.corrupt(rows).counts == {"causal": 3 * 23}
    padded = rows.pieces.copy()
    pad = objective.vocabulary.pad
    padded[0, 10:] = pad
    padded[2, 20:] = pad
    example = objective.corrupt(dataclasses.replace(rows, pieces=padded))
    assert example.counts == {"causal": 9 + 23 + 19}
    bundle = bundle_for(Causal(), n_pieces=objective.vocabulary.n_pieces).double()
    nets = objective.nets(bundle)
    whole = nets(tensors(example))[0]["causal"]
    alone = [
        nets({"pieces": torch.from_numpy(padded[row : row + 1, :length])})[0]["causal"]
        for row, length in enumerate((10, 24, 20))
    ]
    assert_close(whole, torch.stack(alone).sum(), 1e-12)


def test_documents_apart_do_not_see_each_other_and_count_anew() -> None:
    objective = told(Causal())
    rows = some_rows("gpt2", n_rows=2, mask_documents=True)
    assert rows.documents is not None
    assert rows.documents.max() > 0
    nets = objective.nets(bundle_for(objective).double())
    together = nets(tensors(objective.corrupt(rows)))[0]["causal"]
    apart = 0.0
    for pieces, documents in zip(rows.pieces, rows.documents, strict=True):
        for number in np.unique(documents):
            its = torch.from_numpy(pieces[documents == number])[None]
            states = nets.encoder(Batch(its), layers=[-1])[-1][0]
            after = torch.from_numpy(pieces[1:][documents[:-1] == number])
            apart = apart + nets.output.loss(states[: len(after)], after).sum()
    assert_close(together, apart, 1e-12)


def test_who_sees_whom_with_documents_apart() -> None:
    objective = told(Causal())
    nets = objective.nets(bundle_for(objective).double())
    documents = torch.tensor([[0, 0, 0, 1, 1, 2]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 0]])
    seen: list[torch.Tensor] = []
    nets.encoder.register_forward_hook(lambda *args: seen.append(args[-1][-1]))

    def states_of(pieces: torch.Tensor) -> torch.Tensor:
        n = len(pieces)
        nets({"pieces": pieces, "documents": documents.expand(n, -1), "positions": positions.expand(n, -1)})
        return seen[-1]

    picture = drawing(who_sees_whom(states_of, torch.tensor([[11, 12, 13, 14, 15, 16]]), 90))
    assert picture == ["x.....", "xx....", "xxx...", "...x..", "...xx.", ".....x"]


def test_memory_goes_on_from_one_call_to_the_next() -> None:
    """Two halves with memory say what one pass says, but for the piece between them, which neither predicts."""
    objective = told(Causal())
    nets = objective.nets(bundle_for(objective).double())
    pieces = torch.from_numpy(some_rows("gpt2", n_rows=2).pieces)
    with torch.no_grad():
        states = nets.encoder(Batch(pieces), layers=[-1])[-1]
        losses = nets.output.loss(states[:, :-1].flatten(0, 1), pieces[:, 1:].flatten()).view(2, -1)
        first = objective.loss(nets, {"pieces": pieces[:, :10]}, nets.encoder.new_memory(2))
        second = objective.loss(nets, {"pieces": pieces[:, 10:]}, first.memory)
    assert first.memory is not None
    assert_close(first.parts["causal"] + second.parts["causal"], losses.sum() - losses[:, 9].sum(), 1e-12)

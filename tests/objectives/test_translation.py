"""Translation: what the decoder reads, what counts, smoothing, and pairs that share a row."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from objectives.rows import NO_DROPOUT, bundle_for, redrawn, some_of, some_rows, tensors, told
from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.corpus.padded_pairs import PaddedPairs
from polyseme.errors import OptionError
from polyseme.objectives.objective import batch_of, training_flops
from polyseme.objectives.objective_table import check_needs
from polyseme.objectives.translation import Translation
from polyseme.types import Batch, Rows
from tiny_models import tiny_config, tiny_tokenizer

FAMILY = "transformer"


def nets_for(**settings: Any) -> tuple[Any, Any]:
    objective = told(Translation(**settings))
    return objective, redrawn(objective.nets(bundle_for(objective)), 0.3).double()


def test_the_loss_is_that_of_every_pair_by_itself() -> None:
    """The decoder reads the start and all pieces but the last, and is asked for all pieces."""
    objective, nets = nets_for(smoothing=0.0)
    rows = some_rows(FAMILY, n_rows=4)
    example = objective.corrupt(rows)
    start = objective.vocabulary.specials["start"]
    assert rows.target is not None
    expected, n_targets = 0.0, 0
    with torch.no_grad():
        for row in range(4):
            for number in (0, 1):
                source = torch.from_numpy(rows.pieces[row][rows.documents[row] == number])[None]  # type: ignore[index]
                target = torch.from_numpy(rows.target.pieces[row][rows.target.documents[row] == number])[None]  # type: ignore[index]
                read = torch.cat([torch.tensor([[start]]), target[:, :-1]], dim=1)
                states = nets.decoder(Batch(read, source=nets.encoder(Batch(source))))[-1][0]
                expected += float(F.cross_entropy(nets.output.logits(states), target[0], reduction="sum"))
                n_targets += target.shape[1]
        found = nets(tensors(example))[0]["translation"]
    assert example.counts == {"translation": n_targets}
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_labels_are_smoothed_in_training_only() -> None:
    """(1 - e) · loss + e · the mean loss of all pieces; an evaluation says what targets cost."""
    objective, nets = nets_for(smoothing=0.1)
    plain, plain_nets = nets_for(smoothing=0.0)
    arrays = tensors(objective.corrupt(some_rows(FAMILY, n_rows=3)))
    with torch.no_grad():
        expected = float(plain_nets(arrays)[0]["translation"])
        assert float(nets.eval()(arrays)[0]["translation"]) == pytest.approx(expected, rel=1e-12)
        smoothed = float(nets.train()(arrays)[0]["translation"])
        batch = nets._target(arrays, arrays["targets"].long())
        batch.source = nets.encoder(batch_of(arrays, arrays["pieces"].long()))
        logs = nets.output.log_probs(nets.decoder(batch)[-1])
        even = -(logs.mean(-1) * arrays["weights"]).sum()
    assert smoothed == pytest.approx(0.9 * expected + 0.1 * float(even), rel=1e-10)
    with pytest.raises(OptionError, match="smoothing of labels"):
        Translation(smoothing=1.0)
    assert plain.weights == {"translation": 1.0}


def test_a_row_is_the_same_in_any_batch() -> None:
    objective = told(Translation())
    rows = some_rows(FAMILY, n_rows=6)
    together = objective.corrupt(rows).arrays
    for name, array in objective.corrupt(some_of(rows, [4, 1])).arrays.items():
        assert np.array_equal(array, together[name][[4, 1]])


def test_operations_of_two_stacks() -> None:
    """Two for each weight and piece; the source's keys and values are made of the source's pieces."""
    _, nets = nets_for()
    first, second = nets.encoder.config, nets.decoder.config
    width, inner, source, target = first.width, first.width, 20, 12
    encoder = first.n_layers * (4 * width * inner + 2 * width * first.inner_width)
    read = 2 * source * encoder + 4 * source**2 * first.n_layers * inner
    by_target = second.n_layers * (4 * width * inner + 2 * width * inner + 2 * width * second.inner_width)
    by_source = second.n_layers * 2 * width * inner
    pairs = second.n_layers * inner * (target**2 + target * source)
    written = 2 * target * by_target + 2 * source * by_source + 4 * pairs
    output = 2 * target * width * first.n_pieces
    assert training_flops(nets, 3, source, target) == 3 * 3 * (read + written + output)


# --- one pair in a row -----------------------------------------------------------------------------------------------


def rows_of_one_pair(n_rows: int) -> Rows:
    """The second pairs of some rows, each at the start of a row of its own."""
    shared = some_rows(FAMILY, n_rows=n_rows)

    def alone(side: Rows) -> Rows:
        assert side.documents is not None
        ours = [side.pieces[row][side.documents[row] == 1] for row in range(n_rows)]
        pieces = np.full_like(side.pieces, 3)
        for row, each in enumerate(ours):
            pieces[row, : len(each)] = each
        lengths = np.array([len(each) for each in ours])
        return dataclasses.replace(side, pieces=pieces, lengths=lengths, documents=None, positions=None, target=None)

    assert shared.target is not None
    return dataclasses.replace(alone(shared), target=alone(shared.target))


def test_recurrent_stacks_read_one_pair_in_a_row() -> None:
    """The loss is that of every pair by itself, whatever the padding; rows that pairs share are refused."""
    objective = told(Translation(smoothing=0.0, packed=False))
    config = tiny_config("seq2seq", **{name: 0.0 for name in NO_DROPOUT if hasattr(tiny_config("seq2seq"), name)})
    bundle = new_bundle(FAMILIES["seq2seq"], config, ["causal"], tiny_tokenizer("seq2seq"))
    nets = redrawn(objective.nets(bundle), 0.3).double()
    rows = rows_of_one_pair(5)
    example = objective.corrupt(rows)
    assert isinstance(objective.needs.layout, PaddedPairs)
    assert rows.target is not None
    expected, start = 0.0, objective.vocabulary.specials["start"]
    with torch.no_grad():
        for row in range(5):
            source, target = (
                torch.from_numpy(side.pieces[row : row + 1, : side.lengths[row]])  # type: ignore[index]
                for side in (rows, rows.target)
            )
            read = torch.cat([torch.tensor([[start]]), target[:, :-1]], dim=1)
            states = nets.decoder(Batch(read, source=nets.encoder(Batch(source))))[-1][0]
            expected += float(F.cross_entropy(nets.output.logits(states), target[0], reduction="sum"))
        found = float(nets(tensors(example))[0]["translation"])
    assert found == pytest.approx(expected, rel=1e-10)
    assert example.counts == {"translation": rows.target.lengths.sum()}  # type: ignore[union-attr]
    objective.refuse(bundle)
    with pytest.raises(OptionError, match=r"mask, which an encoder of kind 'recurrent'.*packed=false"):
        told(Translation()).refuse(bundle)


def test_an_encoder_that_reads_forwards_will_do_but_not_one_stack_alone() -> None:
    """Dai and Le's autoencoder reads forwards; what it has read reaches the decoder as its last state."""
    objective = Translation(packed=False, smoothing=0.0).for_tokenizer(tiny_tokenizer("seq2seq"))
    config = tiny_config("seq2seq", reads="forwards", memory="state")
    bundle = redrawn(new_bundle(FAMILIES["seq2seq"], config, ["causal"], tiny_tokenizer("seq2seq")), 0.3)
    check_needs(objective, bundle, tiny_tokenizer("seq2seq"))
    arrays = tensors(objective.corrupt(rows_of_one_pair(3)))
    nets = objective.nets(bundle)
    nets(arrays)[0]["translation"].backward()
    for name, parameter in bundle.encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name  # noqa: PT018
    with pytest.raises(OptionError, match="needs a decoder"):
        check_needs(objective, new_bundle(FAMILIES["lstm"], tiny_config("lstm"), ["causal"]), tiny_tokenizer("lstm"))

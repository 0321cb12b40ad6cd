"""Permutation language modeling: its draws, and what the paper says that orders and two streams are for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from objectives.rows import bundle_for, redrawn, some_of, some_rows, tensors, told
from perturbation import drawing, who_sees_whom
from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.corpus.random_keys import row_keys
from polyseme.errors import ModelError, OptionError
from polyseme.objectives.masked import Masked
from polyseme.objectives.permuted import Permuted, choose_in_windows, turns
from polyseme.parts.masks import FactorizationOrder
from polyseme.types import Batch, Rows
from references import assert_close

PERMUTED = told(Permuted())


def small(n_pieces: int = 40, **changes: Any) -> Bundle:
    """An XLNet over few pieces, in float64."""
    torch.manual_seed(1)
    still = {"inner_dropout_rate": 0.0, "clamp_distance": None, "reuse": None}
    config = FAMILIES["xlnet"].tiny().replace(n_pieces=n_pieces, n_layers=2, **{**still, **changes})
    return redrawn(new_bundle(FAMILIES["xlnet"], config, ["permuted"]), 0.3).double().eval()


@torch.no_grad()
def guesses(bundle: Bundle, pieces: Tensor, order: tuple[int, ...], targets: list[int]) -> Tensor:
    """[R, K]: the log-probabilities of the pieces at these places, in this order of all places."""
    ranks = torch.empty(len(order), dtype=torch.long)
    ranks[torch.tensor(order)] = torch.arange(len(order))
    n_rows = len(pieces)
    batch = Batch(
        pieces,
        segments=torch.zeros_like(pieces),
        mask=FactorizationOrder(ranks.repeat(n_rows, 1)),
        targets=torch.tensor(targets).repeat(n_rows, 1),
    )
    states = bundle.encoder(batch, layers=[-1]).queries[2]
    said = bundle.outputs["permuted"].log_probs(states.flatten(0, 1)).unflatten(0, states.shape[:2])
    return said.gather(2, pieces[:, targets][:, :, None])[:, :, 0]


# --- what is drawn ---------------------------------------------------------------------------------------------------


def test_one_in_six_pieces_is_a_target_in_spans() -> None:
    keys = row_keys(0, 0, np.arange(600))
    chosen = choose_in_windows((600, 240), 6, 5, keys)
    assert chosen.mean() == pytest.approx(1 / 6, abs=0.01)
    runs = [len(list(run)) for row in chosen for is_on, run in itertools.groupby(row) if is_on]
    counts = np.bincount(runs, minlength=6)
    shares = counts[1:6] / counts.sum()
    assert shares == pytest.approx(np.array([60, 30, 20, 15, 12]) / 137, abs=0.05)  # 1/n, but for spans that meet
    assert chosen[:, :200].mean(axis=0).min() > 0.08


def test_targets_are_as_frequent_at_the_ends_of_rows_as_elsewhere() -> None:
    rows = some_rows("xlnet", n_rows=6000, length=48)
    arrays = PERMUTED.corrupt(rows).arrays
    real, allowed = arrays["weights"] > 0, ~rows.special
    assert set(real.sum(axis=1).tolist()) == set(np.rint(allowed.sum(axis=1) / 6).astype(int).tolist())
    chosen = arrays["ranks"] > 0
    assert not chosen[rows.special].any()
    often = allowed.all(axis=0)
    shares = chosen.mean(axis=0)[often]
    assert shares == pytest.approx(np.full(len(shares), real.sum() / allowed.sum()), abs=0.03)  # 6 standard errors
    runs = [len(list(run)) for row in chosen for is_on, run in itertools.groupby(row) if is_on]
    assert np.mean(runs) > 1.5, "most are in spans"


def test_targets_have_turns_in_random_order_and_the_rest_comes_first() -> None:
    rows = some_rows("xlnet", n_rows=300, length=48)
    arrays = PERMUTED.corrupt(rows).arrays
    real = arrays["weights"] > 0
    assert arrays["places"].shape == (300, 8)
    assert (arrays["places"][~real] == -1).all()
    assert real.mean() > 0.7
    firsts = []
    for row in range(300):
        places = arrays["places"][row][real[row]]
        assert not rows.special[row, places].any()
        assert np.array_equal(arrays["targets"][row][real[row]], rows.pieces[row, places])
        ranks = arrays["ranks"][row]
        assert sorted(ranks[places]) == list(range(1, len(places) + 1))
        assert not np.delete(ranks, places).any()
        firsts.append(np.argmin(ranks[places]))
    assert np.bincount(firsts, minlength=7)[:5].min() > 20
    assert set(arrays["segments"][0].tolist()) == {0, 2}
    assert arrays["segments"][:, -1].tolist() == [2] * 300  # <cls> comes last


def test_every_order_of_three_targets_is_as_likely() -> None:
    chosen = np.zeros((6000, 10), np.bool_)
    chosen[:, [1, 4, 7]] = True
    found = turns(chosen, row_keys(1, 0, np.arange(6000)))[:, [1, 4, 7]]
    counts = [int((found == order).all(axis=1).sum()) for order in itertools.permutations((1, 2, 3))]
    assert sum(counts) == 6000
    assert min(counts) > 850


@pytest.mark.parametrize("settings", [{}, {"unit": "piece"}, {"one_in": 2, "longest_span": 1}, {"memory": True}])
def test_a_row_is_corrupted_alike_in_any_batch(settings: dict[str, Any]) -> None:
    objective = told(Permuted(**settings))
    rows = some_rows("xlnet", n_rows=8)
    together = objective.corrupt(rows).arrays
    for which in ([3], [7, 0]):
        for name, array in objective.corrupt(some_of(rows, which)).arrays.items():
            assert np.array_equal(array, together[name][which])


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(OptionError, match="at least 1"):
        Permuted(one_in=0)
    with pytest.raises(OptionError, match="span or piece"):
        Permuted(unit="word")  # type: ignore[arg-type]


def test_the_loss_is_that_of_the_queries() -> None:
    """Written out from the encoder: only what the order lets a target see counts."""
    objective = told(Permuted(one_in=3))
    nets: Any = objective.nets(bundle_for(objective)).double().eval()
    rows = some_rows("xlnet", n_rows=3)
    example = objective.corrupt(rows)
    arrays = tensors(example)
    whole = float(nets(arrays)[0]["permuted"].detach())
    total = 0.0
    for row in range(3):
        for place in example.arrays["places"][row]:
            if place < 0:
                continue
            ranks = example.arrays["ranks"][row]
            hidden = rows.pieces.copy()
            hidden[row, (ranks >= ranks[place])] = 5  # neither the piece nor what comes after it
            batch = Batch(
                torch.from_numpy(hidden[[row]]),
                segments=arrays["segments"][[row]].long(),
                mask=FactorizationOrder(arrays["ranks"][[row]].long()),
                targets=torch.tensor([[place]]),
            )
            state = nets.encoder(batch, layers=[-1]).queries[3][0]
            total += float(nets.output.loss(state, torch.tensor([rows.pieces[row, place]])).detach())
    assert whole == pytest.approx(total, rel=1e-10)


# --- what the paper says ---------------------------------------------------------------------------------------------

ROCK = torch.tensor([[3, 11, 7]])
"""The Rock rules."""
ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_the_six_orders_of_the_rock_rules(order: tuple[int, ...]) -> None:
    """Each piece is guessed from those before it in the order, and from no other."""
    bundle = small()
    for place in range(3):

        def query(rows: Tensor, place: int = place) -> Tensor:
            ranks = torch.tensor([[order.index(each) for each in range(3)]]).repeat(len(rows), 1)
            targets = torch.full((len(rows), 1), place)
            return bundle.encoder(Batch(rows, mask=FactorizationOrder(ranks), targets=targets)).queries[2]

        before = order[: order.index(place)]
        assert drawing(who_sees_whom(query, ROCK, 40)) == ["".join("x" if k in before else "." for k in range(3))]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_every_order_gives_a_distribution_over_whole_texts(order: tuple[int, ...]) -> None:
    """The chances of all texts of three pieces add up to one, whichever piece is guessed first."""
    bundle = small(n_pieces=5)
    texts = torch.tensor(list(itertools.product(range(5), repeat=3)))
    logs = guesses(bundle, texts, order, [0, 1, 2]).sum(dim=1)
    assert float(logs.exp().sum()) == pytest.approx(1.0, abs=1e-10)
    assert logs.std() > 0.1


def test_one_stream_cannot_know_where_its_target_stands_and_two_can() -> None:
    """After pieces 2 and 3, the next one stands at 0 or at 1: the content stream says the same of both.

    (After one piece alone not even two streams could tell: a distance is known by how it shifts attention.)
    """
    bundle = small()
    pieces = torch.tensor([[3, 11, 7, 20]])
    found = []
    for order in ((2, 3, 0, 1), (2, 3, 1, 0)):
        ranks = torch.tensor([[order.index(place) for place in range(4)]])
        target = torch.tensor([[order[2]]])
        with torch.no_grad():
            states = bundle.encoder(Batch(pieces, mask=FactorizationOrder(ranks), targets=target))
        found.append((states[-1][0, 3], states.queries[2][0, 0]))
    assert torch.equal(found[0][0], found[1][0])
    assert (found[0][1] - found[1][1]).abs().max() > 1e-2


NEW_YORK = torch.tensor([[21, 22, 5, 6, 7]])
"""New York is a city."""


def test_one_pass_is_the_sum_of_two_conditional_ones() -> None:
    """log p(New | is a city) + log p(York | New, is a city); what is not yet guessed does not matter."""
    bundle = small()
    order = (2, 3, 4, 0, 1)
    together = guesses(bundle, NEW_YORK, order, [0, 1])[0]
    without_york, of_york = NEW_YORK.clone(), NEW_YORK.clone()
    without_york[0, 1] = 9
    new = guesses(bundle, without_york, order, [0])[0, 0]
    york = guesses(bundle, of_york, order, [1])[0, 0]
    assert float(together.sum()) == pytest.approx(float(new + york), abs=1e-10)
    other = NEW_YORK.clone()
    other[0, 0] = 23  # Old York
    assert abs(float(guesses(bundle, other, order, [1])[0, 0] - york)) > 1e-3


@torch.no_grad()
def test_a_masked_model_guesses_york_without_new() -> None:
    """With both masked, the chance of York is p(York | is a city), whatever stands beside it, and the sum differs."""
    objective = told(Masked())
    bundle: Any = bundle_for(objective).double().eval()
    mask = objective.vocabulary.mask

    def log_probs(pieces: list[int], hidden: list[int]) -> Tensor:
        row = torch.tensor([pieces])
        row[0, hidden] = mask
        states = bundle.encoder(Batch(row), layers=[-1])[-1][0, hidden]
        return bundle.outputs["masked"].log_probs(states).gather(1, torch.tensor([pieces])[0, hidden][:, None])[:, 0]

    new, york = log_probs([21, 22, 5, 6, 7], [0, 1])
    york_after_old = log_probs([23, 22, 5, 6, 7], [0, 1])[1]
    york_after_new = log_probs([21, 22, 5, 6, 7], [1])[0]
    assert float(york) == float(york_after_old)
    assert abs(float(new + york) - float(new + york_after_new)) > 1e-3


def test_two_segments_with_memory_are_one_long_row_where_they_should_be() -> None:
    """The second sees the first, and the first does not see the second: in one row, an order of two turns."""
    bundle = small(memory_length=20)
    pieces = torch.randint(0, 40, (2, 14), generator=torch.Generator().manual_seed(2))
    places = torch.tensor([[11, 13], [8, 12]])
    ranks = torch.zeros(2, 14, dtype=torch.long)
    ranks[:, 8:] = 1
    ranks.scatter_(1, places, torch.tensor([[2, 3], [3, 2]]))
    segments = torch.zeros_like(pieces)
    with torch.no_grad():
        long = bundle.encoder(Batch(pieces, segments=segments, mask=FactorizationOrder(ranks), targets=places))
        first = bundle.encoder(Batch(pieces[:, :8], segments=segments[:, :8]), memory=bundle.encoder.new_memory(2))
        second = bundle.encoder(
            Batch(pieces[:, 8:], segments=segments[:, 8:], mask=FactorizationOrder(ranks[:, 8:]), targets=places - 8),
            memory=first.memory,
        )
    for layer in range(1, 3):
        assert_close(first[layer], long[layer][:, :8], 1e-10)
        assert_close(second[layer], long[layer][:, 8:], 1e-10)
        assert_close(second.queries[layer], long.queries[layer], 1e-10)


def test_a_memory_of_another_batch_is_refused() -> None:
    bundle = small()
    with pytest.raises(ModelError, match="memory is of 3 rows and the batch of 2"):
        bundle.encoder(Batch(torch.ones(2, 4, dtype=torch.long)), memory=bundle.encoder.new_memory(3))


def test_streams_are_read_on() -> None:
    """Rows of streams have no frame: every piece is of one segment, and the memory comes back."""
    objective = told(Permuted(memory=True, one_in=2))
    nets: Any = objective.nets(bundle_for(objective)).double().eval()
    rows = some_rows("xlnet", n_rows=2, length=20)
    plain = Rows(pieces=rows.pieces, starts=rows.starts, special=np.zeros_like(rows.special), keys=rows.keys)
    arrays = tensors(objective.corrupt(plain))
    assert not arrays["segments"].any()
    with torch.no_grad():
        parts, memory = nets(arrays, nets.new_memory(2))
        later, _ = nets(arrays, memory)
    assert memory is not None
    assert float(parts["permuted"]) != float(later["permuted"])

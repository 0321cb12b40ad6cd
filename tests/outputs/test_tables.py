"""Outputs over the table of pieces, and over tables of clusters, by their definitions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from polyseme.outputs.pieces import TableOutput
from polyseme.outputs.softmaxes import ClusteredOutput
from polyseme.parts.embeddings import Clusters


@pytest.mark.parametrize("bias", ["none", "learned", "kept"])
def test_logits_are_scaled_and_biased(bias: str) -> None:
    torch.manual_seed(1)
    output = TableOutput(4, 7, scale=0.5, bias=bias)  # type: ignore[arg-type]
    nn.init.normal_(output.table)
    states, targets = torch.randn(5, 4), torch.tensor([0, 6, 3, 3, 1])
    expected = 0.5 * states @ output.table.T
    if output.bias is not None:
        with torch.no_grad():
            output.bias.normal_()
        expected = expected + output.bias
    assert (output.bias is None) == (bias == "none")
    assert ("bias" in dict(output.named_parameters())) == (bias == "learned")
    assert ("bias" in dict(output.named_buffers())) == (bias == "kept")
    torch.testing.assert_close(output.logits(states), expected)
    torch.testing.assert_close(output.log_probs(states), expected.log_softmax(-1))
    torch.testing.assert_close(output.loss(states, targets), -expected.log_softmax(-1)[torch.arange(5), targets])


def test_a_table_is_shared_unless_it_is_its_own() -> None:
    table = nn.Parameter(torch.zeros(7, 4))
    for tied in (True, False):
        output = TableOutput(4, 7, tied=tied)
        output.tie(table)
        assert (output.table is table) == tied


@pytest.mark.parametrize("narrowing", [1, 2])
@pytest.mark.parametrize("cutoffs", [(), (3,), (3, 6)])
def test_clusters_are_one_distribution(cutoffs: tuple[int, ...], narrowing: int) -> None:
    """Losses are minus the log-probabilities, whichever cluster a target is in; none of a batch may be in one."""
    torch.manual_seed(2)
    output = ClusteredOutput(8, 8, 10, cutoffs=cutoffs, narrowing=narrowing).double()
    for parameter in output.parameters():
        nn.init.normal_(parameter)
    states = torch.randn(10, 8).double()
    log_probs = output.log_probs(states)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(10).double())
    for targets in (torch.arange(10), torch.zeros(10, dtype=torch.long), torch.full((10,), 9)):
        torch.testing.assert_close(output.loss(states, targets), -log_probs.gather(1, targets[:, None])[:, 0])


def test_a_piece_is_looked_up_in_its_own_cluster() -> None:
    torch.manual_seed(3)
    clusters = Clusters(10, 8, 6, cutoffs=(3, 7), narrowing=2)
    pieces = torch.tensor([[0, 2, 3], [6, 7, 9]])
    found = clusters(pieces)
    assert [table.weight.shape for table in clusters.tables] == [(3, 8), (4, 4), (3, 2)]
    places = {0: (0, 0), 2: (0, 2), 3: (1, 0), 6: (1, 3), 7: (2, 0), 9: (2, 2)}
    for row, column in ((row, column) for row in range(2) for column in range(3)):
        cluster, place = places[int(pieces[row, column])]
        expected = clusters.maps[cluster].weight @ clusters.tables[cluster].weight[place]
        torch.testing.assert_close(found[row, column], expected)


def test_clusters_of_one_width_are_one_table() -> None:
    clusters = Clusters(10, 6, 6, cutoffs=(3, 7), narrowing=1)
    assert torch.equal(clusters(torch.tensor([1, 8])), clusters.tables[0].weight[[1, 8]])
    assert sum(parameter.numel() for parameter in clusters.parameters()) == 60

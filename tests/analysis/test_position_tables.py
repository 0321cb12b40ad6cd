"""Positions as tables: the weights, formulas and biases that a model's forward pass uses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polyseme.analysis.position_tables import drawn_positions
from tiny_models import tiny_model


def test_learned_positions_begin_behind_the_offset() -> None:
    model = tiny_model("roberta")
    [table] = drawn_positions(model.bundle, n=5)
    weights = dict(model.bundle.encoder.named_parameters())["embeddings.positions.table.weight"]
    assert (table.kind, table.first, table.rows, table.columns) == ("learned", 0, "position", "dimension")
    assert np.array_equal(table.values, weights[2:7].detach().double().numpy())


def test_no_more_positions_than_there_are() -> None:
    model = tiny_model("bert")
    [table] = drawn_positions(model.bundle, n=10_000)
    assert len(table.values) == model.bundle.config.max_positions


def test_sinusoids_equal_their_formula() -> None:
    [both] = drawn_positions(tiny_model("transformer").bundle, n=20)
    assert both.stack == "encoder and decoder"
    n, width = both.values.shape
    angles = np.arange(n)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    expected = {
        "halves": np.concatenate([np.sin(angles), np.cos(angles)], axis=1),
        "interleaved": np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, width),
    }[tiny_model("transformer").bundle.config.sinusoids]
    np.testing.assert_allclose(both.values, expected, atol=1e-5)


def test_distances_of_xlnet_are_sinusoids_in_halves() -> None:
    bundle = tiny_model("xlnet").bundle
    [table] = drawn_positions(bundle, n=20)
    width = table.values.shape[1]
    clamp: int = bundle.config.clamp_distance  # type: ignore[attr-defined]
    assert clamp < 20
    angles = np.minimum(np.arange(20), clamp)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    assert table.rows == "distance"
    np.testing.assert_allclose(table.values, np.concatenate([np.sin(angles), np.cos(angles)], axis=1), atol=1e-5)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_biases_of_t5_are_those_between_pieces(stack: str) -> None:
    bundle = tiny_model("t5").bundle
    [table] = [each for each in drawn_positions(bundle, n=9) if each.stack == stack]
    encoder = bundle.encoder if stack == "encoder" else bundle.decoder
    places = torch.arange(9)[None]
    bias = encoder.positions(places, places)[0].detach().double().numpy()  # type: ignore[union-attr,operator]
    for query in range(9):
        for key in range(9 if stack == "encoder" else query + 1):
            np.testing.assert_array_equal(table.values[key - query - table.first], bias[:, query, key])


def test_rotary_angles_turn_by_position() -> None:
    bundle = tiny_model("modernbert").bundle
    [table] = drawn_positions(bundle, n=7)
    head_width = bundle.config.width // bundle.config.n_heads  # type: ignore[attr-defined]
    base = float(bundle.config.positions.split(":")[1])  # type: ignore[attr-defined]
    angles = np.arange(7)[:, None] / base ** (np.arange(0, head_width, 2) / head_width)
    np.testing.assert_allclose(table.values, np.cos(angles), atol=1e-5)


@pytest.mark.parametrize("family", ["elmo", "lstm", "static"])
def test_recurrent_and_static_models_have_none(family: str) -> None:
    assert drawn_positions(tiny_model(family).bundle) == []

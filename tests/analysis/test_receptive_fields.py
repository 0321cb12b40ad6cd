"""Which pieces the states of a layer depend on: what the direction of a model says, its windows, halves and stacks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from polyseme.analysis.receptive_fields import Part, ReceptiveField, receptive_fields
from polyseme.convert.families import FAMILIES
from polyseme.errors import OptionError
from tiny_models import tiny_model

Bools = NDArray[np.bool_]
LENGTH = 8


def layer_of(fields: list[ReceptiveField], part: Part, layer: int) -> Bools:
    [field] = [each for each in fields if each.part == part and layer in each.layers]
    return field.depends


def distances(n: int) -> NDArray[np.int64]:
    """[n, n]: how far a piece (column) is ahead of a state (row)."""
    return np.arange(n)[None, :] - np.arange(n)[:, None]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_the_direction_says(family: str) -> None:
    bundle = tiny_model(family).bundle
    fields = receptive_fields(bundle, length=LENGTH)
    bottom, top = (layer_of(fields, "encoder", layer) for layer in (0, bundle.config.depth))
    ahead = distances(len(top))
    assert (bottom == (ahead == 0)).all()
    assert top.diagonal().all()
    behind, before = top[ahead > 0], top[ahead < 0]
    match bundle.config.direction:
        case "none":
            assert not behind.any()
            assert not before.any()
        case "causal":
            assert behind.any() == bundle.config.reads_backwards
            assert before.any() != bundle.config.reads_backwards
        case _:
            assert behind.any()
            assert before.any()
    for part in {field.part for field in fields}:
        layers = [layer for field in fields if field.part == part for layer in field.layers]
        assert layers == list(range("half" in part, layers[-1] + 1))


def test_layers_that_are_alike_are_one() -> None:
    fields = receptive_fields(tiny_model("bert").bundle, length=LENGTH)
    assert [field.layers for field in fields] == [(0,), (1, 2, 3)]
    assert fields[1].depends.all()
    assert fields[1].pieces[0] == "[CLS]"


def test_the_halves_of_a_two_way_model_never_meet() -> None:
    fields = receptive_fields(tiny_model("elmo").bundle, length=LENGTH)
    ahead = distances(LENGTH)
    for layer in (1, 2):
        assert (layer_of(fields, "forward half", layer) == (ahead <= 0)).all()
        assert (layer_of(fields, "backward half", layer) == (ahead >= 0)).all()
        assert layer_of(fields, "encoder", layer).all()


def test_a_window_grows_with_the_layers() -> None:
    """With a band of W pieces each layer reaches W − 1 further back."""
    bundle = tiny_model("causal-transformer", masks=("band:3",), n_layers=3).bundle
    fields = receptive_fields(bundle, length=LENGTH)
    ahead = distances(LENGTH)
    for layer in (1, 2, 3):
        assert (layer_of(fields, "encoder", layer) == ((ahead <= 0) & (ahead >= -2 * layer))).all()


@pytest.mark.parametrize("family", ["bart", "seq2seq"])
def test_a_decoder_sees_its_past_and_all_of_its_source(family: str) -> None:
    bundle = tiny_model(family).bundle
    fields = receptive_fields(bundle, length=LENGTH)
    assert bundle.decoder is not None
    top = bundle.decoder.config.depth
    n = len(fields[0].pieces)
    assert (layer_of(fields, "decoder", top) == (distances(n) <= 0)).all()
    assert layer_of(fields, "decoder to source", top).all()
    assert not layer_of(fields, "decoder to source", 0).any()


@pytest.mark.parametrize("length", [1, 257])
def test_lengths_that_are_refused(length: int) -> None:
    with pytest.raises(OptionError, match=f"from 2 to 256 pieces. Got {length} instead"):
        receptive_fields(tiny_model("bert").bundle, length=length)

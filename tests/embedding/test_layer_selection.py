"""What each `--layer` means, against NumPy over the states of every layer; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from polyseme.api import Model
from polyseme.config import Direction, EncoderConfig
from polyseme.embedding.layer_selection import parse_layers
from polyseme.errors import OptionError
from tiny_models import tiny_model

Array = NDArray[Any]
TEXT = "The burglar broke into the unbelievable house."
DEPTH = 3

MEANINGS: dict[str, Callable[[Array], Array]] = {
    "0": lambda states: states[0],
    "2": lambda states: states[2],
    "3": lambda states: states[3],
    "-1": lambda states: states[3],
    "-4": lambda states: states[0],
    "all": lambda states: states.transpose(1, 0, 2),
    "sum:0:2": lambda states: states[0] + states[1] + states[2],
    "sum:-2:-1": lambda states: states[2] + states[3],
    "sum:1:-1": lambda states: states[1] + states[2] + states[3],
    "mean:-2:-1": lambda states: (states[2] + states[3]) / 2,
    "mean:0:3": lambda states: states.mean(axis=0),
    "mean:1:1": lambda states: states[1],
    "concat:-2:-1": lambda states: np.concatenate([states[2], states[3]], axis=-1),
    "concat:0:2": lambda states: np.concatenate([states[0], states[1], states[2]], axis=-1),
    "mix:last3:0.2,0.3,0.5": lambda states: 0.2 * states[1] + 0.3 * states[2] + 0.5 * states[3],
    "mix:last1:2": lambda states: 2 * states[3],
    "mix:last4:1,0,-1,0.5": lambda states: states[0] - states[2] + 0.5 * states[3],
    "mix": lambda states: states.mean(axis=0),
}


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert")


@pytest.fixture(scope="module")
def first_pieces(model: Model) -> Array:
    """[layers, words, D]: the states of the first piece of each word."""
    found = model.pieces(TEXT)
    starts = found.spans[:, 0].tolist()
    words = model.embed(TEXT)[0].words
    places = [starts.index(word.start, 1) for word in words]  # piece 0 is a special
    return found.states[:, places].astype(np.float64)


@pytest.mark.parametrize("spec", MEANINGS)
def test_a_layer_means_what_numpy_says(model: Model, first_pieces: Array, spec: str) -> None:
    expected = MEANINGS[spec](first_pieces)
    found = model.embed(TEXT, layer=spec, pool="first")[0].vectors
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_number_and_its_digits_are_the_same_layer(model: Model) -> None:
    for layer in range(-DEPTH - 1, DEPTH + 1):
        by_number, by_digits = (model.embed(TEXT, layer=each)[0].vectors for each in (layer, f" {layer} "))
        np.testing.assert_array_equal(by_number, by_digits)


REFUSED = {
    "4": "layers 0 to 3, or -4 to -1",
    "-5": "layers 0 to 3, or -4 to -1",
    "sum:0:4": "layers 0 to 3, or -4 to -1",
    "concat:-6:-1": "layers 0 to 3, or -4 to -1",
    "mean:3:1": "runs from 3 down to 1; name the lower layer first",
    "sum:-1:-3": "runs from 3 down to 1; name the lower layer first",
    "concta:0:1": "Did you mean 'concat'?",
    "meen:0:1": "Did you mean 'mean'?",
    "al": "Did you mean 'all'?",
    "top": "A layer is written as one of: -1, 0, all, sum:a:b",
    "": "A layer is written as one of: -1, 0, all, sum:a:b",
    "1.5": "A layer is written as one of: -1, 0, all, sum:a:b",
    "sum": "must name two ends, as in sum:-4:-1",
    "mean:1": "must name two ends, as in mean:-4:-1",
    "concat:1:2:3": "must name two ends, as in concat:-4:-1",
    "concat:a:b": "must name two ends, as in concat:-4:-1",
    "mix:last3:0.2,0.8": "mixes 3 layers and gives 2 weights",
    "mix:last1:1,2": "mixes 1 layers and gives 2 weights",
    "mix:last5:1,1,1,1,1": "has 4 layers, counting layer 0. Got 'last5'",
    "mix:last0:1": "has 4 layers, counting layer 0. Got 'last0'",
    "mix:first2:1,1": "as last1, last2, …. Got 'first2'",
    "mix:last3": "must be numbers with commas between them",
    "mix:last2:0.5;0.5": "must be numbers with commas between them",
    "mix:last2:0,0": "are all 0",
    "avg:1:2": "Did you mean 'mean'?",
    "-1:2": "Did you mean 'concat'?",
    "mix:last2:nan,1": "must be numbers with commas between them",
}


@pytest.mark.parametrize("spec", REFUSED)
def test_what_is_no_layer_is_refused_with_what_there_is(model: Model, spec: str) -> None:
    with pytest.raises(OptionError) as refusal:
        model.embed(TEXT, layer=spec)
    assert REFUSED[spec] in str(refusal.value)
    assert repr(spec) in str(refusal.value)


@dataclass(frozen=True, kw_only=True)
class Uneven(EncoderConfig):
    """An encoder whose layers differ in width, as AWD-LSTM's do."""

    kind: ClassVar[str] = "uneven"
    n_pieces: int = 10

    @property
    def direction(self) -> Direction:
        return "causal"

    @property
    def widths(self) -> tuple[int, ...]:
        return (2, 3, 3)

    @property
    def matrix_weights(self) -> int:
        return 0


@pytest.mark.parametrize("spec", ["all", "sum:0:1", "mean:0:-1", "mix", "mix:last3:1,1,1"])
def test_layers_of_different_widths_are_not_added_up(spec: str) -> None:
    with pytest.raises(OptionError, match="needs layers of one width, and this encoder's differ; use concat:a:b"):
        parse_layers(spec, Uneven())


def test_layers_of_different_widths_can_be_joined_and_those_of_one_width_added() -> None:
    states = {number: torch.randn(4, width) for number, width in enumerate(Uneven().widths)}
    joined = parse_layers("concat:0:2", Uneven())
    assert joined.width(Uneven()) == 8
    assert joined.combine(states).tolist() == [
        states[0][place].tolist() + states[1][place].tolist() + states[2][place].tolist() for place in range(4)
    ]
    added = parse_layers("sum:1:2", Uneven())
    assert added.width(Uneven()) == 3
    assert torch.equal(added.combine(states), states[1] + states[2])

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme.corpus.random_keys import permutation_at, row_keys, uniform

ROWS = 4000


@pytest.fixture(scope="module")
def numbers() -> np.ndarray:
    return uniform(row_keys(7, 0, np.arange(ROWS)), "masks", 64)


def test_numbers_are_in_the_unit_interval_and_evenly_spread(numbers):
    assert numbers.shape == (ROWS, 64)
    assert numbers.dtype == np.float64
    assert 0 <= numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    spread = 1 / np.sqrt(12 * numbers.size)
    assert abs(numbers.mean() - 0.5) < 4 * spread
    assert abs(numbers.var() - 1 / 12) < 4 * np.sqrt(1 / 180 / numbers.size)
    counts = np.bincount((numbers * 256).astype(int).ravel(), minlength=256)
    expected = numbers.size / 256
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_squared - 255) < 4 * np.sqrt(2 * 255)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda: uniform(row_keys(8, 0, np.arange(ROWS)), "masks", 64), id="seeds"),
        pytest.param(lambda: uniform(row_keys(7, 1, np.arange(ROWS)), "masks", 64), id="epochs"),
        pytest.param(lambda: uniform(row_keys(7, 0, np.arange(ROWS) + 1), "masks", 64), id="rows"),
        pytest.param(lambda: uniform(row_keys(7, 0, np.arange(ROWS)), "choices", 64), id="names"),
        pytest.param(lambda: np.roll(uniform(row_keys(7, 0, np.arange(ROWS)), "masks", 64), 1, axis=1), id="places"),
    ],
)
def test_what_differs_in_anything_is_independent(numbers, other):
    second = other()
    assert not (numbers == second).any()
    correlation = np.corrcoef(numbers.ravel(), second.ravel())[0, 1]
    assert abs(correlation) < 4 / np.sqrt(numbers.size)


def test_low_bits_are_random_too(numbers):
    low = (numbers * 2**53).astype(np.uint64) & np.uint64(1)
    assert abs(low.mean() - 0.5) < 4 * 0.5 / np.sqrt(numbers.size)


def test_a_rows_numbers_depend_on_its_key_alone():
    keys = row_keys(3, 2, np.arange(100))
    together = uniform(keys, "x", 16)
    assert np.array_equal(together[[40, 3]], uniform(keys[[40, 3]], "x", 16))
    assert np.array_equal(together[:, :5], uniform(keys, "x", 5))


def test_keys_go_by_seed_epoch_and_index():
    keys = [row_keys(seed, epoch, np.arange(500)) for seed in (-1, 0, 1, 2**60) for epoch in (0, 1, 2)]
    assert keys[0].dtype == np.uint64
    assert len(np.unique(np.concatenate(keys))) == 4 * 3 * 500
    epochs = np.array([0, 1, 2]).repeat(500)
    mixed = row_keys(0, epochs, np.tile(np.arange(500), 3))
    assert np.array_equal(mixed, np.concatenate(keys[3:6]))


def test_the_numbers_are_these_for_ever():
    """Checkpoints of one version are gone on with by the next: no change of the hash may go unnoticed."""
    keys = row_keys(1, 2, np.array([3, 4]))
    assert keys.tolist() == [1553841246845048256, 1837761060917858051]
    assert uniform(keys, "masks", 2).tolist() == [
        [0.13016594379212976, 0.31305472998667105],
        [0.8245063865508411, 0.7997587727755149],
    ]
    assert permutation_at(10, 5, np.arange(10)).tolist() == [2, 6, 1, 9, 8, 3, 5, 7, 4, 0]


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 3000), key=st.integers(-(2**65), 2**65))
def test_a_permutation_has_every_number_once(n, key):
    assert np.array_equal(np.sort(permutation_at(n, key, np.arange(n))), np.arange(n))


def test_a_permutation_can_be_asked_place_by_place():
    whole = permutation_at(1000, 9, np.arange(1000))
    assert np.array_equal(permutation_at(1000, 9, np.array([[5, 999], [0, 5]])), whole[[[5, 999], [0, 5]]])
    assert int(permutation_at(1000, 9, 17)) == whole[17]


def test_a_permutation_of_very_many_numbers_needs_no_list_of_them():
    places = permutation_at(10**15, 3, np.arange(10_000))
    assert len(np.unique(places)) == 10_000
    assert places.min() >= 0
    assert places.max() < 10**15
    assert abs(places.mean() / 10**15 - 0.5) < 4 / np.sqrt(12 * 10_000)


def test_permutations_look_random():
    n = 10_000
    first, second = (permutation_at(n, key, np.arange(n)) for key in (1, 2))
    for values in (first, second, second[np.argsort(first)]):
        assert abs(np.corrcoef(values, np.arange(n))[0, 1]) < 4 / np.sqrt(n)
        assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 4 / np.sqrt(n)
        assert (values == np.arange(n)).sum() < 10


def test_every_number_comes_to_every_place_about_as_often():
    n, keys = 5, 4000
    orders = np.stack([permutation_at(n, key, np.arange(n)) for key in range(keys)])
    shares = np.stack([(orders == number).mean(axis=0) for number in range(n)])
    assert np.abs(shares - 1 / n).max() < 4 * np.sqrt(1 / n * (1 - 1 / n) / keys)


def test_places_that_are_not_there_are_refused():
    for places in (np.array([5]), np.array([-1])):
        with pytest.raises(ValueError, match="from 0 to 4"):
            permutation_at(5, 0, places)


def test_nothing_overflows_loudly():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keys = row_keys(2**64 - 1, 2**62, 2**62)
        uniform(keys, "x", 3)
        permutation_at(3, 2**64 - 1, 2)

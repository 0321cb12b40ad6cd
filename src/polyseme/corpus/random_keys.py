"""Random numbers without a state: those of a row depend on its key and on nothing else.

A generator with a state gives other numbers when rows are drawn in another order, by more workers, or after a stop.
Here every number is a hash of the row's key, the name of what it is for and its place, so any row of any epoch can be
made at any time by anyone, and comes out the same. The hash is the finalizer of SplitMix64 (Steele, Lea and Flood,
2014), applied to arrays.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

Keys = NDArray[np.uint64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_HALF_ROUNDS = 8
"""Of the network that permutes; four full ones are what its theory asks for."""


def row_keys(seed: int, epoch: ArrayLike, index: ArrayLike) -> Keys:
    """The keys of rows, [R]: different for every seed, epoch and index."""
    start = _mixed(_folded(seed)[None] + _GOLDEN)
    within = _mixed(start ^ _unsigned(epoch) * _GOLDEN)
    return _mixed(within + _unsigned(index) * _GOLDEN)


def uniform(keys: Keys, name: str, n: int) -> NDArray[np.float64]:
    """`n` numbers per row, [R, n], uniform over [0, 1).

    `name` tells what they are for; those of one name are independent of those of another.
    """
    places = np.arange(1, n + 1, dtype=np.uint64) * _GOLDEN
    bits = _mixed(_mixed(keys ^ _named(name))[:, None] + places)
    bits >>= np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def permutation_at(n: int, key: int, i: ArrayLike) -> Ints:
    """Which of the numbers below `n` is at place `i` of a random order that `key` decides.

    No list of `n` numbers is made: a Feistel network permutes the numbers of as many bits as `n` has, and is applied
    again where the result is not below `n` (at most half of them are not).
    """
    places = np.asarray(i, dtype=np.int64)
    if n < 1 or (places.size and not (int(places.min()) >= 0 and int(places.max()) < n)):
        raise ValueError(f"Places of a permutation of {n} numbers are from 0 to {n - 1}. Got others.")
    result = np.atleast_1d(places.astype(np.uint64))
    shape = result.shape
    result = _permuted(n, key, result.ravel())
    outside = np.flatnonzero(result >= n)
    while len(outside):
        result[outside] = _permuted(n, key, result[outside])
        outside = outside[result[outside] >= n]
    return result.reshape(shape).astype(np.int64).reshape(places.shape)


def _permuted(n: int, key: int, numbers: Keys) -> Keys:
    """A permutation of the numbers of so many bits: each half in turn is changed by a hash of the other."""
    bits = max((n - 1).bit_length(), 2)
    low = np.uint64(bits // 2)
    low_mask, high_mask = (np.uint64((1 << size) - 1) for size in (bits // 2, bits - bits // 2))
    keys = _mixed(_folded(key) + np.arange(1, _HALF_ROUNDS + 1, dtype=np.uint64) * _GOLDEN)
    upper, lower = numbers >> low, numbers & low_mask
    for turn in range(_HALF_ROUNDS):
        if turn % 2:
            lower = lower ^ (_mixed(upper + keys[turn]) & low_mask)
        else:
            upper = upper ^ (_mixed(lower + keys[turn]) & high_mask)
    permuted: Keys = (upper << low) | lower
    return permuted


def _mixed(numbers: Keys) -> Keys:
    """The finalizer of SplitMix64: every bit of the result depends on every bit of the input."""
    mixed: Keys = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _folded(number: int) -> Keys:
    """The last 64 bits of a whole number of any size or sign, in an array without dimensions."""
    return np.array(number & (1 << 64) - 1, dtype=np.uint64)


def _unsigned(numbers: ArrayLike) -> Keys:
    return np.atleast_1d(np.asarray(numbers, dtype=np.int64)).astype(np.uint64)


def _named(name: str) -> Keys:
    return _folded(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))

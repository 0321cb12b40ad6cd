"""Samples of the training items, for learning curves: by share or number, nested and stratified, one order per seed.

A seed puts the training items into one order, and a sample is the beginning of it. So the smaller samples of a seed are
in its larger ones. The order begins with an item of every class, rare classes first; behind them each class comes as
often as in the whole.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyseme.errors import InputError, OptionError
from polyseme.tasks.items import Item, labels_in

ALL = "100%"
N_BINS = 10
"""Of the scores of a regression, from which samples take alike."""


@dataclass(frozen=True)
class TrainShare:
    """How much of the training data is used: a share of it, or a number of items."""

    name: str
    """As the user wrote it: `10%`, `1000`."""
    share: float | None = None
    count: int | None = None

    @classmethod
    def parse(cls, text: str | int) -> TrainShare:
        """A share with a percent sign, or a whole number of items.

        >>> TrainShare.parse("2.5%"), TrainShare.parse(100)
        (TrainShare(name='2.5%', share=0.025, count=None), TrainShare(name='100', share=None, count=100))
        """
        name = str(text).strip()
        number = name.removesuffix("%").strip()
        try:
            value = float(number) if name.endswith("%") else int(number)
        except ValueError:
            raise OptionError(
                f"A train_share is a share of the training items with a percent sign, or a whole number of them: "
                f"1%,10%,{ALL} or 100,1000. Got {name!r} among them."
            ) from None
        if not value > 0 or not math.isfinite(value):
            raise OptionError(f"A train_share must be above 0. Got {name!r} instead.")
        if name.endswith("%") and value > 100:
            raise OptionError(f"A train_share is at most {ALL} of the training items. Got {name!r} instead.")
        return cls(name, share=value / 100) if name.endswith("%") else cls(name, count=int(value))

    def size(self, n_items: int) -> int:
        """How many of so many items it is."""
        return self.count if self.count is not None else round(float(self.share or 0) * n_items)


def train_shares(shares: str | int | Sequence[str | int] | None) -> tuple[TrainShare, ...]:
    """Shares, however they are listed; none where there are none.

    >>> [share.name for share in train_shares("10%, 1%")]
    ['10%', '1%']
    """
    if shares is None:
        return ()
    listed = shares.split(",") if isinstance(shares, str) else [shares] if isinstance(shares, int) else list(shares)
    parsed = tuple(TrainShare.parse(each) for each in listed)
    twice = [name for name, count in Counter(each.name for each in parsed).items() if count > 1]
    if twice:
        raise OptionError(f"The train_share {twice[0]!r} is listed twice. Leave one out.")
    if not parsed:
        raise OptionError(f"The train_share is empty. Name shares or numbers: 1%,10%,{ALL} or 100,1000.")
    return parsed


@dataclass(frozen=True)
class TrainSamples:
    """The samples of some shares, of each seed its own; the smallest share first."""

    sizes: Mapping[str, int]
    """How many items each share is, by its name."""
    orders: Mapping[int, tuple[int, ...]]
    """Of each seed the numbers of all items in its order."""

    @classmethod
    def of(cls, shares: Sequence[TrainShare], items: Sequence[Item], seeds: Sequence[int], task: str) -> TrainSamples:
        """Refuses a share that is more than there is, or too small for an item of every class."""
        drawn = {seed: _order(items, seed) for seed in seeds}
        least = max(n_first for _, n_first in drawn.values())
        sizes: dict[str, int] = {}
        for each in sorted(shares, key=lambda share: share.size(len(items))):
            size = each.size(len(items))
            if size > len(items):
                raise InputError(
                    f"The train_share {each.name} is more items than {task} has to train with: {len(items):,}. Name at "
                    f"most {len(items)}, or {ALL}."
                )
            if size < least:
                share = math.ceil(1e4 * least / len(items)) / 100
                raise InputError(
                    f"The train_share {each.name} is {size:,} of the {len(items):,} training items of {task}, and an "
                    f"item of every class takes {least:,}. The smallest that works is {least} ({share:g}%)."
                )
            if size not in sizes.values():
                sizes[each.name] = size
        return cls(sizes, {seed: tuple(order) for seed, (order, _) in drawn.items()})

    def items(self, items: Sequence[Item], share: str, seed: int) -> tuple[Item, ...]:
        """The sample of a seed, in the order of the data."""
        return tuple(items[number] for number in sorted(self.orders[seed][: self.sizes[share]]))


def _order(items: Sequence[Item], seed: int) -> tuple[list[int], int]:
    """All items in the order of a seed, and how many at its beginning have every class among them."""
    shuffled = np.random.default_rng((0x5A3B1E, seed)).permutation(len(items)).tolist()
    labels = [labels_in(item) for item in items]
    counts = Counter(label for each in labels for label in each)
    by_count = sorted(counts, key=lambda label: (counts[label], label))
    rank = {label: number for number, label in enumerate(by_count)}
    bins = _bins(items)
    strata: dict[Any, list[int]] = defaultdict(list)
    for number in shuffled:
        strata[min(labels[number], key=rank.__getitem__, default=bins[number])].append(number)
    first: list[int] = []
    seen: set[str] = set()
    for label in by_count:
        if label not in seen:
            first.append(next(number for number in strata.get(label) or shuffled if label in labels[number]))
            seen.update(labels[first[-1]])
    place = {number: (at + 0.5) / len(each) for each in strata.values() for at, number in enumerate(each)}
    chosen = set(first)
    behind = sorted((number for number in shuffled if number not in chosen), key=place.__getitem__)
    return [*first, *behind], max(len(first), 1)


def _bins(items: Sequence[Item]) -> list[int]:
    """Of scores, which part of their range each is in; other items without labels are all alike."""
    scores = [item.gold for item in items if isinstance(item.gold, float)]
    if len(scores) < len(items):
        return [0] * len(items)
    low, high = min(scores), max(scores)
    return [int(N_BINS * (score - low) / ((high - low) * (1 + 1e-9) or 1)) for score in scores]

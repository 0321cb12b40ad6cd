"""Which file is which split of a benchmark; and a dev split made of the training items where there is none."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from polyseme.files.source import COMPRESSIONS
from polyseme.tasks.data_columns import DEV_SHARE
from polyseme.tasks.items import Item, labels_in

T = TypeVar("T")

Patterns = Mapping[str, tuple[str, ...]]
"""Of each split the names that its file goes by, in order of preference; `*` stands for anything."""


def split_files(folder: Path, patterns: Patterns) -> dict[str, Path]:
    """The file (or folder) of each split that is there."""
    files: dict[str, Path] = {}
    for split, names in patterns.items():
        for name in names:
            places = [place for ending in ("", *COMPRESSIONS) for place in sorted(folder.glob(name + ending))]
            if places:
                files[split] = places[0]
                break
    return files


def evenly_spaced(items: Sequence[T], most: int | None) -> Sequence[T]:
    """At most so many items, from the whole of a list that may be sorted; None: all."""
    if most is None or most >= len(items):
        return items
    return [items[number * len(items) // most] for number in range(most)]


def is_sample(file: Path) -> bool:
    """Whether the name of a file says that it is part of the published one."""
    return any(part == "sample" or "first" in part.rpartition("-")[2] for part in file.name.split("."))


def with_dev(
    train: Sequence[Item], *, share: float = DEV_SHARE, seed: int = 0
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Training items cut in two: those that stay, and those that become dev.

    Which item goes where depends on its text, the seed and how many share its label, so that neither the order of a
    file nor rows added to it move the others much. Each label has its share of dev, as far as that goes by whole items,
    and rows of one text (questions on one passage) stay together. An item with a label that no other has stays in
    training.
    """
    n_dev = min(max(1, round(len(train) * share)), len(train) - 1)
    room = _shares(Counter(map(_label, train)), n_dev)
    groups: dict[int, list[int]] = {}
    for place, item in enumerate(train):
        groups.setdefault(_draw(item, seed), []).append(place)
    if len(groups) < 2:
        return tuple(train), ()
    taken: list[int] = []
    for _, places in sorted(groups.items()):
        labels = [_label(train[place]) for place in places]
        if all(room[label] > 0 for label in labels):
            room.subtract(labels)
            taken += places
    if not taken:  # every text has a label that is too rare for a share
        taken = groups[min(groups)]
    goes = [False] * len(train)
    for place in taken:
        goes[place] = True
    known = {label for item, leaves in zip(train, goes, strict=True) if not leaves for label in labels_in(item)}
    for place, item in enumerate(train):
        if goes[place] and not known.issuperset(labels_in(item)):
            goes[place] = False
            known.update(labels_in(item))
    stay = tuple(item for item, leaves in zip(train, goes, strict=True) if not leaves)
    return stay, tuple(item for item, leaves in zip(train, goes, strict=True) if leaves)


def _label(item: Item) -> str | None:
    return item.gold if isinstance(item.gold, str) else None


def _shares(counts: Counter[str | None], n_dev: int) -> Counter[str | None]:
    """How many of `n_dev` items each label has: its share, rounded so that the sum is right; never all of them.

    Where that goes, every label has one at least.
    """
    exact = {label: n_dev * count / counts.total() for label, count in counts.items()}
    least = int(sum(count > 1 for count in counts.values()) <= n_dev)
    shares = Counter({label: max(int(each), least * (counts[label] > 1)) for label, each in exact.items()})
    by_need = sorted(exact, key=lambda label: (shares[label] - exact[label], str(label)))
    for label in by_need[: max(n_dev - shares.total(), 0)]:
        shares[label] += 1
    while shares.total() > n_dev:  # of what the rare ones were given, those have less that have most too much
        shares[max(shares, key=lambda label: (shares[label] > least, shares[label] - exact[label], str(label)))] -= 1
    return Counter({label: min(each, counts[label] - 1) for label, each in shares.items()})


def _draw(item: Item, seed: int) -> int:
    digest = hashlib.blake2b(f"{seed}\n{item.text}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def dev_note(train: Sequence[Item], dev: Sequence[Item], seed: int = 0) -> str:
    """The note on a dev split that was made."""
    shares = ", stratified by label" if all(_label(item) is not None for item in dev) else ""
    return (
        f"There is no dev split: {len(dev):,} of the {len(train) + len(dev):,} training items were set aside as one, "
        f"by a hash of their texts{shares} (seed {seed})."
    )

"""Which file is which split of a benchmark; and a dev split made of the training items where there is none."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyseme.files.source import COMPRESSIONS
from polyseme.tasks.items import Item

DEV_SHARE = 0.1
"""What part of the training items becomes dev where none is given."""

Patterns = Mapping[str, tuple[str, ...]]
"""Of each split the names that its file goes by, in order of preference; `*` stands for anything."""


def split_files(folder: Path, patterns: Patterns) -> dict[str, Path]:
    """The file (or folder) of each split that is there."""
    found: dict[str, Path] = {}
    for split, names in patterns.items():
        for name in names:
            places = [place for ending in ("", *COMPRESSIONS) for place in sorted(folder.glob(name + ending))]
            if places:
                found[split] = places[0]
                break
    return found


def is_sample(file: Path) -> bool:
    """Whether the name of a file says that it is part of the published one."""
    return any(part == "sample" or "first" in part.rpartition("-")[2] for part in file.name.split("."))


def with_dev(
    train: Sequence[Item], *, share: float = DEV_SHARE, seed: int = 0
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Training items cut in two: those that stay, and those that become dev.

    Which item goes where hangs on its text and the seed alone, so that neither the order of a file nor rows added to it
    move the others much, and rows of one text (questions on one passage) stay together. An item with a label that no
    other has stays in training.
    """
    drawn = [_draw(item, seed) for item in train]
    wanted = min(max(1, round(len(train) * share)), len(train) - 1)
    bound = sorted(drawn)[wanted - 1] if wanted > 0 else -1
    goes = [each <= bound for each in drawn]
    if all(goes):
        return tuple(train), ()
    known = {label for item, leaves in zip(train, goes, strict=True) if not leaves for label in labels_in(item)}
    for place, item in enumerate(train):
        if goes[place] and not known.issuperset(labels_in(item)):
            goes[place] = False
            known.update(labels_in(item))
    kept = tuple(item for item, leaves in zip(train, goes, strict=True) if not leaves)
    return kept, tuple(item for item, leaves in zip(train, goes, strict=True) if leaves)


def _draw(item: Item, seed: int) -> int:
    digest = hashlib.blake2b(f"{seed}\n{item.text}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def dev_note(train: Sequence[Item], dev: Sequence[Item], seed: int = 0) -> str:
    """What is to be said of a dev split that was made."""
    return (
        f"There is no dev split: {len(dev):,} of the {len(train) + len(dev):,} training items were set aside as one, "
        f"by a hash of their texts (seed {seed})."
    )


def labels_in(item: Item) -> tuple[Any, ...]:
    """The labels of an item: one, several, or a tag a word; none where it is a number, a choice or answers."""
    if isinstance(item.gold, str):
        return (item.gold,)
    if isinstance(item.gold, tuple) and all(isinstance(each, str) for each in item.gold):
        return tuple(dict.fromkeys(item.gold))
    return ()

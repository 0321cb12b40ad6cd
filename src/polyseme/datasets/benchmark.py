"""A benchmark: where its files lie, what they are called, how they are read, what it is measured by."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from polyseme.datasets.tab_separated import Columns, has_column, table_items
from polyseme.errors import InputError
from polyseme.files.source import COMPRESSIONS
from polyseme.tasks.items import Item, ReadingLog, TaskData, labels_in
from polyseme.tasks.splits import Patterns, dev_note, is_sample, split_files, with_dev
from polyseme.text.tag_schemes import sorted_tags

UNLABELLED = "_unlabelled"
"""What is put behind the name of a split whose labels are kept by others: it can be predicted, not scored."""


@dataclass
class Read:
    """What was read of the files of a benchmark."""

    splits: dict[str, Sequence[Item]]
    scheme: str | None = None
    notes: list[str] = field(default_factory=list)


_FIRST = ("train", "dev")
Files = Mapping[str, Path]
"""Of each split its file, or the folder with its files."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A task that is known by name."""

    name: str
    kind: str
    about: str
    """A line for lists."""
    metrics: tuple[str, ...]
    folders: tuple[str, ...]
    """What its folder is called, here and there."""
    files: Patterns
    reader: Callable[[Files], Read]
    labels: tuple[str, ...] = ()
    """Where they are known; else those that occur."""
    regression: bool = False
    makes_dev: bool = True
    """Whether a dev split is made of training items where there is none."""

    def read(self, folder: Path) -> TaskData:
        """Its data in a folder that is its own."""
        files = split_files(folder, self.files)
        read = self.reader(files)
        splits, notes = dict(read.splits), list(read.notes)
        if self.makes_dev and "train" in splits and "dev" not in splits and len(splits["train"]) > 1:
            splits["train"], splits["dev"] = with_dev(splits["train"])
            notes.append(dev_note(splits["train"], splits["dev"]))
            splits = {name: splits[name] for name in ("train", "dev", *(name for name in splits if name not in _FIRST))}
        sampled = {split for split, file in files.items() if is_sample(file)}
        if "dev" not in files and "train" in sampled:
            sampled.add("dev")
        return TaskData(
            name=self.name,
            kind=self.kind,
            labels=self.labels or _labels(splits, read.scheme),
            regression=self.regression,
            splits=splits,
            sampled=tuple(split for split in splits if split in sampled),
            metrics=self.metrics,
            scheme=read.scheme,
            notes=tuple(notes),
        )

    def is_in(self, folder: Path) -> bool:
        """Whether a folder has files of this benchmark."""
        return folder.is_dir() and bool(split_files(folder, self.files))


def _labels(splits: Mapping[str, Sequence[Item]], scheme: str | None) -> tuple[str, ...]:
    return sorted_tags((label for items in splits.values() for item in items for label in labels_in(item)), scheme)


def table_reader(columns: Columns, to_gold: Callable[..., object]) -> Callable[[Files], Read]:
    """A reader of tables, one a split. A test table without labels is kept under a name that says so."""

    def read(files: Files) -> Read:
        log = ReadingLog()
        splits: dict[str, Sequence[Item]] = {}
        for split, file in files.items():
            labeled = not split.startswith("test") or has_column(file, columns.label, columns)
            name = split if labeled else split + UNLABELLED
            splits[name] = table_items(file, columns, to_gold, log, labeled=labeled)
        return Read(splits, notes=list(log.notes()))

    return read


def file_reader(read_file: Callable[[Path, ReadingLog], Sequence[Item]]) -> Callable[[Files], Read]:
    """A reader of files that are read alike, one a split."""

    def read(files: Files) -> Read:
        log = ReadingLog()
        splits: dict[str, Sequence[Item]] = {}
        for split, file in files.items():
            items = read_file(file, log)
            labeled = any(item.gold is not None for item in items)
            splits[split if labeled else split + UNLABELLED] = items
        return Read(splits, notes=list(log.notes()))

    return read


# MERGED: Where the files of a benchmark lie below the folder that a user names.


AnyPath = str | os.PathLike[str]


def find_data(data: AnyPath | None, name: str, patterns: Sequence[str]) -> list[Path]:
    """The files of the benchmark `name`: `data` itself, if it is a file, or what lies in it under one of the patterns.

    A folder may be the benchmark's own, the one that holds it, or the one above `tasks`. Files may be compressed.
    """
    if data is None:
        raise InputError(f"{name} needs its data: name the file, or the folder that holds it, with --data (data=…).")
    place = Path(data)
    if not place.exists():
        raise InputError(f"There is no file or folder {place} with the data of {name} (looked for it in {Path.cwd()}).")
    if not place.is_dir():
        return [place]
    folders = [place / "tasks" / name, place / name, place]
    for folder in folders:
        found: dict[str, Path] = {}  # by name without compression: a file that is also there unpacked is read once
        for pattern in patterns:
            for ending in ("", *COMPRESSIONS):
                for file in sorted(folder.glob(pattern + ending)):
                    if file.is_file():
                        found.setdefault(file.name.removesuffix(ending), file)
        if found:
            return list(found.values())
    looked = ", ".join(str(folder / pattern) for folder in folders for pattern in patterns)
    raise InputError(f"{place} does not hold the data of {name}. Looked for {looked}, plain or compressed.")

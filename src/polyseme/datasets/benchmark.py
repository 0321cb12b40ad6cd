"""A benchmark: where its files lie, what they are called, how they are read, what it is measured by.

Most are tables: columns separated by tabs, quotes that are characters like any other, headers that vary. The same
benchmark comes under several headers, or under none: `Columns` lists the names that a column goes by, and what the
columns of a file without a header are, by their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from polyseme.errors import InputError
from polyseme.files.atomic import AnyPath
from polyseme.files.lines import Line, lines_of
from polyseme.files.rows import Place, excerpt
from polyseme.files.source import COMPRESSIONS, open_source
from polyseme.tasks.items import Item, ReadingLog, TaskData, labels_in
from polyseme.tasks.splits import Patterns, dev_note, is_sample, split_files, with_dev
from polyseme.text.tag_schemes import sorted_tags

Files = Mapping[str, Path]
"""Of each split its file, or the folder with its files."""
Names = tuple[str, ...]
LEFT_OUT = object()
"""As a gold answer: the row is left out, with a note."""
UNLABELED = "_unlabeled"
"""What is put behind the name of a split whose labels are kept by others: it can be predicted, not scored."""
_FIRST = ("train", "dev")


@dataclass
class BenchmarkData:
    """What was read of the files of a benchmark."""

    splits: dict[str, Sequence[Item]]
    scheme: str | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A task that is known by name."""

    name: str
    kind: str
    description: str
    """A line for lists."""
    metrics: tuple[str, ...]
    folders: tuple[str, ...]
    """What its folder is called, here and there."""
    files: Patterns
    reader: Callable[[Files], BenchmarkData]
    labels: tuple[str, ...] = ()
    """Where they are known; else those that occur."""
    regression: bool = False
    grouped_by: str = ""
    """The field of items by whose values the first metric is given, too."""
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
            grouped_by=self.grouped_by,
            notes=tuple(notes),
        )

    def is_in(self, folder: Path) -> bool:
        """Whether a folder has files of this benchmark."""
        return folder.is_dir() and bool(split_files(folder, self.files))


def _labels(splits: Mapping[str, Sequence[Item]], scheme: str | None) -> tuple[str, ...]:
    return sorted_tags((label for items in splits.values() for item in items for label in labels_in(item)), scheme)


def table_reader(columns: Columns, to_gold: Callable[..., object]) -> Callable[[Files], BenchmarkData]:
    """A reader of tables, one per split. A test table without labels is kept under a name that says so."""

    def read(files: Files) -> BenchmarkData:
        log = ReadingLog()
        splits: dict[str, Sequence[Item]] = {}
        for split, file in files.items():
            labeled = not split.startswith("test") or has_column(file, columns.label, columns)
            name = split if labeled else split + UNLABELED
            splits[name] = table_items(file, columns, to_gold, log, labeled=labeled)
        return BenchmarkData(splits, notes=list(log.notes()))

    return read


def file_reader(read_file: Callable[[Path, ReadingLog], Sequence[Item]]) -> Callable[[Files], BenchmarkData]:
    """A reader of files of one layout, one per split."""

    def read(files: Files) -> BenchmarkData:
        log = ReadingLog()
        splits: dict[str, Sequence[Item]] = {}
        for split, file in files.items():
            items = read_file(file, log)
            labeled = any(item.gold is not None for item in items)
            splits[split if labeled else split + UNLABELED] = items
        return BenchmarkData(splits, notes=list(log.notes()))

    return read


def find_data(data: AnyPath | None, name: str, patterns: Sequence[str]) -> list[Path]:
    """The files of the benchmark `name`: `data` itself, if it is a file, or what lies in it under one of the patterns.

    A folder may be the benchmark's own, the one that holds it, or the one above `tasks`. Files may be compressed.
    """
    place = data_place(data, name)
    if not place.is_dir():
        return [place]
    folders = [place / "tasks" / name, place / name, place]
    for folder in folders:
        files = files_in(folder, patterns)
        if files:
            return files
    looked = ", ".join(str(folder / pattern) for folder in folders for pattern in patterns)
    raise InputError(f"{place} does not hold the data of {name}. Looked for {looked}, plain or compressed.")


def data_place(data: AnyPath | None, name: str) -> Path:
    """The file or folder that a user names for the data of a benchmark; it must be there."""
    if data is None:
        raise InputError(f"{name} needs its data: name the file, or the folder that holds it, with --data (data=…).")
    place = Path(data)
    if not place.exists():
        raise InputError(f"There is no file or folder {place} with the data of {name} (looked for it in {Path.cwd()}).")
    return place


def files_in(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """The files of a folder under one of the patterns, compressed or not; one that is there both ways is read once."""
    files: dict[str, Path] = {}  # by name without compression
    for pattern in patterns:
        for ending in ("", *COMPRESSIONS):
            for file in sorted(folder.glob(pattern + ending)):
                if file.is_file():
                    files.setdefault(file.name.removesuffix(ending), file)
    return list(files.values())


# --- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of a table hold what; each by all the names that it goes by."""

    text: Names
    second: Names = ()
    label: Names = ("label",)
    id: Names = ("index", "id", "pairID", "pair_ID")
    fields: Names = ()
    """Others to keep."""
    headerless: Mapping[int, Names] = field(default_factory=dict)
    """The names of the columns where a file has no header, by how many there are."""
    ragged: bool = False
    """Whether the published files have rows with too few columns, which are left out where they lack what is needed."""


def table_items(
    file: Path, columns: Columns, to_gold: Callable[[str, Place], Any], log: ReadingLog, *, labeled: bool = True
) -> list[Item]:
    """The items of a table.

    Args:
        file: plain or compressed.
        columns: what is where.
        to_gold: from a label as it stands and its place to the gold answer, or `LEFT_OUT`.
        log: takes down the rows that are left out.
        labeled: whether the rows must have labels; else all are kept, and none has a gold answer.
    """
    items: list[Item] = []
    for row, place in read_table(file, columns):
        text = _one_of(row, columns.text)
        second = _one_of(row, columns.second) if columns.second else ""
        label = _one_of(row, columns.label) if labeled else ""
        if text is None or second is None or label is None:
            log.add("a row left out that lacks columns, as published", place)
            continue
        if labeled and not (text.strip() and (second.strip() or not columns.second)):
            log.add("a row left out in which a text is empty", place)
            continue
        gold = to_gold(label, place) if labeled else None
        if gold is LEFT_OUT:
            log.add("a row left out that has no gold label (-)", place)
            continue
        items.append(
            Item(
                text=text,
                second=second if columns.second else None,
                gold=gold,
                id=_one_of(row, columns.id) or str(len(items) + 1),
                place=str(place),
                fields={name: row[name] for name in columns.fields if row.get(name) is not None},
            )
        )
    return items


def read_table(file: Path, columns: Columns) -> Iterator[tuple[Mapping[str, str | None], Place]]:
    """The rows of a table by the names of their columns, each with its place."""
    lines = _filled_lines(file)
    first = next(lines, None)
    if first is None:
        raise InputError(f"{file} is empty: there is nothing to read.")
    header, rows = _header(first, columns, lines, file)
    any_rows = False
    for line in rows:
        values = line.text.split("\t")
        place = Place(str(file), line.number)
        if len(values) != len(header) and not columns.ragged:
            raise InputError(
                f"{place}: the columns, separated by tabs, are {len(values)}, and there should be {len(header)}: "
                f"{', '.join(header)}."
            )
        any_rows = True
        yield dict(zip(header, [*values, *[None] * (len(header) - len(values))], strict=False)), place
    if not any_rows:
        raise InputError(f"{file} has a header and no rows: there is nothing to read.")


def _header(first: Line, columns: Columns, rest: Iterable[Line], file: Path) -> tuple[Sequence[str], Iterable[Line]]:
    """The names of the columns, and the lines with rows."""
    names = first.text.split("\t")
    if any(name in names for name in columns.text):
        if columns.second and not any(name in names for name in columns.second):
            raise _other_layout(file, names, columns.second)
        return names, rest
    if len(names) in columns.headerless:
        return columns.headerless[len(names)], chain([first], rest)
    raise _other_layout(file, names, columns.text)


def has_column(file: Path, expected: Names, columns: Columns) -> bool:
    """Whether a table has one of these columns."""
    line = next(_filled_lines(file), None)
    names = line.text.split("\t") if line is not None else []
    if not any(name in names for name in columns.text):
        names = list(columns.headerless.get(len(names), ()))
    return any(name in names for name in expected)


def text_lines(file: Path) -> Iterator[Line]:
    """The lines of a text file, plain or compressed."""
    return lines_of(open_source(file))


def _filled_lines(file: Path) -> Iterator[Line]:
    """The lines that are not blank."""
    return (line for line in text_lines(file) if line.text.strip())


def _one_of(row: Mapping[str, str | None], names: Names) -> str | None:
    for name in names:
        if row.get(name) is not None:
            return row[name]
    return None


def _other_layout(file: Path, names: Sequence[str], expected: Names) -> InputError:
    return InputError(
        f"{file} is of another layout: it has no column {' or '.join(map(repr, expected))}. Its first line is: "
        f"{excerpt(' | '.join(names))}. Is it the file of another task?"
    )


def one_label(labels: Sequence[str], *, left_out: str | None = None) -> Callable[[str, Place], Any]:
    """A label that must be one of these; or `left_out`, with which a row is left out."""

    def to_gold(label: str, place: Place) -> Any:
        if label in labels:
            return label
        if label == left_out:
            return LEFT_OUT
        raise InputError(f"{place}: {excerpt(label)!r} is no label of this task. There are: {', '.join(labels)}.")

    return to_gold


def a_number(label: str, place: Place) -> float:
    """A score."""
    try:
        return float(label)
    except ValueError:
        raise InputError(f"{place}: the score must be a number. Got {excerpt(label)!r} instead.") from None

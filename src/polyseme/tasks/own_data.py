"""Users' own data for a task: CSV, TSV, JSON lines, Parquet, CoNLL, CoNLL-U, or JSON laid out as SQuAD is.

| kind | text | second | label |
|---|---|---|---|
| classify | the text | | a label; a number (regression); several labels, as a list or with a separator |
| pair | the first text | the second | likewise |
| tag | the words: a list, or a column of CoNLL | | the tags: a list, or a column of CoNLL |
| span | the passage | the question | the answer, several, or SQuAD's object of `text` and `answer_start` |
| choose | the question | | the right choice: its number from 0 on, its letter, or its text |

Columns are named, or counted from 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path

from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.reading_options import Quotes
from polyseme.tasks.data_checks import Unseen, check_data, check_there
from polyseme.tasks.data_columns import Column, DataColumns, DataOptions
from polyseme.tasks.items import Item, ReadingLog, TaskData
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.splits import DEV_SHARE, dev_note, with_dev


def read_own(
    kind: str,
    files: Mapping[str, str | PathLike[str]],
    *,
    text: Column | None = None,
    second: Column | None = None,
    label: Column | None = None,
    choices: Sequence[Column] | Column | None = None,
    start: Column | None = None,
    marks: Column | None = None,
    id: Column | None = None,
    regression: bool | None = None,
    separator: str | None = None,
    first: int = 0,
    scheme: str | None = None,
    repair: bool = False,
    unseen: Unseen = "refuse",
    dev_share: float = DEV_SHARE,
    seed: int = 0,
    format: str | None = None,
    quotes: Quotes = "double",
    delimiter: str | None = None,
    name: str | None = None,
) -> TaskData:
    """A task of one's own, read and checked.

    Args:
        kind: classify, pair, tag, span or choose.
        files: of each split (train, dev, test) its file. Where there is a train and no dev, part of train becomes dev.
        text: the column with the text, by name or, counted from 1, by number; likewise the others.
        second: the column with the second text, or the question on a passage.
        label: the column with what is to be predicted.
        choices: the columns with the choices, or the one with a list of them.
        start: the column with the character at which an answer starts; without it the answer is looked for.
        marks: the column with one number per word, as 1 at the predicate whose roles are tagged.
        id: the column with the id of a row.
        regression: whether labels are numbers on a scale; None: if they are numbers, and some between whole ones.
        separator: what stands between several labels of one row.
        first: the number of the first choice, where answers are numbers.
        scheme: what tags that mark spans are turned into; None: as they are, BIO where they are IOB1, BIOES where they
            are BILOU.
        repair: whether invalid tags are rewritten, and misplaced answers looked for, instead of refused.
        unseen: whether labels that train lacks are refused in other splits or kept.
        dev_share: what part of train becomes dev where there is none.
        seed: draws that part.
        format: how files are read, where their ending does not say it.
        quotes: in CSV and TSV, whether double quotes enclose fields, or none do.
        delimiter: in CSV and TSV, what separates the fields.
        name: what the task is called; the train file's name if None.
    """
    if kind not in KINDS:
        raise OptionError(f"There is no kind of task {kind!r}. {nearest(kind, KINDS)}")
    if not 0 < dev_share < 1:
        raise OptionError(f"The part of train that becomes dev must be between 0 and 1. Got {dev_share} instead.")
    paths = _distinct(files)
    columns = DataColumns(text=text, second=second, label=label, choices=choices, start=start, marks=marks, id=id)
    options = DataOptions(
        regression=regression,
        separator=separator,
        first=first,
        scheme=scheme,
        repair=repair,
        quotes=quotes,
        delimiter=delimiter,
    )
    log = ReadingLog()
    formats = {split: KINDS[kind].format_of(file, format) for split, file in paths.items()}
    splits = {split: KINDS[kind].read(file, formats[split], columns, options, log) for split, file in paths.items()}
    notes = list(log.notes())
    tables = [file for split, file in paths.items() if formats[split] in ("csv", "tsv")]
    if tables and _all_numbers((text, second, label)):
        notes.append(
            f"The first line of {tables[0]} was read as the names of its columns. If it is a row, put names above it."
        )
    task = name or Path(next(iter(paths.values()))).name
    by_line = all(each == "conll" for each in formats.values())
    data = _checked(KINDS[kind].task(task, splits, options, notes, by_line=by_line), unseen)
    return _with_dev(data, dev_share, seed) if "train" in data.splits and "dev" not in data.splits else data


def _all_numbers(columns: Sequence[Column | None]) -> bool:
    """Whether columns are known by their numbers alone."""
    named = [str(column) for column in columns if column is not None]
    return bool(named) and all(column.isdecimal() for column in named)


def _distinct(files: Mapping[str, str | PathLike[str]]) -> dict[str, str]:
    if not files:
        raise InputError("There is nothing to read: no file was named.")
    seen: dict[Path, str] = {}
    for split, file in files.items():
        place = Path(file).resolve()
        if place in seen:
            raise OptionError(f"{fspath(file)} is both {seen[place]} and {split}. What is measured on must be apart.")
        seen[place] = split
    return {split: fspath(file) for split, file in files.items()}


def _checked(data: TaskData, unseen: Unseen) -> TaskData:
    """All that was read, before part of it becomes dev, so that notes on train are on all of it."""
    needs = [split for split in ("train", "dev") if split in data.splits] if "train" in data.splits else []
    notes = check_data(data, unseen=unseen, needs=needs)
    return replace(data, notes=(*data.notes, *notes)) if notes else data


def _with_dev(data: TaskData, share: float, seed: int) -> TaskData:
    """The task with part of train as dev."""
    if len(data.splits["train"]) > 1:
        train, dev = with_dev(data.splits["train"], share=share, seed=seed)
        others = {split: items for split, items in data.splits.items() if split != "train"}
        splits: dict[str, Sequence[Item]] = {"train": train, "dev": dev, **others}
        data = replace(data, splits=splits, notes=(*data.notes, dev_note(train, dev, seed)))
    check_there(data, "dev")
    return data

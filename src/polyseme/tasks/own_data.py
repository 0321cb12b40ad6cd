"""Users' own data for a task, read and checked: CSV, TSV, JSON lines, Parquet, CoNLL, CoNLL-U, or SQuAD's JSON.

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

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.in_memory import InMemory, inputs_of
from polyseme.files.rows import excerpt
from polyseme.files.source_paths import Sources
from polyseme.options import flat
from polyseme.tasks.data_columns import DataOptions
from polyseme.tasks.items import Item, ReadingLog, TaskData, labels_in
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.splits import dev_note, with_dev
from polyseme.verb_options.task_options import Column, Unseen

IN_MEMORY = "table"
"""The format of a table that is in memory."""
_NAMED = 5
"""Labels that a message names at most."""


@flat(DataOptions)
def read_own(options: DataOptions) -> TaskData:
    """A task of one's own, read and checked."""
    if options.kind not in KINDS:
        raise OptionError(f"There is no kind of task {options.kind!r}. {nearest(options.kind, KINDS)}")
    kind, paths, log = KINDS[options.kind], _distinct(options.files), ReadingLog()
    formats = {
        split: IN_MEMORY if isinstance(file, InMemory) else kind.format_of(file, options.format)
        for split, file in paths.items()
    }
    splits = {split: kind.read(file, formats[split], options, log) for split, file in paths.items()}
    notes = list(log.notes())
    tables = [file for split, file in paths.items() if formats[split] in ("csv", "tsv")]
    if tables and _all_numbers((options.text, options.second, options.label)):
        notes.append(
            f"The first line of {tables[0]} was read as the names of its columns. If it is a row, put names above it."
        )
    first = next(iter(paths.values()))
    name = options.name or (first.name if isinstance(first, InMemory) else Path(first).name)
    by_line = all(each == "conll" for each in formats.values())
    data = kind.task(name, splits, options, notes, by_line=by_line)
    # All that was read is checked before part of it becomes dev, so that notes on train are on all of it.
    needs = [split for split in ("train", "dev") if split in data.splits] if "train" in data.splits else []
    data = checked_data(data, unseen=options.unseen, needs=needs)
    if "train" not in data.splits or "dev" in data.splits:
        return data
    if len(data.splits["train"]) > 1:
        train, dev = with_dev(data.splits["train"], share=options.dev_share, seed=options.seed)
        others = {split: items for split, items in data.splits.items() if split != "train"}
        note = dev_note(train, dev, options.seed)
        data = replace(data, splits={"train": train, "dev": dev, **others}, notes=(*data.notes, note))
    check_there(data, "dev")
    return data


def _all_numbers(columns: Sequence[Column | None]) -> bool:
    """Whether columns are known by their numbers alone."""
    named = [str(column) for column in columns if column is not None]
    return bool(named) and all(column.isdecimal() for column in named)


def _distinct(files: Mapping[str, Sources]) -> dict[str, str | InMemory]:
    """The file of each split, or the table that is in memory."""
    if not files:
        raise InputError("There is nothing to read: no file was named.")
    distinct: dict[str, str | InMemory] = {}
    seen: dict[Path | int, str] = {}
    for split, file in files.items():
        table_or_files = inputs_of(file)
        if isinstance(table_or_files, InMemory) and table_or_files.columns is None:
            raise InputError(f"{split} is {table_or_files}. A task is learned from a table with a column of labels.")
        if not isinstance(table_or_files, InMemory) and len(table_or_files) != 1:
            raise InputError(f"{split} is {len(table_or_files)} files. Each split is one file, or a table in memory.")
        place = id(file) if isinstance(table_or_files, InMemory) else Path(table_or_files[0]).resolve()
        if place in seen:
            both = f"{seen[place]} and {split}"
            raise OptionError(f"{distinct[seen[place]]} is both {both}. Training and evaluation need different data.")
        seen[place] = split
        distinct[split] = table_or_files if isinstance(table_or_files, InMemory) else str(table_or_files[0])
    return distinct


# --- checks -----------------------------------------------------------------------------------------------------------


def checked_data(data: TaskData, *, unseen: Unseen = "refuse", needs: Sequence[str] = ("train", "dev")) -> TaskData:
    """The data, with notes; what cannot be trained on is refused, with the place of the fault.

    Args:
        data: the task.
        unseen: what is done about a label in another split that train lacks: it is refused, or kept, with a note; no
            model can predict it, so that it counts as wrong.
        needs: the splits that must be there.
    """
    if unseen not in get_args(Unseen):
        raise OptionError(f"The option unseen cannot be {unseen!r}. {nearest(unseen, get_args(Unseen))}")
    if "train" in needs:
        check_there(data, "train")
    for split, items in data.splits.items():
        for item in items:
            _check_item(data, item, labeled=split in ("train", "dev", "test"))
    has_labels = KINDS[data.kind].has_labels and not data.regression
    if has_labels:  # before dev is required, which cannot be made of items with a label each
        _check_classes(data)
    for split in needs:
        check_there(data, split)
    if has_labels:
        return replace(data, notes=(*data.notes, *_check_unseen(data, unseen)))
    if data.regression and len({item.gold for item in data.splits.get("train", ())}) == 1 and "train" in needs:
        item = data.splits["train"][0]
        raise InputError(f"All training items of {data.name} have the score {item.gold}: there is nothing to learn.")
    return data


def check_there(data: TaskData, split: str) -> None:
    """Refuse data without a split that is needed."""
    if not data.splits.get(split):
        there = ", ".join(name for name, items in data.splits.items() if items) or "none"
        raise InputError(
            f"{data.name} has no {split} split, which is needed here. There are: {there}. Where the data are your own, "
            f"name a file with --{split} ({split}=…)."
        )


def _check_item(data: TaskData, item: Item, *, labeled: bool) -> None:
    """What must hold of one item by itself."""
    kind = KINDS[data.kind]
    for name, text in kind.texts(item).items():
        if not text.strip():
            raise InputError(f"{item.place}: the {name} is empty. Leave such rows out, or give them a text.")
    if item.gold is not None:
        kind.check_item(data, item)
    elif labeled:
        raise InputError(f"{item.place}: there is no label. What is trained or measured on must have one.")


def _check_classes(data: TaskData) -> None:
    """Training items must have two labels or more, and be more than the labels."""
    train = data.splits.get("train", ())
    if not train:
        return
    counts = Counter(label for item in train for label in labels_in(item))
    by_word = KINDS[data.kind].labels_words
    n_units = sum(len(item.gold) for item in train) if by_word else len(train)
    if not counts:
        raise InputError(f"No training item of {data.name} has a label.")
    if data.multi:
        return
    if len(counts) == 1:
        [label] = counts
        raise InputError(
            f"All {len(train):,} training items of {data.name} have the one label {excerpt(label)!r} (the first: "
            f"{train[0].place}). A classifier needs two or more; is it the right column?"
        )
    if len(counts) > n_units or (len(counts) == n_units > 2 and not by_word):
        raise InputError(
            f"{data.name} has {len(counts):,} labels on {n_units:,} training items ({_list_labels(counts)}): nothing "
            "can be learned where each item has a label of its own. Is it the right column? Where labels are numbers, "
            "ask for regression."
        )


def _check_unseen(data: TaskData, unseen: Unseen) -> tuple[str, ...]:
    """Labels of other splits that train lacks."""
    known = {label for item in data.splits.get("train", ()) for label in labels_in(item)}
    notes = []
    for split, items in data.splits.items():
        unknown: dict[str, Item] = {}
        for item in items:
            for label in labels_in(item):
                if label not in known:
                    unknown.setdefault(label, item)
        if not unknown or not known:
            continue
        first = next(iter(unknown.values()))
        problem = f"{split} has {len(unknown)} {'label' if len(unknown) == 1 else 'labels'} that train lacks"
        if unseen == "refuse":
            raise InputError(
                f"{first.place}: {problem}: {_list_labels(unknown)}. No model can learn them. Correct them, give them "
                "to train, or keep them, as always wrong, with the option unseen='keep'."
            )
        notes.append(
            f"{problem} ({_list_labels(unknown)}): {'it counts' if len(unknown) == 1 else 'they count'} as wrong."
        )
    return tuple(notes)


def _list_labels(labels: Iterable[str]) -> str:
    names = sorted(map(str, labels))
    more = ", …" if len(names) > _NAMED else ""
    return ", ".join(repr(excerpt(name)) for name in names[:_NAMED]) + more

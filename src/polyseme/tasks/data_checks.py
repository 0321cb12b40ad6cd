"""What must hold of a task's data before anything is trained on it; each refusal says where the fault lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.rows import shown
from polyseme.tasks.items import Item, TaskData, labels_in
from polyseme.tasks.kinds import KINDS

Unseen = Literal["refuse", "keep"]
_NAMED = 5


def check_data(
    data: TaskData, *, unseen: Unseen = "refuse", needs: Sequence[str] = ("train", "dev")
) -> tuple[str, ...]:
    """Refuse data that cannot be trained on, and return notes on the rest.

    Args:
        data: the task.
        unseen: what is done about a label in another split that train lacks: it is refused, or kept, with a note; no
            model can predict it, so that it counts as wrong.
        needs: the splits that must be there.
    """
    if unseen not in ("refuse", "keep"):
        raise OptionError(f"There is no way {unseen!r} with unseen labels. {nearest(unseen, ('refuse', 'keep'))}")
    if "train" in needs:
        check_there(data, "train")
    for split, items in data.splits.items():
        for item in items:
            _check_item(data, item, labeled=split in ("train", "dev", "test"))
    has_labels = KINDS[data.kind].has_labels and not data.regression
    if has_labels:  # before dev is asked for, which cannot be made of items with a label each
        _check_classes(data)
    for split in needs:
        check_there(data, split)
    if has_labels:
        return _check_unseen(data, unseen)
    if data.regression and len({item.gold for item in data.splits.get("train", ())}) == 1 and "train" in needs:
        item = data.splits["train"][0]
        raise InputError(f"All training items of {data.name} have the score {item.gold}: there is nothing to learn.")
    return ()


def check_there(data: TaskData, split: str) -> None:
    """Refuse data without a split that is needed."""
    if not data.splits.get(split):
        there = ", ".join(name for name, items in data.splits.items() if items) or "none"
        raise InputError(f"{data.name} has no {split} split, which is needed here. There are: {there}.")


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
            f"All {len(train):,} training items of {data.name} have the one label {shown(label)!r} (the first: "
            f"{train[0].place}). There must be two or more to tell apart; is it the right column?"
        )
    if len(counts) > n_units or (len(counts) == n_units > 2 and not by_word):
        raise InputError(
            f"{data.name} has {len(counts):,} labels on {n_units:,} training items ({_listed(counts)}): nothing can be "
            "learned where each item has a label of its own. Is it the right column? Where labels are numbers, ask for "
            "regression."
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
        what = f"{split} has {len(unknown)} {'label' if len(unknown) == 1 else 'labels'} that train lacks"
        if unseen == "refuse":
            raise InputError(
                f"{first.place}: {what}: {_listed(unknown)}. No model can learn them. Correct them, give them to "
                "train, or keep them, as always wrong, with the option unseen='keep'."
            )
        notes.append(f"{what} ({_listed(unknown)}): {'it counts' if len(unknown) == 1 else 'they count'} as wrong.")
    return tuple(notes)


def _listed(labels: Iterable[str]) -> str:
    names = sorted(map(str, labels))
    more = ", …" if len(names) > _NAMED else ""
    return ", ".join(repr(shown(name)) for name in names[:_NAMED]) + more

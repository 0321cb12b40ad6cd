"""What must hold of a task's data before anything is trained on it; each refusal says where the fault lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.rows import shown
from polyseme.tasks.items import Answer, Item, TaskData
from polyseme.tasks.splits import labels_in
from polyseme.text.tag_schemes import fault_in

Unseen = Literal["refuse", "keep"]
_NAMED = 5


def check_data(
    data: TaskData, *, unseen: Unseen = "refuse", needs: Sequence[str] = ("train", "dev")
) -> tuple[str, ...]:
    """Refuse data that cannot be trained on, and return what is to be said of the rest.

    Args:
        data: the task.
        unseen: what is done about a label in another split that train lacks: it is refused, or kept, which is said;
            no model can predict it, so that it counts as wrong.
        needs: the splits that must be there.
    """
    if unseen not in ("refuse", "keep"):
        raise OptionError(f"There is no way {unseen!r} with unseen labels. {nearest(unseen, ('refuse', 'keep'))}")
    if "train" in needs:
        check_there(data, "train")
    for split, items in data.splits.items():
        for item in items:
            _check_item(data, item, labeled=split in ("train", "dev", "test"))
    labeled = not data.regression and data.kind in ("classify", "pair", "tag")
    if labeled:  # before dev is asked for, which cannot be made of items with a label each
        _check_classes(data)
    for split in needs:
        check_there(data, split)
    if labeled:
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
    texts = {"text": item.text}
    if data.kind in ("pair", "span"):
        texts["question" if data.kind == "span" else "second text"] = item.second or ""
    for name, text in texts.items():
        if not text.strip():
            raise InputError(f"{item.place}: the {name} is empty. Leave such rows out, or give them a text.")
    if item.gold is None:
        if labeled:
            raise InputError(f"{item.place}: there is no label. What is trained or measured on must have one.")
        return
    _CHECKS.get(data.kind, _any)(data, item)


def _any(data: TaskData, item: Item) -> None:
    """Nothing more to check."""


def _check_tags(data: TaskData, item: Item) -> None:
    if len(item.gold) != len(item.words):
        raise InputError(f"{item.place}: there are {len(item.words)} words and {len(item.gold)} tags.")
    for number, word in enumerate(item.words, start=1):
        if not word.strip():
            raise InputError(f"{item.place}: word {number} is empty.")
    fault = None if data.scheme is None else fault_in(item.gold, data.scheme)
    if fault is not None:
        raise InputError(f"{item.place}: {fault.what}, at word {fault.word + 1}, {item.words[fault.word]!r}.")


def _check_answers(data: TaskData, item: Item) -> None:
    for answer in item.gold:
        if not isinstance(answer, Answer) or not answer.text or not item.text.startswith(answer.text, answer.start):
            raise InputError(f"{item.place}: the answer {answer} does not stand in its passage.")


def _check_choice(data: TaskData, item: Item) -> None:
    if len(item.choices) < 2:
        raise InputError(f"{item.place}: there must be two choices or more. Got {len(item.choices)}.")
    if not isinstance(item.gold, int) or not 0 <= item.gold < len(item.choices):
        raise InputError(f"{item.place}: the answer is {item.gold!r}, and there are {len(item.choices)} choices.")


_CHECKS: Mapping[str, Callable[[TaskData, Item], None]] = {
    "tag": _check_tags,
    "span": _check_answers,
    "choose": _check_choice,
}


def _check_classes(data: TaskData) -> None:
    """Training items must have two labels or more, and be more than the labels."""
    train = data.splits.get("train", ())
    if not train:
        return
    counts = Counter(label for item in train for label in labels_in(item))
    n_units = sum(len(item.gold) for item in train) if data.kind == "tag" else len(train)
    if not counts:
        raise InputError(f"No training item of {data.name} has a label.")
    if len(counts) == 1 and not data.multi:
        [label] = counts
        raise InputError(
            f"All {len(train):,} training items of {data.name} have the one label {shown(label)!r} (the first: "
            f"{train[0].place}). There must be two or more to tell apart; is it the right column?"
        )
    if not data.multi and (len(counts) > n_units or (len(counts) == n_units > 2 and data.kind != "tag")):
        raise InputError(
            f"{data.name} has {len(counts):,} labels on {n_units:,} training items ({_some(counts)}): nothing can be "
            "learned where each item has a label of its own. Is it the right column? Where labels are numbers, ask for "
            "regression."
        )


def _check_unseen(data: TaskData, unseen: Unseen) -> tuple[str, ...]:
    """Labels of other splits that train lacks."""
    known = {label for item in data.splits.get("train", ()) for label in labels_in(item)}
    said = []
    for split, items in data.splits.items():
        strange: dict[str, Item] = {}
        for item in items:
            for label in labels_in(item):
                if label not in known:
                    strange.setdefault(label, item)
        if not strange or not known:
            continue
        first = next(iter(strange.values()))
        what = f"{split} has {len(strange)} {'label' if len(strange) == 1 else 'labels'} that train lacks"
        if unseen == "refuse":
            raise InputError(
                f"{first.place}: {what}: {_some(strange)}. No model can learn them. Correct them, give them to train, "
                "or keep them, as always wrong, with the option unseen='keep'."
            )
        said.append(f"{what} ({_some(strange)}): {'it counts' if len(strange) == 1 else 'they count'} as wrong.")
    return tuple(said)


def _some(labels: Iterable[str]) -> str:
    names = sorted(map(str, labels))
    more = ", …" if len(names) > _NAMED else ""
    return ", ".join(repr(shown(name)) for name in names[:_NAMED]) + more

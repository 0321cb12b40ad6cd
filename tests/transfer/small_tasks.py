"""Small tasks of every kind, made by rule from the words of the tiny models' text, and quickly learned."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from polyseme.tasks.items import Answer, Item, TaskData

GOOD = ("crane", "fish", "beam", "party", "ball", "law")
BAD = ("vase", "news", "tire", "beer", "house", "movie")
OTHERS = ("the", "broke", "is", "flat", "a")


def classify(draw: random.Random) -> Item:
    good = draw.random() < 0.5
    text = " ".join([*draw.sample(OTHERS, 3), draw.choice(GOOD if good else BAD), "."])
    return Item(text=text, gold="good" if good else "bad")


def pair(draw: random.Random) -> Item:
    """Whether both texts have a word of the same sort: the second text decides, so that it must be read."""
    good = draw.random() < 0.5
    second = f"{draw.choice(OTHERS)} {draw.choice(GOOD if good else BAD)}"
    return Item(text=f"the {draw.choice(OTHERS)} broke", second=second, gold="yes" if good else "no")


def tag(draw: random.Random) -> Item:
    words = [draw.choice((*GOOD, *BAD, *OTHERS)) for _ in range(draw.randrange(2, 7))]
    return Item.of_words(words, gold=tuple("G" if word in GOOD else "B" if word in BAD else "O" for word in words))


def span(draw: random.Random) -> Item:
    words = [*draw.sample(OTHERS, 2), draw.choice(GOOD), draw.choice(OTHERS), draw.choice(BAD)]
    draw.shuffle(words)
    text = " ".join(words)
    answer = next(word for word in words if word in GOOD)
    return Item(text=text, second="which crane ?", gold=(Answer(text.index(answer), answer),))


def choose(draw: random.Random) -> Item:
    n_choices = draw.choice((2, 3))
    right = draw.randrange(n_choices)
    choices = [draw.choice(GOOD if number == right else BAD) for number in range(n_choices)]
    return Item(text="the crane broke", choices=tuple(choices), gold=right)


def edge(draw: random.Random) -> Item:
    """Of which sort the first span is, among words of both sorts."""
    good, bad, words = draw.choice(GOOD), draw.choice(BAD), [*draw.sample(OTHERS, 2)]
    shuffled = draw.sample([good, bad, *words], 4)
    text, first = " ".join(shuffled), draw.choice((good, bad))
    spans = tuple(_span(text, word) for word in (first, words[0]))
    return Item(text=text, spans=spans, gold="yes" if first == good else "no")


def edge_pair(draw: random.Random) -> Item:
    """The same of the second span, which is in the second text."""
    item = edge(draw)
    text = f"the {draw.choice(GOOD)} broke"
    return Item(text=text, second=item.text, spans=(_span(text, "broke"), item.spans[0]), gold=item.gold)


def _span(text: str, word: str) -> tuple[int, int]:
    start = f" {text} ".index(f" {word} ")
    return start, start + len(word)


MAKERS: dict[str, tuple[Callable[[random.Random], Item], dict[str, Any]]] = {
    "classify": (classify, {"labels": ("bad", "good"), "metrics": ("accuracy",)}),
    "pair": (pair, {"labels": ("no", "yes"), "metrics": ("accuracy", "f1")}),
    "tag": (tag, {"labels": ("B", "G", "O"), "metrics": ("word_accuracy",)}),
    "span": (span, {"metrics": ("answer_f1", "exact_match")}),
    "choose": (choose, {"metrics": ("accuracy",)}),
    "edge": (edge, {"labels": ("no", "yes"), "metrics": ("accuracy",)}),
    "edge-pair": (edge_pair, {"labels": ("no", "yes"), "metrics": ("accuracy",)}),
}


def small_task(kind: str, *, n_train: int = 160, n_dev: int = 40, n_test: int = 0, **changes: Any) -> TaskData:
    """A task of this kind; its items are always the same."""
    make, settings = MAKERS[kind]
    draw = random.Random(f"{kind} 1")
    sizes = {"train": n_train, "dev": n_dev, "test": n_test}
    splits = {split: tuple(make(draw) for _ in range(size)) for split, size in sizes.items() if size}
    return TaskData(**{"name": kind, "kind": kind, "splits": splits, **settings, **changes})

"""SQuAD (Rajpurkar et al. 2016, 2018): questions on a passage, each with its answers in it, or with none.

The layout of its files is read in `tasks.span`, since users' own data may have it too.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyseme.datasets.benchmark import Benchmark, Files, Read
from polyseme.tasks.items import Item, ReadingLog
from polyseme.tasks.span import squad_items


def read_squad(files: Files, *, repair: bool = False) -> Read:
    """The questions of each split."""
    log = ReadingLog()
    splits: dict[str, Sequence[Item]] = {
        split: list(squad_items(file, log, repair=repair)) for split, file in files.items()
    }
    return Read(splits, notes=list(log.notes()))


SQUAD: tuple[Benchmark, ...] = (
    Benchmark(
        name="squad",
        kind="span",
        about="where in the passage is the answer? (v1.1)",
        metrics=("answer_f1", "exact_match"),
        folders=("squad", "SQuAD", "squad1.1"),
        files={
            "train": ("train-v1.1.json", "train-v1.1-*.json"),
            "dev": ("dev-v1.1.json",),
            "test": ("test-v1.1.json",),
        },
        reader=read_squad,
    ),
    Benchmark(
        name="squad2",
        kind="span",
        about="where in the passage is the answer, if there is one? (v2.0)",
        metrics=("answer_f1", "exact_match"),
        folders=("squad", "squad2", "SQuAD", "squad2.0"),
        files={
            "train": ("train-v2.0.json", "train-v2.0-*.json"),
            "dev": ("dev-v2.0.json",),
            "test": ("test-v2.0.json",),
        },
        reader=read_squad,
    ),
)

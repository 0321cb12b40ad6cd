"""SQuAD (Rajpurkar et al. 2016, 2018): questions on a passage, each with its answers in it, or with none.

The layout of its files is read in `tasks.span`, since users' own data may have it too.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyseme.datasets.benchmark import Benchmark, BenchmarkData, Files
from polyseme.tasks.items import Item, ReadingLog
from polyseme.tasks.span import squad_items


def read_squad(files: Files, *, repair: bool = False) -> BenchmarkData:
    """The questions of each split."""
    log = ReadingLog()
    splits: dict[str, Sequence[Item]] = {
        split: list(squad_items(file, log, repair=repair)) for split, file in files.items()
    }
    return BenchmarkData(splits, notes=list(log.notes()))


SQUAD: tuple[Benchmark, ...] = tuple(
    Benchmark(
        name=name,
        kind="span",
        description=f"where in the passage is the answer{where}? (v{version})",
        metrics=("answer_f1", "exact_match"),
        folders=folders,
        files={
            "train": (f"train-v{version}.json", f"train-v{version}-*.json"),
            "dev": (f"dev-v{version}.json",),
            "test": (f"test-v{version}.json",),
        },
        reader=read_squad,
    )
    for name, version, where, folders in (
        ("squad", "1.1", "", ("squad", "SQuAD", "squad1.1")),
        ("squad2", "2.0", ", if there is one", ("squad", "squad2", "SQuAD", "squad2.0")),
    )
)

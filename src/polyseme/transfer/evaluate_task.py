"""A task model scored on labeled files, or on a benchmark by its name."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyseme.datasets.named_benchmarks import read_benchmark
from polyseme.errors import InputError, PolysemeWarning
from polyseme.files.atomic import AnyPath
from polyseme.files.in_memory import InMemory
from polyseme.metrics.evaluation_report import Line, Report
from polyseme.metrics.task_metrics import METRICS, measure, measure_groups, undefined
from polyseme.model_folder import model_folder
from polyseme.tasks.items import Item, TaskData
from polyseme.tasks.kinds import KINDS, check_kind
from polyseme.tasks.own_data import read_own
from polyseme.transfer.predict_files import Predictor
from polyseme.transfer.task_folder import task_card
from polyseme.transfer.task_model import TaskModel
from polyseme.types import Progress

_OF_GROUPS = "the first figure within a group of items; bias: that of feminine pronouns by that of masculine ones"


def evaluate_labeled(
    name: str | InMemory,
    predictor: Predictor,
    *,
    folder: str,
    data: AnyPath | None = None,
    columns: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    started: float,
) -> Report:
    """The figures of a task model on a file with labels, or on the labeled splits of a benchmark.

    Labels are the model's, in its order; others that the data has count as wrong, with a note. `folder` names the
    model in the report. `progress` is called with how many items of a split are done, and of how many.
    """
    model, card = predictor.model, predictor.card
    config, kind = model.head.config, KINDS[model.config.kind]
    named = {role: column for role, column in (columns or {}).items() if column is not None}
    task = labeled_data(name, data, model, {**card.get("columns", {}), **named}, folder)
    metrics = tuple(card.get("metrics") or task.metrics)
    lines, records, notes = [], [], list(task.notes)
    for split, items in task.splits.items():
        labeled = [item for item in items if item.gold is not None]
        if not labeled or (split == "train" and len(task.splits) > 1):
            continue
        answers = [each.label for each in predictor.in_chunks(labeled, progress)]
        golds = [kind.comparable_gold(config, item) for item in labeled]
        figures = measure(metrics, golds, answers, labels=config.labels)
        if task.grouped_by:
            groups = [item.fields[task.grouped_by] for item in labeled]
            figures |= measure_groups(metrics[0], golds, answers, groups, labels=config.labels)
        for note in undefined(metrics, golds, answers):
            notes.append(f"{split}: {note}")
            warnings.warn(notes[-1], PolysemeWarning, stacklevel=2)
        lines.append(Line("split", split, len(labeled), figures))
        records += [
            {"split": split, "id": item.id, "text": item.text, "gold": kind.shown_gold(item), "predicted": answer}
            for item, answer in zip(labeled, answers, strict=True)
        ]
        notes += _unknown_labels(model, split, labeled)
    notes += predictor.notes()
    if not lines:
        raise InputError(f"{name} has no labels, so there is nothing to evaluate. To have them predicted: predict.")
    if len(lines) == 1:
        lines = [Line("all", "all", lines[0].n, lines[0].figures)]
    return Report(
        columns={name: METRICS[name].description if name in METRICS else _OF_GROUPS for name in lines[0].figures},
        lines=lines,
        items=records,
        evaluation=task.name,
        model=folder,
        method=(
            f"a head for task {model.config.kind!r}, {'frozen' if model.config.frozen else 'tuned'}"
            + (f", the mean of {1 + len(predictor.others)} models" if predictor.others else "")
        ),
        notes=notes,
        cost=predictor.cost(time.perf_counter() - started),
    )


def has_head(folder: AnyPath) -> bool:
    """Whether a model folder holds a task model."""
    return task_card(model_folder(Path(folder))) is not None


def labeled_data(
    name: str | InMemory, data: AnyPath | None, model: TaskModel, columns: Mapping[str, Any], where: str
) -> TaskData:
    """A file with labels, or a benchmark, read as a task model reads it; labels may be others than the model's."""
    head = model.head.config
    if isinstance(name, InMemory) or Path(name).is_file() or Path(name).suffix:
        reading = {**columns, **KINDS[head.kind].reading_options(head), "unseen": "keep"}
        return read_own(head.kind, {"test": name}, **reading)
    task = read_benchmark(name, data)
    check_kind(head, task.kind, where=f"The head of {where}")
    return task


def _unknown_labels(model: TaskModel, split: str, items: Sequence[Item]) -> list[str]:
    """A note on labels that the head does not know."""
    known = set(model.head.config.labels)
    if not known:
        return []
    labels = [each for item in items for each in (item.gold if isinstance(item.gold, tuple) else (item.gold,))]
    strange = sorted({label for label in labels if label not in known})
    if not strange:
        return []
    return [
        f"{split} has labels that the model does not know ({', '.join(map(repr, strange[:5]))}): they count as wrong."
    ]

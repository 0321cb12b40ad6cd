"""Several task models that answer together, by the mean of their probabilities (ULMFiT's forward and backward ones).

They are folders of their own, or were fitted together and are in one folder:

| file | |
|---|---|
| 1, 2 … | the task models, each as `task_folder` has it |
| polyseme.json | which folders they are, under `ensemble` |
| report.json, report.html | what they score together, beside each alone |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from polyseme.convert.hub import find_model
from polyseme.errors import OptionError
from polyseme.model_folder import members_of, model_folder
from polyseme.tasks.items import Item, TaskData
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.predictions import Judgment
from polyseme.training.energy_ledger import Ledger
from polyseme.transfer.finetune_report import TOGETHER, FinetuneReport, worst_errors
from polyseme.transfer.finetune_task import FinetuneResult
from polyseme.transfer.predict_files import CHUNK_TEXTS
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.split_figures import confusion_of, split_figures
from polyseme.transfer.task_folder import load_task_model, task_card
from polyseme.transfer.task_model import TaskModel

SAME = ("kind", "labels", "regression", "multi")
"""Fields of their heads in which the models must agree."""


def model_names(model: str) -> list[str]:
    """Models with commas between them; a path that exists is one model, whatever is in its name, or an ensemble.

    >>> model_names("models/forwards, models/backwards")
    ['models/forwards', 'models/backwards']
    """
    if Path(model).exists():
        return [str(member) for member in members_of(Path(model))] or [model]
    names = [name.strip() for name in model.split(",")]
    if not all(names):
        raise OptionError(f"Several models are names with commas between them. Got {model!r}.")
    if len(set(names)) < len(names):
        raise OptionError(f"A model is listed twice in {model!r}. Leave one out.")
    return names


def check_joinable(kind: str) -> None:
    """Refuse several models for a kind of task whose answers have no mean."""
    if not KINDS[kind].judges_texts:
        able = ", ".join(name for name, each in KINDS.items() if each.judges_texts)
        raise OptionError(f"Several models answer together in {able}, not in {kind}. Name one model.")


def load_task_models(
    names: Sequence[str], *, device: str, dtype: str = "auto"
) -> tuple[list[TaskModel], dict[str, Any]]:
    """The task models of folders, and what the first folder says of the task; they must be for one task."""
    folders = [model_folder(find_model(name)) for name in names]
    models = [load_task_model(folder, device=device, dtype=dtype) for folder in folders]
    first = models[0].head.config
    if len(models) > 1:
        check_joinable(first.kind)
    for name, model in zip(names[1:], models[1:], strict=True):
        for field in SAME:
            one, other = getattr(first, field), getattr(model.head.config, field)
            if one != other:
                raise OptionError(
                    f"The models {names[0]} and {name} cannot answer together: the {field} of their heads differ "
                    f"({_shorten(one)} and {_shorten(other)}). Take models that were fitted to one task."
                )
    return models, task_card(folders[0]) or {}


def joint_report(data: TaskData, fitted: Sequence[FinetuneResult], names: Sequence[str]) -> FinetuneReport:
    """The report of the best of the models on dev, with what all of them score together: figures, confusions, errors.

    Each model answers with its best seed.
    """
    kind, config = KINDS[data.kind], fitted[0].model.head.config
    joined: dict[str, list[Judgment]] = {}
    for split in fitted[0].report.splits:
        by_model = [_judgments(each.model, data.splits[split]) for each in fitted]
        joined[split] = [kind.joined(config, judgments) for judgments in zip(*by_model, strict=True)]
    best = max((each.report for each in fitted), key=lambda report: report.best.dev[report.metrics[0]])
    scores = {
        name: {"dev": dict(each.report.best.dev), **each.report.best.others}
        for name, each in zip(names, fitted, strict=True)
    }
    scores[TOGETHER] = {split: split_figures(data, split, judgments) for split, judgments in joined.items()}
    return replace(
        best,
        ensemble=scores,
        confusion=confusion_of(data, joined["dev"], config.labels),
        errors=worst_errors(data.kind, data.splits["dev"], joined["dev"], config.labels),
        ledger=reduce(Ledger.add, (each.report.ledger for each in fitted)).replace(n_sessions=1),
    )


def _judgments(model: TaskModel, items: Sequence[Item]) -> list[Judgment]:
    """What a model says of each item, in bounded memory."""
    parts = (items[start : start + CHUNK_TEXTS] for start in range(0, len(items), CHUNK_TEXTS))
    return [each for part in parts for each in judge(model, prepare(model, part, learning=False))]


def _shorten(value: Any) -> str:
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"

"""Several task models that answer together, by the mean of their probabilities (ULMFiT's forward and backward ones)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyseme.bundle import model_folder
from polyseme.convert.hub import find_model
from polyseme.errors import OptionError
from polyseme.tasks.kinds import KINDS
from polyseme.transfer.task_folder import load_task_model, task_card
from polyseme.transfer.task_model import TaskModel

SAME = ("kind", "labels", "regression", "multi")
"""Fields of their heads in which the models must agree."""


def model_names(model: str) -> list[str]:
    """Models with commas between them; a path that exists is one model, whatever is in its name.

    >>> model_names("models/forwards, models/backwards")
    ['models/forwards', 'models/backwards']
    """
    if Path(model).exists():
        return [model]
    names = [name.strip() for name in model.split(",")]
    if not all(names):
        raise OptionError(f"Several models are names with commas between them. Got {model!r}.")
    if len(set(names)) < len(names):
        raise OptionError(f"A model is listed twice in {model!r}. Leave one out.")
    return names


def load_task_models(names: Sequence[str], *, device: str) -> tuple[list[TaskModel], dict[str, Any]]:
    """The task models of folders, and what the first folder says of the task; they must be for one task."""
    folders = [model_folder(find_model(name)) for name in names]
    models = [load_task_model(folder, device=device) for folder in folders]
    first = models[0].head.config
    if len(models) > 1 and not KINDS[first.kind].judges_texts:
        able = ", ".join(name for name, kind in KINDS.items() if kind.judges_texts)
        raise OptionError(f"Several models answer together in {able}, not in {first.kind}. Name one model.")
    for name, model in zip(names[1:], models[1:], strict=True):
        for field in SAME:
            one, other = getattr(first, field), getattr(model.head.config, field)
            if one != other:
                raise OptionError(
                    f"The models {names[0]} and {name} cannot answer together: the {field} of their heads differ "
                    f"({_short(one)} and {_short(other)}). Take models that were fitted to one task."
                )
    return models, task_card(folders[0]) or {}


def _short(value: Any) -> str:
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"

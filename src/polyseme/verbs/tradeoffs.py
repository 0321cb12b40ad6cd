"""`tradeoffs`: what each form of a task model costs in score, seconds and bytes."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from polyseme.convert.hub import find_model
from polyseme.errors import InputError, MissingPackageError, ModelError, OptionError
from polyseme.exporting.model_forms import FORMS, Form, load_form
from polyseme.exporting.tradeoff_table import take_turns, tradeoff_figures
from polyseme.files.in_memory import InMemory, inputs_of
from polyseme.files.result_formats import check_result_output, write_result
from polyseme.metrics.evaluation_report import Report
from polyseme.metrics.report_files import FORMATS as REPORT_FORMATS
from polyseme.model_folder import model_folder
from polyseme.options import check_choice, flat
from polyseme.result_tables import counted
from polyseme.tasks.items import Item, TaskData
from polyseme.tasks.splits import evenly_spaced
from polyseme.transfer.evaluate_task import labeled_data
from polyseme.transfer.task_ensemble import SAME
from polyseme.transfer.task_folder import load_task_model, task_card
from polyseme.verb_options.evaluation_options import TradeoffsOptions
from polyseme.verb_options.task_options import TaskColumns


@flat(TradeoffsOptions)
def tradeoffs(options: TradeoffsOptions) -> Report:
    """Compare the forms of a task model (fp32, int8, ONNX …) on a CPU: score with sampling error, seconds, bytes.

    Each form is written as `convert` writes it, into a temporary folder, and the written files predict the same items
    in turn. A form that the model does not have is left out, with a note.

        >>> polyseme.tradeoffs("reviews.csv", model="models/stars", also="models/pruned")       # doctest: +SKIP
    """
    names = _split_names(options.forms) or list(FORMS)
    for name in names:
        check_choice("form", name, FORMS)
    if options.rounds < 1 or (options.items is not None and options.items < 1):
        wrong = "rounds" if options.rounds < 1 else "items"
        raise OptionError(f"The number of {wrong} must be at least 1. Got {getattr(options, wrong)} instead.")
    check_result_output(options.output, REPORT_FORMATS, force=options.force)
    folder = model_folder(find_model(str(options.model)))
    first = load_task_model(folder)
    card = task_card(folder) or {}
    columns = {role: column for role, column in options.values(TaskColumns).items() if column is not None}
    table = None if isinstance(options.name, str) else inputs_of(options.name)
    source = table if isinstance(table, InMemory) else str(options.name)
    task = labeled_data(source, options.data, first, {**card.get("columns", {}), **columns}, str(folder))
    split, items = _items(task, options.items)
    notes = [*task.notes]
    with tempfile.TemporaryDirectory() as scratch:
        forms = _forms(names, folder, Path(scratch), notes)
        forms += [_other_form(other, first.head.config) for other in _split_names(options.also)]
        if not forms:
            raise OptionError(f"There is no form to measure. {' '.join(notes)}")
        measured = take_turns(forms, items, options.rounds, options.progress)
        metric = (card.get("metrics") or task.metrics)[0]
        figures = tradeoff_figures(measured, items, metric)
    report = Report(
        **{each.name: getattr(figures, each.name) for each in dataclasses.fields(figures)},
        evaluation=task.name,
        model=str(options.model),
        method=(
            f"on {counted(len(items), 'item')} ({split}), the forms in turn, {counted(options.rounds, 'time')} each, "
            f"on a CPU with {counted(torch.get_num_threads(), 'thread')}"
        ),
        notes=notes,
    )
    write_result(report, options.output, REPORT_FORMATS, force=options.force)
    return report


def _items(task: TaskData, most: int | None) -> tuple[str, Sequence[Item]]:
    """The labeled items of dev, else of another split than train; at most so many, evenly spaced."""
    labeled = {split: [item for item in items if item.gold is not None] for split, items in task.splits.items()}
    chosen = sorted((split for split in labeled if labeled[split]), key=("dev", "test", "train").index)
    if not chosen:
        raise InputError(f"{task.name} has no labels, so there is nothing to score.")
    return chosen[0], evenly_spaced(labeled[chosen[0]], most)


def _forms(names: Sequence[str], folder: Path, scratch: Path, notes: list[str]) -> list[Form]:
    """Those that the model has; a note for each other."""
    forms = []
    for name in names:
        try:
            forms.append(FORMS[name](folder, scratch))
        except (MissingPackageError, ModelError, OptionError) as error:
            notes.append(f"Left out: {name}. {error}")
    return forms


def _other_form(name: str, head: Any) -> Form:
    form = load_form(Path(name).name or name, model_folder(find_model(name)))
    theirs = form.predictor.model.head.config
    for field in SAME:
        if getattr(head, field) != getattr(theirs, field):
            raise OptionError(f"The model {name} is for another task: the {field} of its head differ. Leave it out.")
    return form


def _split_names(value: Any) -> list[str]:
    """Names with commas between them, a list of them, or one path."""
    names = value.split(",") if isinstance(value, str) else value if isinstance(value, Sequence) else [value]
    return [str(name).strip() for name in names]

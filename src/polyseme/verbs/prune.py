"""`prune`: a model without the attention heads that matter least."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyseme import __version__
from polyseme.api import Model, load
from polyseme.bundle import Bundle
from polyseme.convert.hub import find_model
from polyseme.convert.sentence_transformers import MODEL_CARD
from polyseme.embedding.row_documents import document_of
from polyseme.errors import ModelError
from polyseme.files.atomic import check_output, whole_folder
from polyseme.files.in_memory import InMemory, inputs_of, names_of
from polyseme.files.rows import read_rows
from polyseme.files.source_paths import Sources
from polyseme.model_card import CardContent, Figure, Use, model_card, table, use_of
from polyseme.model_folder import save_bundle
from polyseme.options import flat
from polyseme.packaged_models import model_name
from polyseme.parts.device import find_device
from polyseme.plots.pruning_page import pruning_page
from polyseme.pruning.prune_heads import PruningPlan, prune_heads
from polyseme.pruning.pruning_report import PruningReport
from polyseme.pruning.pruning_subject import Subject, TaskSubject, TextSubject, check_labels, objective_of
from polyseme.pruning.text_rows import text_batches
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.splits import evenly_spaced
from polyseme.transfer.evaluate_task import has_head, labeled_data
from polyseme.transfer.task_folder import save_task_model
from polyseme.transfer.task_model import TaskModel
from polyseme.verb_options.pruning_options import PruneOptions
from polyseme.verb_options.task_options import TaskColumns
from polyseme.verbs.predict import load_single_predictor

REPORT, PAGE = "pruning.json", "pruning.html"
OF_TASK = ("name", "metrics", "labels", "columns", "settings")
"""What a pruned task model's card has from that of the whole one."""
OF_PLAN = ("heads", "method", "at_least", "reestimate", "points", "each_head", "gate_steps", "seed")


@dataclass
class _Loaded:
    """A model that is to be pruned."""

    name: str
    bundle: Bundle
    task: tuple[TaskModel, Mapping[str, Any]] | None


@flat(PruneOptions)
def prune(options: PruneOptions) -> PruningReport:
    """Remove attention heads from a Transformer, those first that matter least on held-out data.

    The heads are gone from the weights: the model is smaller and faster, and is used as any other. A model fitted to a
    task is judged by its loss on labeled items, a pretrained one by how well it predicts the pieces of texts.

        >>> polyseme.prune(model="models/stars", heads="50%", dev="dev.csv", output="models/pruned")  # doctest: +SKIP
    """
    inputs = {name: getattr(options, name) for name in ("dev", "test", "train") if getattr(options, name) is not None}
    if options.output is not None:
        own = options.model.path if isinstance(options.model, Model) else options.model
        named = [each for source in inputs.values() for each in names_of(inputs_of(source))]
        check_output(options.output, force=options.force, kind="folder", inputs=[own, *named], marks=["polyseme.json"])
    loaded = _load(options)
    subject = _subject(loaded, options, inputs)
    plan = PruningPlan(**{name: getattr(options, name) for name in OF_PLAN})
    pruned = prune_heads(loaded.bundle, subject, plan, name=loaded.name, progress=options.progress)
    if options.output is not None:
        _write(loaded, pruned.bundle, pruned.report, options)
    return pruned.report


def _load(options: PruneOptions) -> _Loaded:
    model = options.model
    path = model.path if isinstance(model, Model) else str(find_model(str(model)))
    if path and has_head(path):
        predictor = load_single_predictor(model if isinstance(model, Model) else path, options.device)
        task_model, card = predictor.model, predictor.card
        if task_model.bundle is None:
            raise ModelError(f"The task model {path} has no encoder, so that it has no attention heads to prune.")
        return _Loaded(path, task_model.bundle, (task_model, card))
    loaded = model if isinstance(model, Model) else load(path, device=find_device(options.device))
    return _Loaded(path or "a model", loaded.bundle, None)


def _subject(loaded: _Loaded, options: PruneOptions, inputs: Mapping[str, Sources]) -> Subject:
    if loaded.task is not None:
        model, card = loaded.task
        columns = {role: column for role, column in options.values(TaskColumns).items() if column is not None}
        items = {}
        for split, source in inputs.items():
            table_or_files = inputs_of(source)
            name = table_or_files if isinstance(table_or_files, InMemory) else str(table_or_files[0])
            task = labeled_data(name, options.data, model, {**card.get("columns", {}), **columns}, loaded.name)
            labeled = {name: [item for item in each if item.gold is not None] for name, each in task.splits.items()}
            fitting = labeled.get(split) or labeled.get("dev") or next(iter(labeled.values()))
            check_labels(model, fitting, str(source))
            items[split] = evenly_spaced(fitting, options.max_items)
        metrics = tuple(card.get("metrics") or task.metrics)
        return TaskSubject(model, items, metrics)
    objective = objective_of(loaded.bundle)
    rows = {}
    for split, source in inputs.items():
        with read_rows(inputs_of(source), field=None if options.text is None else str(options.text)) as read:
            documents = map(document_of, read)
            rows[split] = text_batches(
                documents, loaded.bundle, objective, seed=options.seed, max_rows=options.max_items
            )
    return TextSubject(loaded.bundle, rows, objective)


def _write(loaded: _Loaded, bundle: Bundle, report: PruningReport, options: PruneOptions) -> None:
    output = Path(os.fspath(options.output))  # type: ignore[arg-type]
    files = {
        REPORT: json.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n",
        PAGE: page_of(report),
        MODEL_CARD: _card(loaded, bundle, report, output, "dev" if options.test is None else "test"),
    }
    if loaded.task is None:
        with whole_folder(output, force=options.force) as folder:
            save_bundle(bundle, folder / "model")
            for each in (folder / "model").iterdir():
                each.rename(folder / each.name)
            (folder / "model").rmdir()
            for name, content in files.items():
                (folder / name).write_text(content, encoding="utf-8")
        return
    model, card = loaded.task
    of_task = {name: value for name, value in card.items() if name in OF_TASK}
    own, model.bundle = model.bundle, bundle
    try:
        save_task_model(model, output, card=of_task, files=files, force=options.force)
    finally:
        model.bundle = own


def _card(loaded: _Loaded, bundle: Bundle, report: PruningReport, output: Path, split: str) -> str:
    use = use_of(bundle)
    if loaded.task is not None:
        use = Use(KINDS[loaded.task[0].config.kind].hub_task, "polyseme predict new.txt -m {folder}", None)
    return model_card(
        bundle,
        CardContent(
            title=output.resolve().name,
            origin=f"{model_name(loaded.name)} without {len(report.removed)} of its {report.n_heads} attention heads, "
            f"pruned by polyseme {__version__}.",
            use=use,
            figures=[Figure(metric=name, value=value, split=split) for name, value in report.pruned.figures.items()],
            sections=[
                ("Pruning", f"{report.summary()}.\n\n{table(report.header(), report.rows())}"),
                ("Cost", report.cost.line()),
            ],
        ),
    )


def page_of(report: PruningReport) -> str:
    """The report as a page."""
    removed = set(report.removed)
    layers = [
        (
            str(at),
            [(place.head, value, place in removed) for place, value in report.importance.items() if place.at == at],
        )
        for at in dict.fromkeys(place.at for place in report.importance)
    ]
    single = [
        (
            str(each.place.at),
            each.place.head,
            report.shown(each.without.get(report.metric), report.metric),
            report.shown(each.alone.get(report.metric), report.metric),
        )
        for each in report.single
    ]
    return pruning_page(
        title=f"{model_name(report.model)}, pruned",
        summary=report.summary(),
        curve=[
            (100 * each.share, report.scaled(each.figures.get(report.metric, float("nan")))) for each in report.points
        ],
        metric=report.metric,
        header=report.header(),
        rows=report.rows(),
        layers=layers,
        single=single,
        notes=[*report.notes, report.cost.line()],
    )

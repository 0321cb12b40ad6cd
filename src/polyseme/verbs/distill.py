"""`distill`: a small student learns what a larger teacher does, on raw text or on a task."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyseme.api import Model, folder_of
from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.convert.hub import find_model
from polyseme.datasets.named_benchmarks import BENCHMARKS, read_benchmark
from polyseme.errors import InputError, OptionError
from polyseme.files.atomic import AnyPath, check_output
from polyseme.files.in_memory import inputs_of, names_of
from polyseme.files.texts_on_disk import on_disk
from polyseme.files.unfinished_folder import clear_up, unfinished_work, whole_output
from polyseme.heads.head_config import NAMES, HeadConfig
from polyseme.layer_subset import check_layers, spread_layers, with_layers
from polyseme.metrics.task_metrics import measure
from polyseme.model_folder import load_bundle, model_folder
from polyseme.objectives.distilled import check_predicts, check_size, check_teacher
from polyseme.options import flat
from polyseme.parts.device import find_device
from polyseme.recipes.recipe_table import get_recipe
from polyseme.recipes.teaching import Teaching
from polyseme.tasks.items import Item, TaskData, labels_in
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.own_data import read_own
from polyseme.tasks.predictions import Prediction
from polyseme.tasks.splits import dev_note, with_dev
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.training.dry_run import DryRun
from polyseme.training.energy_ledger import Ledger, Rates
from polyseme.training.run_job import PausedRun
from polyseme.transfer.finetune_report import FinetuneReport
from polyseme.transfer.finetune_settings import FinetuneSettings, settings_of
from polyseme.transfer.finetune_task import FinetuneRun, finetune_task
from polyseme.transfer.predict_files import Predictor
from polyseme.transfer.task_folder import load_task_model, task_card, weights_digest
from polyseme.transfer.task_teaching import TaskTeaching
from polyseme.verb_options.distill_options import DistillOptions, DistillTaskOptions, DistillTextOptions
from polyseme.verb_options.model_options import CostOption, DeviceOption
from polyseme.verb_options.pretraining_options import PretrainOptions
from polyseme.verb_options.task_options import FinetuneOptions, TaskDataOptions
from polyseme.verbs.finetune import decisive_settings, write_finetuned
from polyseme.verbs.predict import predict
from polyseme.verbs.pretrain import run_pretraining

_logger = logging.getLogger(__name__)


@flat(DistillOptions)
def distill(options: DistillOptions) -> Ledger | DryRun | PausedRun | FinetuneReport:
    """Train a small student to predict as a teacher does: a language model on raw text, a task model on its task.

    Returns the cost of the run for text (after `stop_after`, its progress), and the report of the student for a task.
    Interrupted work is resumed by the same call.
    """
    started = time.perf_counter() if options.started is None else options.started
    chosen = [name for name in ("layers", "student", "recipe") if getattr(options, name) is not None]
    if len(chosen) > 1:
        raise OptionError(f"There is one student, and {' and '.join(chosen)} name several. Leave all but one out.")
    if options.model is None:
        raise OptionError("There is no teacher. Name a model to learn from with -m (model=…).")
    teacher = _folder(options.model, "teacher")
    card = task_card(teacher)
    if card is not None:
        return _on_task(options, teacher, card)
    with on_disk(options.sources, options.field) as (sources, field):
        return _on_texts(dataclasses.replace(options, sources=sources, field=field), teacher, started)


def _folder(model: AnyPath | Model, role: str) -> str:
    """The folder of a model that is named, or loaded already."""
    path = folder_of(model)
    if path is None:
        raise OptionError(f"The {role} comes from no folder. Save it, and name its folder.")
    return str(model_folder(find_model(str(path))))


def _taken_from(teacher: Bundle, n_layers: int | None, name: str) -> tuple[int, ...]:
    """The layers of a teacher that a student begins with, which are logged."""
    depth = teacher.config.depth
    number = -(-depth // 2) if n_layers is None else n_layers
    check_layers(teacher, number, name)
    layers = spread_layers(depth, number)
    noun = "layer" if number == 1 else "layers"
    _logger.info(f"the student begins with {noun} {', '.join(map(str, layers))} of the teacher's {depth}")
    return layers


# --- language models --------------------------------------------------------------------------------------------------

_OF_PRETRAINING = frozenset(each.name for each in dataclasses.fields(PretrainOptions)) & frozenset(
    each.name for each in dataclasses.fields(DistillOptions)
)
"""Options that pretrain has, too."""


def _on_texts(options: DistillOptions, folder: str, started: float) -> Ledger | DryRun | PausedRun:
    """A language model, on raw text."""
    useless = sorted(options.changed(DistillTaskOptions))
    if useless:
        raise OptionError(
            f"{folder} is a language model and has no task, so {', '.join(useless)} would change nothing. Fit it to a "
            "task first (polyseme finetune), or leave that out and name texts."
        )
    teacher = load_bundle(folder)
    start, layers, family = folder, None, teacher.family.name
    if options.student is not None:
        start = _folder(options.student, "student")
        student = load_bundle(start)
        check_teacher(teacher, student, None, folder)
        family = student.family.name
    elif options.recipe is None:
        layers = _taken_from(teacher, options.layers, folder)
    teaching = Teaching.by(folder, teacher, layers)
    settings = teaching.settings(options.temperature, options.objective or {})
    objective = teaching.kind.from_json(settings)
    if objective.soft_weight:
        check_predicts(teacher, objective.output, folder)
    if options.recipe is not None:
        check_size(teacher.config, get_recipe(options.recipe).config(8, options.shape), folder)
    own = {name: value for name, value in options.values().items() if name in _OF_PRETRAINING}
    own |= {"model": None if options.recipe is not None else start, "objective": settings}
    own["recipe"] = options.recipe or teaching.recipe_for(family)
    return run_pretraining(PretrainOptions(**own), started, teaching)


# --- tasks ------------------------------------------------------------------------------------------------------------

_OF_BOTH = frozenset(each.name for record in (DeviceOption, CostOption) for each in dataclasses.fields(record))
"""Options of texts that tasks have, too."""
_OF_FINETUNING = ("epochs", "evaluations", "batch_size", "learning_rate", "schedule", "warmup", "dtype", "compile")


def _on_task(options: DistillOptions, folder: str, card: Mapping[str, Any]) -> FinetuneReport:
    """A task model, on its task."""
    useless = sorted(name for name in options.changed(DistillTextOptions) if name not in _OF_BOTH)
    if useless:
        raise OptionError(
            f"{folder} was fitted to a task, and is distilled on it, so {', '.join(useless)} would change nothing. "
            "Leave that out, or name a language model."
        )
    if options.output is not None:
        files = [options.train, options.dev, options.test, options.sources]
        named = [name for file in files if file is not None for name in names_of(inputs_of(file))]
        inputs = [folder, options.data, folder_of(options.student), *named]
        clear_up(options.output)
        check_output(options.output, force=options.force, kind="folder", inputs=inputs, marks=["polyseme.json"])
    teaching = TaskTeaching(
        teacher=load_task_model(folder),
        name=folder,
        **{name: getattr(options, name) for name in ("temperature", "gold_weight", "match", "match_weight")},
    )
    student = _student(options, teaching)
    settings = _settings(options, teaching)
    device = find_device(options.device)
    data = _with_texts(_data(options, teaching, card), options, teaching, card)
    run = FinetuneRun(
        model_name=folder,
        device=device,
        rates=Rates.of(options.cost_rates),
        teaching=teaching,
        notes=_notes(data, teaching, device),
        on_report=options.on_report,
        progress=options.progress,
    )
    if options.output is None:
        return finetune_task(data, student, settings, run).report
    decides = decisive_settings(data, [student], settings, device, [])
    decides |= {"teacher": weights_digest(teaching.teacher), "temperature": teaching.temperature}
    decides |= {"gold_weight": teaching.gold_weight, "match": teaching.match, "match_weight": teaching.match_weight}
    with unfinished_work(options.output, decides, noun="model", force=options.force) as work:
        done = finetune_task(data, student, settings, dataclasses.replace(run, folder=work))
        with whole_output(work, options.output, kind="folder", force=options.force) as path:
            write_finetuned(done, path, card.get("columns", {}), options.output)
    return done.report


def _student(options: DistillOptions, teaching: TaskTeaching) -> Bundle:
    """What the student begins with, without any head."""
    teacher, name = teaching.bundle, teaching.name
    if options.shape is not None and options.recipe is None:
        raise OptionError("The student has its shape. Leave out --set (shape), or name a recipe.")
    if options.student is not None:
        student = load_bundle(_folder(options.student, "student"))
    elif options.recipe is not None:
        recipe = get_recipe(options.recipe)
        family, tokenizer = FAMILIES[recipe.family], teacher.text_tokenizer
        if isinstance(tokenizer, PieceTokenizer):
            tokenizer = tokenizer.in_family(family.frame)
        config = recipe.config(tokenizer.n_pieces, options.shape)
        check_size(teacher.config, config, name)
        student = new_bundle(family, config, (), tokenizer, tied=recipe.tied).eval()
    else:
        return with_layers(teacher, _taken_from(teacher, options.layers, name), name)
    check_teacher(teacher, student, None, name)
    return student


def _settings(options: DistillOptions, teaching: TaskTeaching) -> FinetuneSettings:
    """How the student is trained: as finetune would, but for what it has of its teacher."""
    config, head = teaching.teacher.config, teaching.teacher.head.config
    named = {name: getattr(options, name) for name in _OF_FINETUNING if getattr(options, name) is not None}
    like: dict[str, Any] = {"pool": config.pool, "layer": config.layer, "head": _name_of(head)}
    if like["head"] != "bcn":
        like["readout"] = config.readout
    return settings_of(FinetuneOptions(**like, **named, seeds=(options.seed,)))


def _name_of(head: HeadConfig) -> str:
    """The name that `finetune --head` has for a head."""
    fitting = (name for name, each in NAMES.items() if (each["body"], each.get("crf", False)) == (head.body, head.crf))
    return next(fitting, head.body)


def _data(options: DistillOptions, teaching: TaskTeaching, card: Mapping[str, Any]) -> TaskData | None:
    """The labeled data of the teacher's task; None where there are texts alone."""
    head = teaching.teacher.head.config
    files = {"train": options.train, "dev": options.dev, "test": options.test}
    named = {split: file for split, file in files.items() if file is not None}
    if options.data is not None:
        if named:
            raise OptionError(f"The data is a folder ({options.data}) or files ({', '.join(named)}). Leave one out.")
        if card.get("name") not in BENCHMARKS:
            raise OptionError(
                f"The teacher {teaching.name} was fitted to {card.get('name')!r}, which is no benchmark, so its data "
                "is no folder (--data). Name files: --train FILE."
            )
        data = read_benchmark(str(card["name"]), options.data)
    elif "train" in named:
        columns = {**card.get("columns", {}), **options.changed(TaskDataOptions)}
        data = read_own(head.kind, named, **{**columns, **KINDS[head.kind].reading_options(head)})
    elif options.sources is None or named:
        raise OptionError(
            f"There is nothing to learn {head.kind!r} from. Name a file with labels (--train FILE), the folder of a "
            "benchmark (--data FOLDER), or texts without labels."
        )
    else:
        return None
    unknown = sorted({label for items in data.splits.values() for item in items for label in labels_in(item)}
                     - set(head.labels))  # fmt: skip
    if head.labels and unknown:
        raise InputError(
            f"{data.name} has labels that the teacher {teaching.name} does not know: "
            f"{', '.join(map(repr, unknown[:5]))}. It knows {', '.join(map(repr, head.labels[:5]))}. Is it the right "
            "column, and the right teacher?"
        )
    return dataclasses.replace(data, labels=head.labels, metrics=tuple(card.get("metrics") or data.metrics))


def _with_texts(
    data: TaskData | None, options: DistillOptions, teaching: TaskTeaching, card: Mapping[str, Any]
) -> TaskData:
    """The data with texts that have no labels, whose labels are the teacher's answers, among the training items."""
    if options.sources is None:
        assert data is not None
        return data
    head = teaching.teacher.head.config
    kind = KINDS[head.kind]
    if kind.has_choices or kind.has_spans or not kind.has_labels:
        raise OptionError(
            f"Texts without labels can be learned from where texts or words have a label, and {head.kind!r} is another "
            "task. Leave the texts out."
        )
    answered = predict(options.sources, model=teaching.name, field=options.field, device=options.device).predictions
    items = tuple(_item(each) for each in answered)
    if data is not None:
        note = f"{len(items):,} texts without labels are learned from, too, with the teacher's answers."
        splits = {**data.splits, "train": (*data.splits["train"], *items)}
        return dataclasses.replace(data, splits=splits, notes=(*data.notes, note))
    if len(items) < 2:
        raise InputError(f"There are {len(items)} texts, and two are needed: one to learn from, one to compare on.")
    train, dev = with_dev(items)
    notes = ("Nothing has a label: labels are the teacher's answers, and scores say how often the student agrees.",
             dev_note(train, dev))  # fmt: skip
    return TaskData(
        name=str(card.get("name", head.kind)),
        kind=head.kind,
        labels=head.labels,
        regression=head.regression,
        multi=head.multi,
        splits={"train": train, "dev": dev},
        metrics=tuple(card["metrics"]),
        scheme=head.scheme,
        notes=notes,
    )


def _item(answered: Prediction) -> Item:
    """A text with the teacher's answer as its label."""
    gold = tuple(answered.label) if isinstance(answered.label, list) else answered.label
    if answered.words is not None:
        return Item.of_words(answered.words, gold=gold, id=answered.id)
    return Item(text=answered.text, second=answered.second, gold=gold, id=answered.id)


def _notes(data: TaskData, teaching: TaskTeaching, device: str) -> list[str]:
    """What the teacher scores on the splits that the student is scored on."""
    teacher = teaching.teacher.to(device)
    predictor, kind, head = Predictor(teacher), KINDS[data.kind], teacher.head.config
    notes = []
    for split, items in data.splits.items():
        labeled: Sequence[Item] = [item for item in items if item.gold is not None]
        if split == "train" or not labeled:
            continue
        answers = [each.label for each in predictor.in_chunks(labeled, None)]
        golds = [kind.comparable_gold(head, item) for item in labeled]
        figures = measure(data.metrics, golds, answers, labels=head.labels)
        shown = ", ".join(f"{name} {100 * value:.1f}" for name, value in figures.items())
        notes.append(f"The teacher {Path(teaching.name).name} on {split}: {shown}.")
    return notes

"""`distill`: a small student learns what a larger teacher predicts."""

from __future__ import annotations

import dataclasses
import logging
import time

from polyseme.api import AnyPath, Model, folder_of
from polyseme.bundle import Bundle, load_bundle, model_folder
from polyseme.convert.hub import find_model
from polyseme.errors import OptionError
from polyseme.files.texts_on_disk import on_disk
from polyseme.objectives.distilled import check_predicts, check_size, check_teacher
from polyseme.options import flat
from polyseme.recipes.recipe_table import recipe_named
from polyseme.recipes.teaching import Teaching
from polyseme.taken_layers import check_layers, spread_layers
from polyseme.training.dry_run import DryRun
from polyseme.training.energy_ledger import Ledger
from polyseme.training.run_job import PausedRun
from polyseme.verb_options.distill_options import DistillOptions
from polyseme.verb_options.pretraining_options import PretrainOptions
from polyseme.verbs.pretrain import run_pretraining

_logger = logging.getLogger(__name__)


@flat(DistillOptions)
def distill(options: DistillOptions) -> Ledger | DryRun | PausedRun:
    """Train a student to predict what a teacher predicts, on raw text.

    What the run cost is returned, or, after `stop_after`, how far it has come. An interrupted run is resumed by the
    same call.
    """
    started = time.perf_counter() if options.started is None else options.started
    chosen = [name for name in ("layers", "student", "recipe") if getattr(options, name) is not None]
    if len(chosen) > 1:
        raise OptionError(f"There is one student, and {' and '.join(chosen)} name several. Leave all but one out.")
    if options.model is None:
        raise OptionError("There is no teacher. Name a model to learn from with -m (model=…).")
    teacher = _folder(options.model, "teacher")
    with on_disk(options.sources, options.field) as (sources, field):
        return _on_texts(dataclasses.replace(options, sources=sources, field=field), teacher, started)


def _folder(model: AnyPath | Model, role: str) -> str:
    """The folder of a model that is named, or loaded already."""
    path = folder_of(model)
    if path is None:
        raise OptionError(f"The {role} comes from no folder. Save it, and name its folder.")
    return str(model_folder(find_model(str(path))))


def taken_from(teacher: Bundle, n_layers: int | None, name: str) -> tuple[int, ...]:
    """The layers of a teacher that a student begins with, which are logged."""
    depth = teacher.config.depth
    number = -(-depth // 2) if n_layers is None else n_layers
    check_layers(teacher, number, name)
    layers = spread_layers(depth, number)
    _logger.info(f"the student begins with layers {', '.join(map(str, layers))} of the teacher's {depth}")
    return layers


def _on_texts(options: DistillOptions, folder: str, started: float) -> Ledger | DryRun | PausedRun:
    """A language model, on raw text."""
    teacher = load_bundle(folder)
    start, layers = None, None
    if options.student is not None:
        start = _folder(options.student, "student")
        student = load_bundle(start)
        check_teacher(teacher, student, None, folder)
    elif options.recipe is None:
        layers = taken_from(teacher, options.layers, folder)
        start = folder
    teaching = Teaching.by(folder, teacher, layers)
    family = teacher.family.name if options.student is None else student.family.name
    own = {name: value for name, value in options.values().items() if name in _OF_PRETRAINING}
    settings = teaching.settings(options.temperature, options.objective or {})
    recipe = options.recipe or teaching.recipe_for(family)
    objective = teaching.kind.from_json(settings)
    if objective.soft_weight:
        check_predicts(teacher, objective.output, folder)
    if options.recipe is not None:
        check_size(teacher.config, recipe_named(options.recipe).config(8, options.shape), folder)
    student_options = PretrainOptions(**{**own, "model": start, "recipe": recipe, "objective": settings})
    return run_pretraining(student_options, started, teaching)


_OF_PRETRAINING = frozenset(each.name for each in dataclasses.fields(PretrainOptions) if each.init) & frozenset(
    each.name for each in dataclasses.fields(DistillOptions)
)
"""Options that pretrain has, too."""

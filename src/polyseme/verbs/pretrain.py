"""`pretrain`: from raw text to a model, in one command."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from polyseme.api import folder_of
from polyseme.corpus.corpus import Corpus
from polyseme.errors import OptionError, PolysemeError, PolysemeWarning
from polyseme.extras import require
from polyseme.files.atomic import AnyPath
from polyseme.files.texts_on_disk import on_disk
from polyseme.files.workshops import only_process
from polyseme.ngrams.model_folder import lead_of
from polyseme.options import flat
from polyseme.parts.device import find_device
from polyseme.recipes.budget_fit import MANY_EPOCHS, Fit
from polyseme.recipes.kneser_ney import CountedRecipe
from polyseme.recipes.pretraining_request import PretrainingRequest, Texts, request_of
from polyseme.recipes.recipe import Recipe
from polyseme.recipes.recipe_table import COUNTED
from polyseme.recipes.teaching import Teaching
from polyseme.training.budget import parse_budget, parse_time
from polyseme.training.counting_run import run_counting
from polyseme.training.device_group import Devices, devices_for
from polyseme.training.dry_run import DryRun, dry_run_of
from polyseme.training.energy_ledger import Ledger, Rates
from polyseme.training.pretraining_job import Job, check_job, check_plan
from polyseme.training.run_folder import RUN, Run
from polyseme.training.run_job import PausedRun, run_job
from polyseme.verb_options.pretraining_options import PretrainOptions
from polyseme.verbs.place_of_run import (
    check_place,
    clear_leftovers_of,
    corpus_name,
    corpus_of_begun_run,
    corpus_of_run,
    corpus_of_texts,
    room_for,
)

DRY_RUN_BYTES = 4_000_000
"""Text that a dry run reads at most."""

Result = TypeVar("Result")

_logger = logging.getLogger(__name__)


@flat(PretrainOptions)
def pretrain(options: PretrainOptions) -> Ledger | DryRun | PausedRun:
    """Pretrain a model on raw text: corpus, tokenizer, training and all, into the folder of a run.

    An interrupted run is resumed by the same call, or by `resume`, which takes no other options but `device`,
    `workers`, `cost_rates` and `stop_after`; it ends as if it had never stopped. What the run cost is returned, or,
    after `stop_after`, its progress. Under `torchrun` all processes make the same call.
    """
    started = time.perf_counter() if options.started is None else options.started
    model = folder_of(options.model)
    if model is None and options.model is not None:
        raise OptionError("The model to train further comes from no folder. Save it, and name its folder.")
    with on_disk(options.sources, options.field) as (sources, field):
        return run_pretraining(dataclasses.replace(options, sources=sources, field=field, model=model), started)


def run_pretraining(
    options: PretrainOptions, started: float, teaching: Teaching | None = None
) -> Ledger | DryRun | PausedRun:
    """Pretrain by these options; with a teacher, `options.model` is the student that is trained."""
    stop_after = _stop_after(options)
    costs = Rates.of(options.cost_rates)
    texts = Texts.of(options)
    if options.resume is not None:
        return _resume(options.resume, options, texts, costs, started, stop_after)
    _check(options, texts)
    if options.recipe is not None and options.recipe in COUNTED:
        return _count(COUNTED[options.recipe], options, texts, costs, started)
    request = request_of(options, texts, teaching)
    start = request.start if teaching is None else teaching.teacher
    device, building = request.device, _corpus_options(options, request.recipe, start)
    if options.dry_run:
        with tempfile.TemporaryDirectory(prefix="polyseme-") as folder, devices_for(device) as devices:
            fitted = devices.agree(request.fit(building["vocab_size"], devices))
            check_plan(request.plan(building["vocab_size"], fitted), devices)
            corpus = corpus_of_texts(texts, Path(folder) / "corpus", {**building, "limit": DRY_RUN_BYTES}, force=True)
            job, place = request.job(corpus, "corpus", devices, fitted), Path(folder) / "run"
            _note_fit(request, job)
            return dry_run_of(job, corpus, devices, place, workers=options.workers, start=request.start_bundle)
    with devices_for(device) as devices, contextlib.ExitStack() as held:
        run, corpus = _begin(devices, texts, Path(str(options.output)), request, building, options.force, held)
        held.enter_context(run.kept_if_stopped())
        return run_job(
            run,
            run.read(Job.from_json),
            corpus,
            devices,
            workers=options.workers,
            rates=costs,
            on_report=options.on_report,
            start=request.start_bundle,
            started=started,
            stop_after=stop_after,
        )


def check_pretraining(options: PretrainOptions) -> dict[str, Any]:
    """How the corpus of a run would be built of its texts; what would be refused before a run begins is refused."""
    texts = Texts.of(options)
    Rates.of(options.cost_rates)
    _check(options, texts)
    if options.recipe is not None and options.recipe in COUNTED:
        recipe = COUNTED[options.recipe]
        _check_counting(recipe, options)
        return _corpus_options(options, recipe)
    request = request_of(options, texts)
    building = _corpus_options(options, request.recipe, request.start)
    with devices_for(request.device) as devices:
        check_plan(request.plan(building["vocab_size"], request.fit(building["vocab_size"], devices)), devices)
    return building


OF_COUNTING = frozenset(
    {
        *("sources", "output", "recipe", "shape", "tokenizer", "vocab_size", "min_count", "field", "documents"),
        *("held_out", "seed", "device", "workers", "cost_rates", "force", "on_report", "progress", "started"),
    }
)
"""Options of a run that counts."""


def _count(recipe: CountedRecipe, options: PretrainOptions, texts: Texts, rates: Rates, started: float) -> Ledger:
    """An n-gram model: its corpus, as for any other recipe, and the counts of it."""
    settings = _check_counting(recipe, options)
    output = Path(str(options.output))
    clear_leftovers_of(output)
    check_place(output, [*texts.files, options.tokenizer], force=options.force)
    with contextlib.ExitStack() as held:
        with room_for(output, held, force=options.force):
            corpus = corpus_of_run(texts, output, _corpus_options(options, recipe))
            corpus.shards("train")  # refuses pairs
            lead_of(corpus.tokenizer)
            record = {"recipe": recipe.name, **settings, "corpus": corpus_name(texts)}
            record["corpus_fingerprint"] = corpus.fingerprint
            run = Run.create(output, record)
        return run_counting(run, corpus, rates=rates, started=started)


def _check_counting(recipe: CountedRecipe, options: PretrainOptions) -> dict[str, Any]:
    """The settings of a run that counts, which has no use for most options."""
    useless = [name for name in options.changed() if name not in OF_COUNTING]
    if useless:
        raise OptionError(
            f"The recipe {recipe.name} counts, and trains nothing: {', '.join(useless)} would change nothing. Leave "
            "that out; order, smoothing and discount are set with --set (shape=…)."
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise OptionError(f"The recipe {recipe.name} counts in one process. Run the command without torchrun.")
    return recipe.settings(options.shape or {})


def _corpus_options(
    options: PretrainOptions, recipe: Recipe | CountedRecipe, start: str | None = None
) -> dict[str, Any]:
    """How the corpus of a recipe is built; a model that is trained further brings its tokenizer."""
    return {
        "tokenizer": start or options.tokenizer or recipe.tokenizer,
        "vocab_size": options.vocab_size or recipe.vocabulary,
        "lowercase": recipe.lowercase,
        "min_count": options.min_count or (recipe.min_count if options.tokenizer is None else 1),
        "frame": recipe.frame_of_rows(),
        **{name: getattr(options, name) for name in ("field", "documents", "held_out", "seed", "progress")},
    }


NOT_OF_THE_RUN = frozenset(
    {
        *("sources", "source", "target", "held_source", "held_target", "output", "resume", "device", "workers"),
        *("cost_rates", "dry_run", "force", "on_report", "progress", "stop_after", "started"),
    }
)
"""Options that do not decide what a run trains."""


COUNTS = (
    *("log_every", "evaluate_every", "checkpoint_every", "keep_checkpoints", "average_checkpoints", "shard_size"),
    "min_count",
)
"""Options that are 1 or more."""


def _check(options: PretrainOptions, texts: Texts) -> None:
    """Refuse, before any work, what is missing or out of range."""
    if not texts.named:
        raise OptionError(
            "There is nothing to train on. Name files, folders or a corpus, or the run that is to be resumed."
        )
    if options.output is None and not options.dry_run:
        raise OptionError("There is no place for the run. Name its folder with -o (output=…).")
    if options.batch_size is not None and options.batch_size < 1:
        raise OptionError(f"A step needs at least 1 row. Got {options.batch_size} instead.")
    for name in COUNTS:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise OptionError(f"The option {name!r} must be at least 1. Got {value} instead.")
    if options.workers < 0:
        raise OptionError(f"The number of workers must be 0 or more. Got {options.workers} instead.")
    if options.budget is not None:
        parse_budget(options.budget)
    _refuse_useless(options, texts.corpus)
    if options.tensorboard:
        require("tensorboard", extra="tensorboard")


def _stop_after(options: PretrainOptions) -> float | None:
    """The seconds after which a slice ends, if there is an end before the run's."""
    if options.stop_after is None:
        return None
    if options.dry_run:
        raise OptionError("A dry run ends by itself after a few steps, so stop_after has no meaning. Leave one out.")
    return parse_time(options.stop_after, "stop_after")


def _refuse_useless(options: PretrainOptions, corpus: Path | None) -> None:
    """Refuse what would be ignored: how texts become pieces, where they are; a shape, where there is a model."""
    reasons: dict[str, tuple[str, ...]] = {}
    if corpus is not None:
        of_texts = ("tokenizer", "vocab_size", "min_count", "field", "documents", "held_out")
        reasons[f"The corpus {corpus} is made already"] = of_texts
    if options.model is not None:
        of_model = ("shape", "tokenizer", "vocab_size", "min_count")
        reasons[f"The model {options.model} has its shape and its tokenizer"] = of_model
    for reason, names in reasons.items():
        useless = [name for name in options.changed() if name in names]
        if useless:
            raise OptionError(f"{reason}, and {', '.join(useless)} would change nothing. Leave that out.")


def _begin(
    devices: Devices, texts: Texts, output: Path, request: PretrainingRequest, building: dict[str, Any], force: bool,
    held: contextlib.ExitStack,
) -> tuple[Run, Corpus]:  # fmt: skip
    """The run, new or the unfinished one that is there, and its corpus; the leading process makes both, and holds the
    run's folder until `held` is closed.
    """

    def begin() -> str:
        clear_leftovers_of(output)
        fitted = _fit_of_run(output, request)
        first_fit = fitted or request.fit(building["vocab_size"], devices)
        check_plan(request.plan(building["vocab_size"], first_fit), devices)
        check_place(output, [*texts.files, request.start, building["tokenizer"]], force=force)
        with room_for(output, held, force=force):
            corpus = corpus_of_run(texts, output, building)
            job = request.job(corpus, corpus_name(texts), devices, fitted)
            check_job(job, corpus, devices, request.start_bundle)
            _note_fit(request, job)
            Run.create(output, json.loads(json.dumps(job.to_json())))
        return str(corpus.folder)

    folder = _lead_first(devices, begin)
    return Run.open(output), Corpus.open(folder)


def _note_fit(request: PretrainingRequest, job: Job) -> None:
    """Log the recipe and how training is fitted to the budget; warn of a text that is too small for it."""
    if request.options["recipe"] is None:
        _logger.info(f"the recipe is {request.recipe.name}; --recipe names another")
    if job.fit is None:
        _logger.info(f"{request.recipe.name}: training as published, whatever the budget")
        return
    fitted = Fit.from_json(job.fit)
    for line in fitted.lines(request.budget):
        _logger.info(line)
    if fitted.epochs is not None and fitted.epochs > MANY_EPOCHS:
        warnings.warn(
            f"The budget of {request.budget} is enough to read this text {fitted.epochs:,.0f} times, and more than "
            f"{MANY_EPOCHS:,.0f} teach nothing new. Give more text, or a smaller budget.",
            PolysemeWarning,
            stacklevel=2,
        )


def _fit_of_run(output: Path, request: PretrainingRequest) -> Fit | None:
    """What the rules gave when a run that is there began, so that the same command resumes it."""
    if not (output / RUN).is_file():
        return None
    run = Run.open(output)
    settings = run.settings
    if (settings.get("recipe"), settings.get("budget")) != (request.recipe.name, str(request.budget)):
        return None
    return None if settings.get("fit") is None else run.read(lambda settings: Fit.from_json(settings["fit"]))


def _resume(
    folder: AnyPath, options: PretrainOptions, texts: Texts, rates: Rates, started: float, stop_after: float | None
) -> Ledger | PausedRun:
    """Resume a run with the settings that it has."""
    if int(os.environ.get("RANK", "0")) == 0:
        clear_leftovers_of(Path(folder))
    run = Run.open(folder)
    changed = [name for name in options.changed() if name not in NOT_OF_THE_RUN]
    if texts.named or changed:
        named = ", ".join(texts.named + changed)
        raise OptionError(
            f"A run is resumed with the settings that it has, and {named} would change them. Leave that out, or start "
            "a new run."
        )
    corpus = corpus_of_begun_run(run)
    model = run.folder / "model"
    if run.finished and model.exists():  # one that is gone is written again, from the last checkpoint
        raise OptionError(f"The run {run.folder} is finished; its model is in {model}.")
    if run.settings.get("recipe") in COUNTED:
        with only_process(run.folder):
            return run_counting(run, corpus, rates=rates, started=started)
    with devices_for(find_device(options.device)) as devices, contextlib.ExitStack() as held:
        _lead_first(devices, lambda: held.enter_context(only_process(run.folder)))
        held.enter_context(run.kept_if_stopped())
        return run_job(
            run,
            run.read(Job.from_json),
            corpus,
            devices,
            workers=options.workers,
            rates=rates,
            on_report=options.on_report,
            started=started,
            stop_after=stop_after,
        )


def _lead_first(devices: Devices, work: Callable[[], Result]) -> Result:
    """Let the leading process work while the others wait; an error there is raised by all."""
    result: Any = None
    refused: PolysemeError | None = None
    if devices.leads:
        try:
            result = work()
        except PolysemeError as error:
            refused = error
    result, refused = devices.agree((result, refused))
    if refused is not None:
        raise refused
    return result  # type: ignore[no-any-return]

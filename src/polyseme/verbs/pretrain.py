"""`pretrain`: from raw text to a model, in one command."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from polyseme.api import AnyPath
from polyseme.bundle import model_folder
from polyseme.convert.hub import find_model
from polyseme.corpus.build import build_corpus
from polyseme.corpus.corpus import Corpus
from polyseme.errors import InputError, OptionError, OutputError, PolysemeError
from polyseme.extras import require
from polyseme.files.atomic import check_output, parents_of
from polyseme.files.source_paths import Sources
from polyseme.parts.device import find_device
from polyseme.recipes.pretraining_request import Texts, Wishes, check_sides, objective_of, training_of
from polyseme.recipes.recipe_table import recipe_named
from polyseme.training.budget import parse_budget
from polyseme.training.device_group import Devices, devices_for
from polyseme.training.dry_run import DryRun, dry_run_of
from polyseme.training.effects import OnReport
from polyseme.training.ledger import Ledger, Rates
from polyseme.training.pretraining import run_job
from polyseme.training.pretraining_job import Job, check_job, check_plan
from polyseme.training.run_folder import RUN, Run, is_beginning
from polyseme.types import Progress

OWN_CORPUS = "./corpus"
"""Where a run keeps the corpus it built itself."""
DRY_RUN_BYTES = 4_000_000
"""Text that a dry run reads at most."""

Result = TypeVar("Result")


def pretrain(
    sources: Sources | None = None,
    *,
    output: AnyPath | None = None,
    source: Sources | None = None,
    target: Sources | None = None,
    held_source: Sources | None = None,
    held_target: Sources | None = None,
    resume: AnyPath | None = None,
    recipe: str = "bert-tiny",
    budget: str = "20min",
    model: AnyPath | None = None,
    tokenizer: str | None = None,
    vocab_size: int | None = None,
    field: str | None = None,
    documents: str | None = None,
    held_out: float = 0.01,
    batch_size: int | None = None,
    length: int | None = None,
    learning_rate: float | None = None,
    optimizer: str | None = None,
    schedule: str | None = None,
    warmup: float | None = None,
    micro_batch_size: int | None = None,
    mask_documents: bool = False,
    reset_positions: bool = False,
    shape: Mapping[str, Any] | None = None,
    objective: Mapping[str, Any] | None = None,
    device: str = "auto",
    dtype: str = "auto",
    compile: bool | None = None,
    parallel: str = "ddp",
    seed: int = 0,
    log_every: int = 10,
    evaluate_every: int | None = None,
    checkpoint_every: int | None = None,
    keep: int = 2,
    shard_size: int | None = None,
    tensorboard: bool = False,
    workers: int = 1,
    rates: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    force: bool = False,
    on_report: OnReport | None = None,
    progress: Progress | None = None,
) -> Ledger | DryRun:
    """Pretrain a model on raw text: corpus, tokenizer, training and all, into the folder of a run.

    A run that was stopped is gone on with by the same call, or by `resume`. Under `torchrun` all processes make the
    same call.

    Args:
        sources: files, folders or patterns of text, or a corpus folder (`build_corpus`).
        output: the folder of the run; its `model/` is the model.
        source: in place of `sources`, what is to be translated, a text a line, where the recipe learns from pairs.
        target: the translations, line by line.
        held_source: pairs to evaluate on, instead of a share of the others; their one side.
        held_target: and their other side.
        resume: the folder of a run to go on with, as it was set; nothing but `device` and `workers` may be given then.
        recipe: what is trained, and how; `list_recipes` has them all.
        budget: 20min, 3e16flops, 1e9pieces or 1000steps.
        model: a model to train on instead of starting afresh; its tokenizer is used, and `recipe` only says how.
        tokenizer: wordpiece, bpe, byte-bpe, unigram, words, blanks or characters, or a folder with one; None: the
            recipe's.
        vocab_size: pieces that a tokenizer trained here has; None: the recipe's.
        field: the field with the text, where files have fields.
        documents: what a document is, as for `build_corpus`.
        held_out: the share of documents that is not trained on.
        batch_size: rows of a step; None: the recipe's.
        length: pieces of a row, throughout; None: the recipe's.
        learning_rate: the highest learning rate; None: the recipe's.
        optimizer: adamw, adamw-uncorrected, muon, adagrad or sgd; None: the recipe's.
        schedule: constant, linear, cosine, noam, slanted-triangular or warmup-stable-decay; None: the recipe's.
        warmup: the share of the steps (below 1), or the steps, in which the rate rises; None: the recipe's.
        micro_batch_size: rows that the device runs at once; None: what suits it.
        mask_documents: whether documents that share a row are hidden from each other.
        reset_positions: whether positions count anew with each document.
        shape: changes to the encoder's config, by name: {"n_layers": 4}.
        objective: changes to the objective's settings, by name: {"unit": "word"}.
        device: auto (a GPU where there is one), cpu, cuda or cuda:N.
        dtype: auto (bf16 on a GPU, else fp32), fp32, bf16 or fp64.
        compile: whether torch compiles the networks; None: on a GPU.
        parallel: how several processes share the work: ddp or fsdp.
        seed: what everything by chance is drawn from.
        log_every: steps between lines of log.jsonl.
        evaluate_every: steps between evaluations on held-out text; None: ten in all.
        checkpoint_every: steps between checkpoints; None: ten in all, at least every 1,000 steps.
        keep: how many checkpoints are kept.
        shard_size: bytes of a file of weights at most.
        tensorboard: whether events for TensorBoard are written too.
        workers: threads that make rows ahead of the steps.
        rates: what energy costs, where it is not as `training.ledger.Rates` says: {"kg_per_kwh": 0.05}.
        dry_run: take two steps of every stage, say what the whole would take, and leave nothing behind.
        force: replace what is there under the name `output`.
        on_report: told how training goes.
        progress: told how much of the text has become a corpus.
    """
    given = {name: value for name, value in locals().items() if name not in _NOT_OF_THE_RUN}
    costs = Rates.told(rates)
    texts = Texts(sources, source, target, held_source, held_target)
    if resume is not None:
        return _resumed(resume, given, texts, device, workers, costs, on_report)
    if not texts.named:
        raise OptionError("There is nothing to train on. Name files, folders or a corpus, or a run to --resume.")
    if output is None and not dry_run:
        raise OptionError("There is no place for the run. Name its folder with -o (output=…).")
    if batch_size is not None and batch_size < 1:
        raise OptionError(f"A step needs at least 1 row. Got {batch_size} instead.")
    for name in ("log_every", "evaluate_every", "checkpoint_every", "keep", "shard_size"):
        if given[name] is not None and given[name] < 1:
            raise OptionError(f"The option {name!r} must be at least 1. Got {given[name]} instead.")
    if workers < 0:
        raise OptionError(f"The number of workers must be 0 or more. Got {workers} instead.")
    parse_budget(budget)
    _refuse_useless(given, texts.corpus)
    if tensorboard:
        require("tensorboard", extra="tensorboard")
    chosen = recipe_named(recipe)
    wishes = Wishes(
        recipe=chosen,
        budget=budget,
        start=None if model is None else str(model_folder(find_model(str(model)))),
        shape=chosen.shaped(shape or {}),
        objective=objective_of(chosen, objective),
        training=training_of(chosen, given, find_device(device)),
        every={name: given[name] for name in ("log_every", "evaluate_every", "checkpoint_every")},
        kept={"keep": keep, "shard_size": shard_size, "tensorboard": tensorboard},
    )
    check_sides(texts, chosen)
    building: dict[str, Any] = {
        "tokenizer": tokenizer or (chosen.tokenizer if model is None else wishes.start),
        "vocab_size": vocab_size or chosen.vocabulary,
        "lowercase": chosen.lowercase,
        "frame": chosen.frame_of_rows(),
        "field": field,
        "documents": documents,
        "held_out": held_out,
        "seed": seed,
        "progress": progress,
    }
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="polyseme-") as folder, devices_for(find_device(device)) as devices:
            check_plan(wishes.plan(building["vocab_size"]), devices)
            corpus = _corpus(texts, Path(folder) / "corpus", {**building, "limit": DRY_RUN_BYTES}, force=True)
            return dry_run_of(wishes.job(corpus, "corpus"), corpus, devices, Path(folder) / "run", workers=workers)
    with devices_for(find_device(device)) as devices:
        run, corpus = _begun(devices, texts, Path(str(output)), wishes, building, force)
        job = Job.from_json(run.settings)
        return run_job(run, job, corpus, devices, workers=workers, rates=costs, on_report=on_report)


_NOT_OF_THE_RUN = frozenset(
    {
        *("sources", "source", "target", "held_source", "held_target", "output", "resume", "device", "workers"),
        *("rates", "dry_run", "force", "on_report", "progress"),
    }
)


def _refuse_useless(given: Mapping[str, Any], corpus: Path | None) -> None:
    """Refuse what would be passed over: how texts become pieces, where they are; a shape, where there is a model."""
    changed = [name for name, default in _defaults().items() if name in given and given[name] != default]
    settled = [
        (f"The corpus {corpus} is made already", corpus, ("tokenizer", "vocab_size", "field", "documents", "held_out")),
        (
            f"The model {given['model']} has its shape and its tokenizer",
            given["model"],
            ("shape", "tokenizer", "vocab_size"),
        ),
    ]
    for why, there, names in settled:
        useless = [name for name in changed if name in names]
        if there is not None and useless:
            raise OptionError(f"{why}, and {', '.join(useless)} would change nothing. Leave that out.")


def _begun(
    devices: Devices, texts: Texts, output: Path, wishes: Wishes, building: dict[str, Any], force: bool
) -> tuple[Run, Corpus]:
    """The run, begun or found, and its corpus; the leading process makes both."""

    def begin() -> str:
        given = texts.corpus
        check_plan(wishes.plan(building["vocab_size"]), devices)
        inputs = [*texts.files, wishes.start, building["tokenizer"]]
        if force or not ((output / RUN).is_file() or is_beginning(output)):
            check_output(
                output,
                force=force,
                kind="folder",
                inputs=inputs,
                marks=[RUN, OWN_CORPUS, f"{OWN_CORPUS}.unfinished", f".{OWN_CORPUS}*.part"],
            )
        path = OWN_CORPUS if given is None else str(given.resolve())
        with _room_for(output, force=force):
            corpus = _corpus_of_run(texts, output, building)
            job = wishes.job(corpus, path)
            check_job(job, corpus, devices)
            Run.create(output, json.loads(json.dumps(job.to_json())))
        return str(corpus.folder)

    folder = _lead_first(devices, begin)
    return Run.open(output), Corpus.open(folder)


@contextlib.contextmanager
def _room_for(output: Path, *, force: bool) -> Iterator[None]:
    """The folder for a run, which goes again if nothing is in it; what it replaces comes back if the run cannot be."""
    aside = output.with_name(f".{output.name[:40]}.{os.getpid()}-{secrets.token_hex(4)}.part")
    with parents_of(output):
        if force and output.exists():
            output.rename(aside)
        output.mkdir(exist_ok=True)
        try:
            yield
        except BaseException:
            if aside.exists():
                shutil.rmtree(output)
                aside.rename(output)
            else:
                with contextlib.suppress(OSError):
                    output.rmdir()  # only if it is empty
            raise
        shutil.rmtree(aside, ignore_errors=True)


def _corpus_of_run(texts: Texts, output: Path, building: Mapping[str, Any]) -> Corpus:
    """The corpus of a run that may have been begun before."""
    try:
        return _corpus(texts, output / OWN_CORPUS, building, force=False)
    except OutputError:
        if not (output / RUN).is_file():
            raise
        raise OutputError(
            f"{output} holds a run on other text, or with another tokenizer. Go on with it as it is by "
            f"`polyseme pretrain --resume {output}`, choose another name, or replace it with --force."
        ) from None


def _resumed(
    folder: AnyPath,
    given: Mapping[str, Any],
    texts: Texts,
    device: str,
    workers: int,
    rates: Rates,
    on_report: OnReport | None,
) -> Ledger:
    """Go on with a run as it was set."""
    run = Run.open(folder)
    changed = [name for name, default in _defaults().items() if name in given and given[name] != default]
    if texts.named or changed:
        named = ", ".join(texts.named + changed)
        raise OptionError(
            f"A run is gone on with as it was set, and {named} would change it. Leave that out, or start a new run."
        )
    job = Job.from_json(run.settings)
    place = run.folder / OWN_CORPUS if job.corpus == OWN_CORPUS else Path(job.corpus)
    corpus = Corpus.open(place)
    if corpus.fingerprint != job.corpus_fingerprint:
        raise InputError(
            f"The corpus {place} is not the one that {run.folder} was begun with: another tokenizer or other text. "
            "Put that one back, or start a new run."
        )
    if run.finished:
        raise OptionError(f"The run {run.folder} is finished; its model is in {run.folder / 'model'}.")
    with devices_for(find_device(device)) as devices:
        return run_job(run, job, corpus, devices, workers=workers, rates=rates, on_report=on_report)


def _defaults() -> dict[str, Any]:
    defaults = pretrain.__kwdefaults__
    return dict(defaults or {})


def _corpus(texts: Texts, place: Path, building: Mapping[str, Any], *, force: bool) -> Corpus:
    """The corpus that is named, or one built of the text, or the one that was built before."""
    given = texts.corpus
    if given is not None:
        return Corpus.open(given)
    named = {name: getattr(texts, name) for name in texts.named}
    return build_corpus(**named, output=place, **building, force=force, again=True)


def _lead_first(devices: Devices, work: Callable[[], Result]) -> Result:
    """Let the leading process do some work while the others wait; if it is refused, by all."""
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

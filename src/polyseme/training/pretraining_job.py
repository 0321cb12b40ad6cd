"""A job: everything that decides a run, and what is checked and built before anything is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyseme.bundle import Bundle, new_bundle
from polyseme.config import Config, EncoderConfig
from polyseme.convert.families import FAMILIES
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import Layout, RowOptions, RowSource
from polyseme.corpus.shards import SIDES
from polyseme.encoders.encoder_kinds import config_from_json
from polyseme.errors import InputError, OptionError
from polyseme.layer_subset import with_layers
from polyseme.model_folder import check_saving, load_bundle
from polyseme.objectives.objective import BaseObjective
from polyseme.objectives.objective_table import check_encoder, check_needs, objective_from
from polyseme.parts.initialization import skip_initialization
from polyseme.training.device_group import Devices
from polyseme.training.training_settings import Phase, TrainingSettings
from polyseme.training.weight_average import check_decay

MOST_EVALUATIONS = 10
"""Evaluations of a run, unless the user says how often they are; a short budget may have fewer (`time_budget`)."""
MOST_LOST = 1000
"""Steps after which a long run writes a checkpoint, unless the user says otherwise."""
FOR_SPARSE_ROWS = ("sgd", "adagrad")
"""Optimizers that take gradients of a few rows of a table."""


@dataclass(frozen=True, kw_only=True)
class Job(Config):
    """Everything that decides a run."""

    recipe: str
    family: str
    encoder: Mapping[str, Any]
    """The encoder's config, with its kind."""
    outputs: tuple[str, ...]
    tied: bool = True
    """Whether the output shares the table of pieces, where it can."""
    objective: Mapping[str, Any]
    """The objective's settings, with its name."""
    training: TrainingSettings
    as_published: bool = False
    """Whether everything is as the paper has it, the last weights included."""
    fit: Mapping[str, Any] | None = None
    """What of these settings was fitted to the budget, and to what; None: they are as published."""
    corpus: str
    """The corpus folder; where it begins with `./`, inside the run's."""
    corpus_fingerprint: str
    budget: str
    start: str | None = None
    """A model that is trained further."""
    taken_layers: tuple[int, ...] | None = None
    """The layers of `start`, counted from 1, that are trained further without the others; None: all."""
    log_every: int = 10
    evaluate_every: int | None = None
    """None: ten times in a run, or fewer where they would take too much of a budget of time."""
    checkpoint_every: int | None = None
    """None: as often, and every 1,000 steps at least where there are ten evaluations."""
    keep: int = 2
    """Checkpoints, beside that with the lowest held-out loss (`keeps_lowest`)."""
    ema: float | None = None
    """The decay of an exponential average of the weights, which is evaluated and saved; None: there is none."""
    average_checkpoints: int | None = None
    """How many of the last checkpoints' weights the saved model is the mean of; None: it is the last one."""
    keep_at_words: tuple[int, ...] | None = None
    """After how many words the model is kept besides, in order."""
    shard_size: int | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        if self.ema is not None:
            check_decay(self.ema)
        if self.training.optimizer.averages and (self.ema is not None or self.average_checkpoints is not None):
            raise OptionError(
                "The optimizer 'nt-asgd' averages weights itself. Leave out ema and average_checkpoints, or choose "
                "'sgd'."
            )
        if self.ema is not None and self.average_checkpoints is not None:
            raise OptionError(
                "The saved model is either an exponential average of weights (ema) or the mean of checkpoints "
                "(average_checkpoints). Choose one."
            )

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> Job:
        """The job of `to_json`, the records in it included."""
        settings = {**settings, "training": TrainingSettings.from_json(settings["training"])}
        return super().from_json(settings)

    def make_objective(self, corpus: Corpus | None = None) -> BaseObjective:
        """The objective by its settings, with what it must know of a corpus where there is one."""
        settings = dict(self.objective)
        objective = objective_from(settings.pop("name"), settings)
        return objective if corpus is None else objective.for_corpus(corpus)

    def start_bundle(self) -> Bundle | None:
        """The model that is trained further, loaded, where there is one."""
        return None if self.start is None else start_of(self.start, self.taken_layers)

    @property
    def keeps_lowest(self) -> bool:
        """Whether the saved model is that of the evaluated checkpoint with the lowest held-out loss, if the last one's
        is higher: a budget may be too large for the text.
        """
        return not self.as_published and self.average_checkpoints is None and self.make_objective().judges_models

    @property
    def layout(self) -> Layout:
        """How its rows are taken from a corpus."""
        return self.make_objective().needs.layout

    def evaluates_every(self, n_steps: int, most: int = MOST_EVALUATIONS) -> int:
        """Where checkpoints are written, too, unless one of the two is chosen; `most` times in a run."""
        often = -(-n_steps // most)
        every = min(self.keeps_every(n_steps, most), often)
        return self.evaluate_every or -(-often // every) * every

    def n_evaluations(self, n_steps: int, most: int = MOST_EVALUATIONS) -> int:
        """How often a run of so many steps is evaluated: every so many, and at the end."""
        return -(-n_steps // self.evaluates_every(n_steps, most))

    def keeps_every(self, n_steps: int, most: int = MOST_EVALUATIONS) -> int:
        """After how many steps a checkpoint is written."""
        often = -(-n_steps // most)
        return self.checkpoint_every or (often if most < MOST_EVALUATIONS else min(often, MOST_LOST))

    @property
    def fewest_evaluations(self) -> int:
        """Without which a run would be another: those that its average of weights goes by, and the last."""
        return MOST_EVALUATIONS if self.training.optimizer.averages else self.average_checkpoints or 1


def start_of(folder: str, layers: tuple[int, ...] | None) -> Bundle:
    """The model in a folder, or these layers of it."""
    whole = load_bundle(folder)
    return whole if layers is None else with_layers(whole, layers, folder)


def check_plan(job: Job, devices: Devices) -> None:
    """Refuse what does not fit together, whatever the corpus, or cannot be saved: nothing is allocated here."""
    config, objective = config_from_json(job.encoder), job.make_objective()
    check_encoder(objective, FAMILIES[job.family], config)
    with skip_initialization():
        check_saving(new_bundle(FAMILIES[job.family], config, job.outputs, tied=job.tied))
    kind = job.training.optimizer.kind
    if objective.updates_in_place and kind not in FOR_SPARSE_ROWS:
        raise OptionError(
            f"The recipe {job.recipe!r} moves only the rows of its tables that a step reads, which the optimizer "
            f"{kind!r} cannot. Choose one of these: {', '.join(FOR_SPARSE_ROWS)}."
        )
    for phase in job.training.phases:
        _check_phase(phase, config, devices)
        job.layout.check(_row_options(job, phase), objective.name)
    if job.layout.carries_memory:
        _check_memory(job, devices)
    if job.training.summed and devices.world > 1:
        raise OptionError(f"The recipe {job.recipe!r} is trained by one process. Start it without torchrun.")


def check_job(job: Job, corpus: Corpus, devices: Devices, start: Bundle | None) -> list[RowSource]:
    """Refuse what does not fit together, before any work: nothing is allocated here. The rows of each phase."""
    check_plan(job, devices)
    with skip_initialization():
        bundle = fresh_bundle(job, corpus)
    check_sides(job.recipe, job.layout, in_pairs=corpus.sides == SIDES, name=str(corpus.folder))
    if start is not None:
        _check_tokenizer(job, corpus, start)
    check_needs(job.make_objective(corpus).with_models(), bundle, corpus.tokenizer)
    sources = [rows_of(job, corpus, phase) for phase in job.training.phases]
    for phase, source in zip(job.training.phases, sources, strict=True):
        _check_rows(phase, source, corpus)
    return sources


def rows_of(job: Job, corpus: Corpus, phase: Phase, split: str = "train") -> RowSource:
    """The rows that a phase takes from a corpus."""
    objective = job.make_objective(corpus)
    options = _row_options(job, phase, split)
    length = objective.row_length(options.length, corpus.tokenizer.n_specials)
    return objective.needs.layout.rows(corpus, dataclasses.replace(options, length=length))


def _row_options(job: Job, phase: Phase, split: str = "train") -> RowOptions:
    training = job.training
    return RowOptions(
        split=split,
        length=phase.length,
        batch_size=phase.batch_size,
        seed=training.seed,
        mask_documents=training.mask_documents,
        reset_positions=training.reset_positions,
        sentence_starts=training.sentence_starts,
        varied=training.varied,
        varied_by=training.varied_by,
    )


def fresh_bundle(job: Job, corpus: Corpus) -> Bundle:
    """A model as the job describes it, with weights as they are first drawn."""
    family, config = FAMILIES[job.family], config_from_json(job.encoder)
    return new_bundle(family, config, job.outputs, corpus.tokenizer.in_family(family.frame), tied=job.tied)


def first_bundle(job: Job, corpus: Corpus, start: Bundle | None) -> Bundle:
    """The model a job begins with: a fresh one, or `start` with the outputs that it lacks."""
    fresh = fresh_bundle(job, corpus)
    if start is None:
        return fresh
    outputs = {name: start.outputs[name] if name in start.outputs else fresh.outputs[name] for name in job.outputs}
    return Bundle(
        family=fresh.family,
        encoder=start.encoder,
        decoder=start.decoder,
        outputs=outputs,
        tokenizer=corpus.tokenizer,
        tied=start.tied,
    )


def _check_tokenizer(job: Job, corpus: Corpus, start: Bundle) -> None:
    """Refuse to train a model further with pieces, or words of its softmax, that are numbered otherwise."""
    theirs = start.tokenizer
    if theirs is None:
        return
    words = getattr(theirs, "vocabulary", None)
    if words is not None and tuple(corpus.tokenizer.pieces(range(len(words)))) != words:
        raise OptionError(
            f"The softmax of {job.start} chooses from other words than the first {len(words):,} of the corpus "
            f"{corpus.folder}. Train it further on a corpus with its table of words, or train a new model."
        )
    if words is None and theirs.fingerprint != corpus.tokenizer.in_family(start.family.frame).fingerprint:
        raise OptionError(
            f"The model {job.start} has another tokenizer ({theirs.n_pieces:,} pieces) than the corpus "
            f"{corpus.folder} ({corpus.tokenizer.n_pieces:,}), so the ids of its pieces would stand for others. Train "
            "it further on the texts themselves, or on a corpus of its tokenizer: polyseme corpus TEXTS --tokenizer "
            f"{job.start}."
        )


def _check_phase(phase: Phase, config: EncoderConfig, devices: Devices) -> None:
    if config.window is not None and phase.length > config.window:
        raise OptionError(
            f"Rows of {phase.length:,} pieces are longer than the {config.window:,} positions of the model. "
            "Shorten them (--length)."
        )
    if phase.batch_size % devices.world:
        raise OptionError(
            f"The {phase.batch_size:,} rows of a step cannot be shared evenly by {devices.world} processes. "
            "Choose a number of rows that can (--batch-size)."
        )


def check_sides(recipe: str, layout: Layout, *, in_pairs: bool, name: str) -> None:
    """Refuse plain text for a recipe that learns from pairs, and the other way round."""
    if layout.sides == SIDES and not in_pairs:
        raise OptionError(
            f"The recipe {recipe!r} learns from texts in pairs, and {name} is plain text. Name both sides, one text "
            "per line each: --source FILE --target FILE."
        )
    if layout.sides != SIDES and in_pairs:
        raise OptionError(
            f"The recipe {recipe!r} learns from plain text, and {name} is of texts in pairs. Name texts, or choose a "
            "recipe that translates (transformer-tiny)."
        )


def _check_memory(job: Job, devices: Devices) -> None:
    """Refuse what rows that carry a memory cannot do."""
    if len({phase.batch_size for phase in job.training.phases}) > 1:
        raise OptionError(
            "Every row of a step is a stream of its own, with its memory, so all phases must have equally many rows."
        )
    if devices.world > 1 and job.training.parallel == "fsdp":
        raise OptionError("Streams that carry a memory are trained on several devices by 'ddp' only. Choose that.")


def _check_rows(phase: Phase, source: RowSource, corpus: Corpus) -> None:
    if source.n_rows < phase.batch_size:
        raise InputError(
            f"The corpus is smaller than a batch: {corpus.n_pieces('train'):,} pieces make {source.n_rows:,} rows of "
            f"{phase.length:,}, and a step takes {phase.batch_size:,}. Give more text, or smaller steps (--batch-size)."
        )

"""A job: everything that decides a run, and what follows from it before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyseme.bundle import Bundle, load_bundle, new_bundle
from polyseme.config import Config, EncoderConfig
from polyseme.convert.families import FAMILIES
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.pair_layout import Pairs
from polyseme.corpus.row_layouts import Layout, Packed, Streams
from polyseme.corpus.shards import SIDES
from polyseme.encoders.encoder_kinds import config_from_json
from polyseme.errors import InputError, OptionError
from polyseme.objectives.objective import BaseObjective
from polyseme.objectives.objective_table import check_encoder, check_needs, objective_from
from polyseme.parts.initialization import unfilled
from polyseme.training.device_group import Devices
from polyseme.training.training_settings import Phase, TrainingSettings

HELD_ROWS = 8
"""How many rows of a held-out stream there are at least, where there is enough text: the first ones lack a memory."""


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
    corpus: str
    """The corpus folder; where it begins with `./`, inside the run's."""
    corpus_fingerprint: str
    budget: str
    start: str | None = None
    """A model whose weights are trained on."""
    log_every: int = 10
    evaluate_every: int | None = None
    """None: ten times in a run."""
    checkpoint_every: int | None = None
    """None: ten times in a run, and every 1,000 steps at least."""
    keep: int = 2
    shard_size: int | None = None
    tensorboard: bool = False

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> Job:
        """The job of `to_json`, the records in it included."""
        settings = {**settings, "training": TrainingSettings.from_json(settings["training"])}
        read: Job = super().from_json(settings)
        return read

    def told_objective(self, corpus: Corpus) -> BaseObjective:
        """The objective, told of the corpus's vocabulary."""
        return self.plain_objective().for_tokenizer(corpus.tokenizer)

    def plain_objective(self) -> BaseObjective:
        """The objective by its settings alone."""
        settings = dict(self.objective)
        return objective_from(settings.pop("name"), settings)

    def evaluates_every(self, n_steps: int) -> int:
        return self.evaluate_every or -(-n_steps // 10)

    def n_evaluations(self, n_steps: int) -> int:
        """How often a run of so many steps is evaluated: every so many, and at the end."""
        return -(-n_steps // self.evaluates_every(n_steps))

    def keeps_every(self, n_steps: int) -> int:
        return self.checkpoint_every or min(-(-n_steps // 10), 1000)


def check_plan(job: Job, devices: Devices) -> None:
    """Refuse what does not fit together, whatever the corpus: nothing is allocated here."""
    config = config_from_json(job.encoder)
    check_encoder(job.plain_objective(), FAMILIES[job.family], config)
    for phase in job.training.phases:
        _check_phase(phase, config, devices)
    _check_streams(job, devices)


def check_job(job: Job, corpus: Corpus, devices: Devices) -> None:
    """Refuse what does not fit together, before any work: nothing is allocated here."""
    check_plan(job, devices)
    with unfilled():
        bundle = new_bundle(
            FAMILIES[job.family], config_from_json(job.encoder), job.outputs, corpus.tokenizer, tied=job.tied
        )
    _check_sides(job, corpus)
    _check_tokenizer(job, corpus)
    check_needs(job.told_objective(corpus), bundle, corpus.tokenizer)
    for phase, layout in zip(job.training.phases, layouts_of(job, corpus), strict=True):
        _check_rows(phase, layout, corpus)


def layouts_of(job: Job, corpus: Corpus) -> list[Layout]:
    """How each phase of a job takes its rows from the corpus."""
    if _layout(job) == "streams":
        return [_streams(job, corpus, phase.batch_size, length=phase.length) for phase in job.training.phases]
    make = _pairs if _layout(job) == "pairs" else _packed
    return [make(job, corpus, "train", phase.length) for phase in job.training.phases]


def held_layout(job: Job, corpus: Corpus) -> Layout:
    """How the rows that are held out are taken; as many streams as in training, or fewer, so that each is long."""
    phase = job.training.phases[0]
    if _layout(job) != "streams":
        return (_pairs if _layout(job) == "pairs" else _packed)(job, corpus, "held", phase.length)
    n_streams = min(phase.batch_size, max(corpus.n_pieces("held") // (HELD_ROWS * phase.length), 1))
    return _streams(job, corpus, n_streams, split="held", length=phase.length)


def _layout(job: Job) -> str:
    return job.plain_objective().needs.layout


def _streams(job: Job, corpus: Corpus, n_streams: int, **settings: Any) -> Streams:
    training, objective = job.training, job.plain_objective()
    return Streams(
        corpus,
        n_streams,
        seed=training.seed,
        ahead=objective.ahead,
        back=objective.both_ways,
        varied=training.varied,
        **settings,
    )


def _packed(job: Job, corpus: Corpus, split: str, length: int) -> Layout:
    training, objective = job.training, job.told_objective(corpus)
    return Packed(
        corpus,
        split,
        objective.row_length(length, corpus.tokenizer.n_specials),
        seed=training.seed,
        mask_documents=training.mask_documents,
        reset_positions=training.reset_positions,
        same_cuts=objective.same_rows,
        sentences=objective.sentences,
    )


def _pairs(job: Job, corpus: Corpus, split: str, length: int) -> Layout:
    return Pairs(corpus, split, length, seed=job.training.seed)


def start_bundle(job: Job, corpus: Corpus) -> Bundle:
    """The model a job begins with: freshly drawn, or one that is trained on, with the outputs that it lacks."""
    family, config = FAMILIES[job.family], config_from_json(job.encoder)
    fresh = new_bundle(family, config, job.outputs, corpus.tokenizer, tied=job.tied)
    if job.start is None:
        return fresh
    loaded = load_bundle(job.start)
    outputs = {name: loaded.outputs[name] if name in loaded.outputs else fresh.outputs[name] for name in job.outputs}
    return Bundle(
        family=family,
        encoder=loaded.encoder,
        decoder=loaded.decoder,
        outputs=outputs,
        tokenizer=corpus.tokenizer,
        tied=loaded.tied,
    )


def _check_tokenizer(job: Job, corpus: Corpus) -> None:
    """Refuse to train a model on with pieces, or words of its softmax, that are numbered otherwise."""
    theirs = None if job.start is None else load_bundle(job.start).tokenizer
    if theirs is None:
        return
    words = getattr(theirs, "vocabulary", None)
    if words is not None and tuple(corpus.tokenizer.pieces(range(len(words)))) != words:
        raise OptionError(
            f"The softmax of {job.start} chooses from other words than the first {len(words):,} of the corpus "
            f"{corpus.folder}. Train it on with a corpus that has its table of words, or start afresh."
        )
    if words is None and theirs.fingerprint != corpus.tokenizer.fingerprint:
        raise OptionError(
            f"The model {job.start} has another tokenizer ({theirs.n_pieces:,} pieces) than the corpus "
            f"{corpus.folder} ({corpus.tokenizer.n_pieces:,}), so its pieces would stand for others. Train it on with "
            f"the texts themselves, or with a corpus of its tokenizer: polyseme corpus TEXTS --tokenizer {job.start}."
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
            "Choose a number of rows that can (--rows)."
        )


def _check_sides(job: Job, corpus: Corpus) -> None:
    """Refuse plain text where pairs are wanted, and the other way round."""
    wanted = _layout(job) == "pairs"
    if wanted and corpus.sides != SIDES:
        raise OptionError(
            f"The recipe {job.recipe!r} learns from texts in pairs, and {corpus.folder} is plain text. Name both "
            "sides, a text a line each: --source FILE --target FILE."
        )
    if not wanted and corpus.sides == SIDES:
        raise OptionError(
            f"The recipe {job.recipe!r} learns from plain text, and {corpus.folder} is of texts in pairs. Name texts, "
            "or choose a recipe that translates (transformer-tiny)."
        )


def _check_streams(job: Job, devices: Devices) -> None:
    """Refuse what streams that carry a memory cannot do, and what only they or packed rows can."""
    training = job.training
    if _layout(job) != "streams":
        if training.varied:
            raise OptionError("Rows of varied lengths are for streams; packed rows are all of one length.")
        objective = job.plain_objective()
        if (training.mask_documents or training.reset_positions) and not (
            objective.keeps_apart and _layout(job) == "packed"
        ):
            raise OptionError(
                f"The objective {objective.name!r} cannot keep the documents of a row 'apart', nor 'reset' positions: "
                "leave these out. (Pairs that share a row are always apart.)"
            )
        return
    if len({phase.batch_size for phase in training.phases}) > 1:
        raise OptionError(
            "Every row of a step is a stream of its own, with its memory, so all phases must have equally many rows."
        )
    if training.mask_documents or training.reset_positions:
        raise OptionError(
            "A stream goes on over the ends of documents with what it remembers: they cannot be kept 'apart', nor "
            "positions 'reset'. Leave these out."
        )
    if devices.world > 1 and training.parallel == "fsdp":
        raise OptionError("Streams that carry a memory are trained on several devices by 'ddp' only. Choose that.")


def _check_rows(phase: Phase, layout: Layout, corpus: Corpus) -> None:
    if layout.n_rows < phase.batch_size:
        raise InputError(
            f"The corpus is smaller than a batch: {corpus.n_pieces('train'):,} pieces make {layout.n_rows:,} rows of "
            f"{phase.length:,}, and a step takes {phase.batch_size:,}. Give more text, or smaller steps (--rows)."
        )

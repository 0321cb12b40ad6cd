"""What a user requests of `pretrain`: texts to learn from, and a recipe with options; and the job that results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from polyseme.bundle import Bundle, new_bundle
from polyseme.config import Config, EncoderConfig
from polyseme.convert.families import family_for
from polyseme.convert.family import Family
from polyseme.convert.hub import find_model
from polyseme.corpus.corpus import ABOUT, Corpus
from polyseme.corpus.document_reader import by_name
from polyseme.encoders.encoder_kinds import config_to_json
from polyseme.errors import OptionError
from polyseme.files.source_paths import Sources, list_names
from polyseme.model_folder import model_folder
from polyseme.objectives.objective_table import OBJECTIVES, check_encoder, objective_from
from polyseme.parts.device import find_device
from polyseme.parts.initialization import skip_initialization
from polyseme.recipes.budget_fit import Circumstances, Fit, Scaling, fit, fitted_dropout, fitted_training
from polyseme.recipes.kneser_ney import CountedRecipe
from polyseme.recipes.recipe import Recipe, flops_of_rows
from polyseme.recipes.recipe_choice import chosen_recipe
from polyseme.recipes.recipe_table import COUNTED
from polyseme.recipes.teaching import Teaching
from polyseme.training.budget import Budget, parse_budget
from polyseme.training.device_group import Devices
from polyseme.training.energy_ledger import measured_peak
from polyseme.training.models_at_words import numbers_of_words
from polyseme.training.pretraining_job import Job, check_sides, rows_of, start_of
from polyseme.training.training_settings import Phase, TrainingSettings
from polyseme.verb_options.pretraining_options import PretrainOptions


@dataclass(frozen=True)
class Texts:
    """What to train on: texts, a corpus, or both sides of texts in pairs."""

    sources: Sources | None
    source: Sources | None
    target: Sources | None
    held_source: Sources | None
    held_target: Sources | None

    @classmethod
    def of(cls, options: PretrainOptions) -> Texts:
        """Those of a record of options."""
        return cls(*(getattr(options, each.name) for each in dataclasses.fields(cls)))

    @property
    def named(self) -> list[str]:
        """The names of the arguments that were given."""
        return [each.name for each in dataclasses.fields(self) if getattr(self, each.name) is not None]

    @property
    def corpus(self) -> Path | None:
        """The corpus folder, if the texts are one."""
        if self.sources is None or len(self.named) > 1:
            return None
        names = list_names(self.sources)
        if len(names) == 1 and (Path(names[0]) / ABOUT).is_file():
            return Path(names[0])
        return None

    @property
    def files(self) -> list[str]:
        """Everything that is read, as it was named."""
        by_sides = [by_name(getattr(self, name)) for name in self.named]
        return [path for side in by_sides for paths, _ in side.values() for path in list_names(paths)]


def check_texts(texts: Texts, recipe: Recipe) -> None:
    """Refuse plain text for a recipe that learns from pairs, and the other way round, before there is a corpus."""
    layout = objective_from(recipe.objective, recipe.objective_settings).needs.layout
    sides = [name for name in texts.named if name != "sources"]
    if texts.corpus is None and texts.sources is not None and not sides:
        check_sides(recipe.name, layout, in_pairs=False, name=_shorten(texts.sources))
    if texts.sources is None:
        files = ", ".join(f"{name} {_shorten(getattr(texts, name))}" for name in sides)
        check_sides(recipe.name, layout, in_pairs=True, name=files)


def _shorten(sources: Sources) -> str:
    """What the user named, in short."""
    names = list_names(sources)
    return names[0] if len(names) == 1 else f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}"


def objective_settings(recipe: Recipe, options: Mapping[str, Any] | None, layout: str | None) -> dict[str, Any]:
    """The user's settings of the objective, the layout of its rows among them."""
    settings = dict(options or {})
    if layout is None:
        return settings
    if not hasattr(OBJECTIVES[recipe.objective], "layout"):
        raise OptionError(
            f"The layout of rows is chosen where pieces are masked, and the recipe {recipe.name} has the objective "
            f"{recipe.objective!r}. Leave out --layout (layout=…), or choose another recipe."
        )
    if settings.setdefault("layout", layout) != layout:
        raise OptionError(
            f"Rows have one layout, and two were given: {layout!r} and {settings['layout']!r}. Leave one out."
        )
    return settings


@dataclass(frozen=True, kw_only=True)
class PretrainingRequest:
    """A recipe with the user's options, before there is a corpus."""

    recipe: Recipe
    budget: Budget
    device: str
    start: str | None
    """The folder of a model that is trained further."""
    taken_layers: tuple[int, ...] | None = None
    """The layers of it, counted from 1, that are trained further without the others; None: all."""
    shape: Mapping[str, Any]
    """The user's changes of the encoder's config …"""
    objective: Mapping[str, Any]
    """… and of the objective's settings."""
    options: Mapping[str, Any]
    """The user's options of training; None where one was not given."""
    reporting: Mapping[str, Any]
    """How often a run logs, evaluates and writes checkpoints, and what it keeps."""

    @property
    def scaling(self) -> Scaling | None:
        """How training scales, unless it is to be as published."""
        return None if self.options["as_published"] else self.recipe.scaling

    def job(self, corpus: Corpus, path: str, devices: Devices, fitted: Fit | None = None) -> Job:
        """The job, now that there is a corpus; `fitted`: what the rules gave when the run began."""
        n_pieces = corpus.tokenizer.n_pieces
        fitted = fitted or self.fit(n_pieces, devices, text_pieces=corpus.n_pieces("train"))
        job = self.plan(n_pieces, fitted, corpus=path, corpus_fingerprint=corpus.fingerprint)
        return job if self.options["batch_size"] is not None else _with_rows_of_text(job, corpus)

    def fit(self, n_pieces: int, devices: Devices, *, text_pieces: int | None = None) -> Fit | None:
        """What the rules of `budget_fit` give for a vocabulary of `n_pieces`; None: training is as published.

        A speed may be measured for it, so that processes must agree on the result of one of them.
        """
        if self.scaling is None:
            return None
        circumstances = Circumstances(
            budget=self.budget,
            device="cuda" if devices.device.type == "cuda" else "cpu",
            world=devices.world,
            flops_per_second=partial(measured_peak, devices.device, self._dtype),
            flops_per_piece=lambda length: self._flops_per_piece(n_pieces, length),
            text_pieces=text_pieces,
        )
        chosen = {name: self.options[name] for name in ("length", "batch_size", "learning_rate", "optimizer")}
        scaling = self.scaling
        if self.start is not None:
            scaling = dataclasses.replace(scaling, rate=scaling.rate * RATE_OF_TRAINED)
        return fit(scaling, self._config(n_pieces, {}), circumstances, chosen)

    def plan(self, n_pieces: int, fitted: Fit | None, *, corpus: str = "", corpus_fingerprint: str = "") -> Job:
        """The job as far as a vocabulary of `n_pieces` pieces, and what the rules gave, decide it."""
        training = self._training_settings(fitted)
        config = self._config(n_pieces, self._changes(n_pieces, fitted, training))
        objective = self._objective(config)
        settings = {name: value for name, value in objective.items() if name != "name"}
        start = self.start_bundle
        return Job(
            recipe=self.recipe.name,
            family=self._family(config).name,
            encoder=config_to_json(config),
            outputs=objective_from(self.recipe.objective, settings).needs.outputs,
            tied=self.recipe.tied if start is None else start.tied,
            objective=objective,
            training=training,
            as_published=self.options["as_published"],
            fit=None if fitted is None else fitted.to_json(),
            corpus=corpus,
            corpus_fingerprint=corpus_fingerprint,
            budget=str(self.budget),
            start=self.start,
            taken_layers=self.taken_layers,
            **self.reporting,
        )

    @cached_property
    def start_bundle(self) -> Bundle | None:
        """The model that is trained further, loaded once."""
        return None if self.start is None else start_of(self.start, self.taken_layers)

    @property
    def _dtype(self) -> torch.dtype:
        return torch.bfloat16 if self._precision == "bf16" else torch.float32

    @property
    def _precision(self) -> str:
        on_gpu = torch.device(self.device).type == "cuda"
        dtype: str = self.options["dtype"]
        return ("bf16" if on_gpu else "fp32") if dtype == "auto" else dtype

    def _config(self, n_pieces: int, changes: Mapping[str, Any]) -> EncoderConfig:
        """The encoder's config: the user's shape before those changes, and them before what suits a small budget."""
        if self.start_bundle is not None:
            return self.start_bundle.config
        for_budget = {} if self.scaling is None else self.scaling.shape
        return self.recipe.config(n_pieces, {**for_budget, **changes, **self.shape})

    def _family(self, config: EncoderConfig) -> Family:
        """The recipe's, or the one of our own that holds what it cannot; a model's that is trained further."""
        return family_for(self.recipe.family, config) if self.start_bundle is None else self.start_bundle.family

    def _changes(self, n_pieces: int, fitted: Fit | None, training: TrainingSettings) -> dict[str, Any]:
        """What differs from the recipe's shape: dropout by the budget, and positions for the longest rows.

        Where training is fitted, there are no others: a model that has never seen a position must not use it.
        """
        changes: dict[str, Any] = {}
        config = self.recipe.config(n_pieces)
        if fitted is not None and self.scaling is not None:
            changes |= fitted_dropout(self.scaling, config, fitted.dropout)
        positions = self.recipe.shape.get("max_positions")
        if positions is not None:
            only_seen = fitted is not None and str(getattr(config, "positions", "")).startswith(("learned", "rotary"))
            changes["max_positions"] = training.longest if only_seen else max(training.longest, int(positions))
        return changes

    @property
    def for_budget(self) -> dict[str, Any]:
        """Settings of the objective that suit the budget and the device better than the published ones."""
        if self.scaling is None:
            return {}
        on_cpu = torch.device(self.device).type == "cpu"
        return {**self.scaling.objective, **(self.scaling.cpu_objective if on_cpu else {})}

    def _objective(self, config: EncoderConfig) -> dict[str, Any]:
        """The objective by name, with all of its settings: the user's before those that suit the budget."""
        for_budget = dict(self.for_budget)
        if "mask_rate" in self.objective:
            for_budget.pop("final_mask_rate", None)
        settings = {**self.recipe.objective_settings, **for_budget}
        for name in OBJECTIVES[self.recipe.objective].replaced_by(self.objective):
            settings.pop(name, None)  # the recipe's choice, which the user's leaves no room for
        settings |= self.objective
        objective = objective_from(self.recipe.objective, settings).for_encoder(config)
        return {"name": self.recipe.objective, **objective.to_json()}

    def _training_settings(self, fitted: Fit | None) -> TrainingSettings:
        """The settings of training, with the user's options instead."""
        options = self.options
        if fitted is None or self.scaling is None:
            settings = self.recipe.training
        else:
            settings = fitted_training(self.scaling, fitted)
        phases = settings.phases
        if options["length"] is not None:
            phases = (Phase(length=options["length"], batch_size=phases[0].batch_size),)
        if options["batch_size"] is not None:
            phases = tuple(phase.replace(batch_size=options["batch_size"]) for phase in phases)
        optimizer = _with_changes(settings.optimizer, kind=options["optimizer"], lr=options["learning_rate"])
        schedule = _with_changes(settings.schedule, kind=options["schedule"], warmup=options["warmup"])
        on_gpu = torch.device(self.device).type == "cuda"
        return settings.replace(
            phases=phases,
            optimizer=optimizer,
            schedule=schedule,
            layer_decay=settings.layer_decay if options["layer_decay"] is None else options["layer_decay"],
            micro_batch_size=options["micro_batch_size"],
            mask_documents=options["mask_documents"],
            reset_positions=options["reset_positions"],
            dtype=self._precision,
            compile=on_gpu and self.recipe.compiled if options["compile"] is None else options["compile"],
            parallel=options["parallel"],
            seed=options["seed"],
        )

    def _flops_per_piece(self, n_pieces: int, length: int) -> float:
        """Floating-point operations of training, forwards and backwards, by analysis."""
        start, config = self.start_bundle, self._config(n_pieces, {})
        settings = {name: value for name, value in self._objective(config).items() if name != "name"}
        objective = objective_from(self.recipe.objective, settings).with_models()
        family, tied = self._family(config), self.recipe.tied if start is None else start.tied
        check_encoder(objective, family, config)
        with skip_initialization():
            bundle = new_bundle(family, config, objective.needs.outputs, tied=tied)
            return flops_of_rows(objective, bundle, n_pieces, 64, length) / (64 * length)


def recipe_of(options: PretrainOptions) -> Recipe | CountedRecipe:
    """The recipe that is named, or the one that is chosen where none is."""
    if options.recipe is not None and options.recipe in COUNTED:
        return COUNTED[options.recipe]
    return _trained_recipe(options)


def _trained_recipe(options: PretrainOptions) -> Recipe:
    return chosen_recipe(
        options.recipe,
        budget=parse_budget(options.budget or Recipe.budget),
        device=find_device(options.device),
        start=_start(options),
        in_pairs=options.sources is None,
    )


def _start(options: PretrainOptions) -> str | None:
    """The folder of the model that is trained further."""
    return None if options.model is None else str(model_folder(find_model(str(options.model))))


def request_of(options: PretrainOptions, texts: Texts, teaching: Teaching | None = None) -> PretrainingRequest:
    """The recipe, named or chosen, with the user's options."""
    chosen = _trained_recipe(options)
    budget = parse_budget(options.budget or chosen.budget)
    if teaching is not None:
        chosen = teaching.taught(chosen)
    check_texts(texts, chosen)
    return PretrainingRequest(
        recipe=chosen,
        budget=budget,
        device=find_device(options.device),
        start=_start(options),
        taken_layers=None if teaching is None else teaching.taken_layers,
        shape=chosen.shaped(options.shape or {}),
        objective=objective_settings(chosen, options.objective, options.layout),
        options=options.values(),
        reporting={
            "log_every": options.log_every,
            "evaluate_every": options.evaluate_every,
            "checkpoint_every": options.checkpoint_every,
            "keep": max(options.keep_checkpoints, options.average_checkpoints or 1),
            "ema": options.ema,
            "average_checkpoints": options.average_checkpoints,
            "keep_at_words": numbers_of_words(options.keep_at_words) or None,
            "shard_size": options.shard_size,
            "tensorboard": options.tensorboard,
        },
    )


RATE_OF_TRAINED = 0.25
"""Of the learning rate, where a model is trained further."""


def _with_rows_of_text(job: Job, corpus: Corpus) -> Job:
    """The job with no more rows in a step than the text has, where a step is no more than its rows one by one."""
    training = job.training
    if not (job.make_objective().updates_in_place and training.optimizer.is_plain_sgd):
        return job
    n_rows = [rows_of(job, corpus, phase).n_rows for phase in training.phases]
    sizes = [max(1, min(each, phase.batch_size)) for each, phase in zip(n_rows, training.phases, strict=True)]
    phases = tuple(phase.replace(batch_size=n) for phase, n in zip(training.phases, sizes, strict=True))
    return job.replace(training=training.replace(phases=phases))


def _with_changes(settings: Config, **changes: Any) -> Any:
    """Settings with those changes that are not None."""
    return settings.replace(**{name: value for name, value in changes.items() if value is not None})

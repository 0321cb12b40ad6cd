"""What a user requests of `pretrain`: texts to learn from, and a recipe with options; and the job that results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from polyseme.bundle import Bundle, load_bundle
from polyseme.config import Config
from polyseme.corpus.corpus import ABOUT, Corpus
from polyseme.corpus.document_reader import by_name
from polyseme.encoders.encoder_kinds import config_to_json
from polyseme.files.source_paths import Sources, listed
from polyseme.objectives.objective_table import objective_from
from polyseme.recipes.recipe import Recipe
from polyseme.training.budget import parse_budget
from polyseme.training.pretraining_job import Job, check_sides
from polyseme.training.training_settings import Phase, TrainingSettings


@dataclass(frozen=True)
class Texts:
    """What to train on: texts, a corpus, or both sides of texts in pairs."""

    sources: Sources | None
    source: Sources | None
    target: Sources | None
    held_source: Sources | None
    held_target: Sources | None

    @property
    def named(self) -> list[str]:
        """The names of the arguments that were given."""
        return [each.name for each in dataclasses.fields(self) if getattr(self, each.name) is not None]

    @property
    def corpus(self) -> Path | None:
        """The corpus folder, if the texts are one."""
        if self.sources is None or len(self.named) > 1:
            return None
        names = listed(self.sources)
        if len(names) == 1 and (Path(names[0]) / ABOUT).is_file():
            return Path(names[0])
        return None

    @property
    def files(self) -> list[str]:
        """Everything that is read, as it was named."""
        by_sides = [by_name(getattr(self, name)) for name in self.named]
        return [path for side in by_sides for paths, _ in side.values() for path in listed(paths)]


def check_texts(texts: Texts, recipe: Recipe) -> None:
    """Refuse plain text for a recipe that learns from pairs, and the other way round, before there is a corpus."""
    layout = objective_from(recipe.objective, recipe.objective_settings).needs.layout
    sides = [name for name in texts.named if name != "sources"]
    if texts.corpus is None and texts.sources is not None and not sides:
        check_sides(recipe.name, layout, in_pairs=False, name=_short(texts.sources))
    if texts.sources is None:
        files = ", ".join(f"{name} {_short(getattr(texts, name))}" for name in sides)
        check_sides(recipe.name, layout, in_pairs=True, name=files)


def _short(sources: Sources) -> str:
    """What the user named, in short."""
    names = listed(sources)
    return names[0] if len(names) == 1 else f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}"


@dataclass(frozen=True, kw_only=True)
class PretrainingRequest:
    """A recipe with the user's options, before there is a corpus."""

    recipe: Recipe
    budget: str
    start: str | None
    """The folder of a model that is trained further."""
    shape: Mapping[str, Any]
    objective: Mapping[str, Any]
    training: TrainingSettings
    reporting: Mapping[str, Any]
    """How often a run logs, evaluates and writes checkpoints, and what it keeps."""

    def job(self, corpus: Corpus, path: str) -> Job:
        """The job, now that there is a corpus."""
        return self.plan(corpus.tokenizer.n_pieces, corpus=path, corpus_fingerprint=corpus.fingerprint)

    def plan(self, n_pieces: int, *, corpus: str = "", corpus_fingerprint: str = "") -> Job:
        """The job as far as a vocabulary of `n_pieces` pieces decides it."""
        if self.start_bundle is not None:
            family, config = self.start_bundle.family.name, self.start_bundle.config
            tied = self.start_bundle.tied
        else:
            family, config = self.recipe.family, self.recipe.config(n_pieces, self._longer(self.shape))
            tied = self.recipe.tied
        settings = {name: value for name, value in self.objective.items() if name != "name"}
        return Job(
            recipe=self.recipe.name,
            family=family,
            encoder=config_to_json(config),
            outputs=objective_from(self.recipe.objective, settings).needs.outputs,
            tied=tied,
            objective=self.objective,
            training=self.training,
            corpus=corpus,
            corpus_fingerprint=corpus_fingerprint,
            budget=str(parse_budget(self.budget)),
            start=self.start,
            **self.reporting,
        )

    @cached_property
    def start_bundle(self) -> Bundle | None:
        """The model that is trained further, loaded once."""
        return None if self.start is None else load_bundle(self.start)

    def _longer(self, shape: Mapping[str, Any]) -> dict[str, Any]:
        """The shape, with positions for the longest rows where the model has a table of positions."""
        if self.recipe.shape.get("max_positions") is None:
            return dict(shape)
        positions = max(self.training.longest, int(self.recipe.shape.get("max_positions", 0)))
        return {"max_positions": positions, **shape}


def training_of(recipe: Recipe, options: Mapping[str, Any], device: str) -> TrainingSettings:
    """The recipe's settings with the user's options instead."""
    on_gpu = torch.device(device).type == "cuda"
    settings = recipe.training
    phases = settings.phases
    if options["length"] is not None:
        phases = (Phase(length=options["length"], batch_size=phases[0].batch_size),)
    if options["batch_size"] is not None:
        phases = tuple(phase.replace(batch_size=options["batch_size"]) for phase in phases)
    optimizer = _with(settings.optimizer, kind=options["optimizer"], lr=options["learning_rate"])
    schedule = _with(settings.schedule, kind=options["schedule"], warmup=options["warmup"])
    changed: TrainingSettings = settings.replace(
        phases=phases,
        optimizer=optimizer,
        schedule=schedule,
        micro_batch_size=options["micro_batch_size"],
        mask_documents=options["mask_documents"],
        reset_positions=options["reset_positions"],
        dtype=("bf16" if on_gpu else "fp32") if options["dtype"] == "auto" else options["dtype"],
        compile=on_gpu and recipe.compiled if options["compile"] is None else options["compile"],
        parallel=options["parallel"],
        seed=options["seed"],
    )
    return changed


def _with(settings: Config, **changes: Any) -> Any:
    """Settings with those changes that are not None."""
    return settings.replace(**{name: value for name, value in changes.items() if value is not None})


def objective_of(recipe: Recipe, changes: Mapping[str, Any] | None) -> dict[str, Any]:
    """The recipe's objective by name, with all of its settings and the user's changes."""
    objective = objective_from(recipe.objective, {**recipe.objective_settings, **(changes or {})})
    return {"name": recipe.objective, **objective.to_json()}

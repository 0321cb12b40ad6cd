"""What a recipe is to learn from, as a user names it: texts, a corpus, or both sides of texts in pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from polyseme.bundle import load_bundle
from polyseme.config import EncoderConfig
from polyseme.corpus.corpus import ABOUT, Corpus
from polyseme.corpus.document_reader import by_name
from polyseme.encoders.encoder_kinds import config_to_json
from polyseme.errors import OptionError
from polyseme.files.source_paths import Sources, listed
from polyseme.objectives.objective_table import objective_from
from polyseme.recipes.recipe import Recipe
from polyseme.training.budget import parse_budget
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.pretraining_job import Job
from polyseme.training.training_settings import Phase, TrainingSettings


@dataclass(frozen=True)
class Texts:
    """What is to be trained on: texts, a corpus, or both sides of texts in pairs."""

    sources: Sources | None
    source: Sources | None
    target: Sources | None
    held_source: Sources | None
    held_target: Sources | None

    @property
    def named(self) -> list[str]:
        """Which of them were given."""
        return [each.name for each in dataclasses.fields(self) if getattr(self, each.name) is not None]

    @property
    def corpus(self) -> Path | None:
        """The corpus that is named, if one is."""
        if self.sources is None or len(self.named) > 1:
            return None
        names = listed(self.sources)
        if len(names) == 1 and (Path(names[0]) / ABOUT).is_file():
            return Path(names[0])
        return None

    @property
    def files(self) -> list[str]:
        """Everything that is read, as it is named."""
        by_sides = [by_name(getattr(self, name)) for name in self.named]
        return [one for side in by_sides for paths, _ in side.values() for one in listed(paths)]


def check_sides(texts: Texts, recipe: Recipe) -> None:
    """Refuse plain text where pairs are wanted, and the other way round, before either becomes a corpus."""
    wanted = objective_from(recipe.objective, recipe.objective_settings).needs.layout == "pairs"
    if texts.corpus is not None:
        return
    sides = [name for name in texts.named if name != "sources"]
    if wanted and texts.sources is not None and not sides:
        raise OptionError(
            f"The recipe {recipe.name!r} learns from texts in pairs, and {_told(texts.sources)} is plain text. "
            "Name both sides, a text a line each: --source FILE --target FILE."
        )
    if not wanted and sides and texts.sources is None:
        told = ", ".join(f"{name} {_told(getattr(texts, name))}" for name in sides)
        raise OptionError(
            f"The recipe {recipe.name!r} learns from plain text, and {told} is of texts in pairs. Name texts, or "
            "choose a recipe that translates (transformer-tiny)."
        )


def _told(sources: Sources) -> str:
    """What the user named, in short."""
    names = listed(sources)
    return names[0] if len(names) == 1 else f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}"


# MERGED: What is asked of a recipe, and the job that comes of it once the vocabulary is known.


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What was asked for, before there is a corpus."""

    recipe: Recipe
    budget: str
    start: str | None
    shape: Mapping[str, Any]
    objective: Mapping[str, Any]
    training: TrainingSettings
    every: Mapping[str, int | None]
    kept: Mapping[str, Any]

    def job(self, corpus: Corpus, path: str) -> Job:
        """Everything resolved, now that there is a corpus."""
        return self.plan(corpus.tokenizer.n_pieces, corpus=path, corpus_fingerprint=corpus.fingerprint)

    def plan(self, n_pieces: int, *, corpus: str = "", corpus_fingerprint: str = "") -> Job:
        """Everything that a vocabulary of so many pieces decides."""
        family, config, tied = self.recipe.family, None, self.recipe.tied
        if self._begun_with is not None:
            family, config, tied = self._begun_with
        if config is None:
            config = self.recipe.config(n_pieces, self._longer(self.shape))
        return Job(
            recipe=self.recipe.name,
            family=family,
            encoder=config_to_json(config),
            outputs=objective_from(self.recipe.objective, self._objective_only()).needs.outputs,
            tied=tied,
            objective=self.objective,
            training=self.training,
            corpus=corpus,
            corpus_fingerprint=corpus_fingerprint,
            budget=str(parse_budget(self.budget)),
            start=self.start,
            **self.every,  # type: ignore[arg-type]
            **self.kept,
        )

    @cached_property
    def _begun_with(self) -> tuple[str, EncoderConfig, bool] | None:
        """Of a model that is trained on: its family, its shape, and whether its output is tied."""
        if self.start is None:
            return None
        bundle = load_bundle(self.start)
        return bundle.family.name, bundle.config, bundle.tied

    def _objective_only(self) -> dict[str, Any]:
        return {name: value for name, value in self.objective.items() if name != "name"}

    def _longer(self, shape: Mapping[str, Any]) -> dict[str, Any]:
        """Positions for the longest rows asked for, where there are any."""
        if self.recipe.shape.get("max_positions") is None:
            return dict(shape)
        positions = max(self.training.longest, int(self.recipe.shape.get("max_positions", 0)))
        return {"max_positions": positions, **shape}


def training_of(recipe: Recipe, given: Mapping[str, Any], device: str) -> TrainingSettings:
    """The recipe's settings with what was asked for instead."""
    on_gpu = torch.device(device).type == "cuda"
    settings = recipe.training
    phases = settings.phases
    if given["length"] is not None:
        phases = (Phase(length=given["length"], batch_size=phases[0].batch_size),)
    if given["batch_size"] is not None:
        phases = tuple(phase.replace(batch_size=given["batch_size"]) for phase in phases)
    optimizer: OptimizerSettings = settings.optimizer
    changes = {"kind": given["optimizer"], "lr": given["learning_rate"]}
    optimizer = optimizer.replace(**{name: value for name, value in changes.items() if value is not None})
    changes = {"kind": given["schedule"], "warmup": given["warmup"]}
    schedule = settings.schedule.replace(**{name: value for name, value in changes.items() if value is not None})
    made: TrainingSettings = settings.replace(
        phases=phases,
        optimizer=optimizer,
        schedule=schedule,
        micro_batch_size=given["micro_batch_size"],
        mask_documents=given["mask_documents"],
        reset_positions=given["reset_positions"],
        dtype=("bf16" if on_gpu else "fp32") if given["dtype"] == "auto" else given["dtype"],
        compile=on_gpu and recipe.compiled if given["compile"] is None else given["compile"],
        parallel=given["parallel"],
        seed=given["seed"],
    )
    return made


def objective_of(recipe: Recipe, changes: Mapping[str, Any] | None) -> dict[str, Any]:
    """The recipe's objective by name, with all of its settings and what was asked for instead."""
    objective = objective_from(recipe.objective, {**recipe.objective_settings, **(changes or {})})
    return {"name": recipe.objective, **objective.to_json()}

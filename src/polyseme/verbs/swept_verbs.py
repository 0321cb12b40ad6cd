"""The commands that a sweep can run: which of their options may vary, what is checked first, and what runs share."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyseme.api import folder_of
from polyseme.convert.families import FAMILIES
from polyseme.convert.hub import find_model
from polyseme.corpus.corpus import Corpus
from polyseme.errors import OptionError
from polyseme.objectives.objective_table import objective_from
from polyseme.options import Options, check_names, check_types, doc_of, fields_of, signature_of
from polyseme.packaged_models import model_or_default
from polyseme.parts.device import find_device
from polyseme.recipes.kneser_ney import CountedRecipe
from polyseme.recipes.pretraining_request import Texts, recipe_of
from polyseme.training.budget import parse_budget
from polyseme.training.energy_ledger import Rates
from polyseme.transfer.finetune_settings import settings_of
from polyseme.types import Progress
from polyseme.verb_options.pretraining_options import PretrainOptions
from polyseme.verb_options.sweep_options import SweepOptions
from polyseme.verb_options.task_options import FinetuneTaskOptions, TaskDataOptions
from polyseme.verbs.corpus import build_corpus
from polyseme.verbs.finetune import NO_MODEL, read_task
from polyseme.verbs.pretrain import check_pretraining

CORPUS = "corpus"
OF_CORPUS = (
    *(each.name for each in dataclasses.fields(Texts)),
    *("tokenizer", "vocab_size", "min_count", "field", "documents", "held_out"),
)
"""Options that decide a corpus, which runs have no use for once it is built."""


@dataclass(frozen=True, kw_only=True)
class SweptVerb(ABC):
    """A command that a sweep can run."""

    name: str
    record: type[Options]
    first: str
    """Its argument."""
    seed: str
    """Its option for seeds, of which each run has one."""
    decided: frozenset[str]
    """Options that the sweep sets itself, besides those that it has, too."""

    @property
    def own(self) -> list[str]:
        """The options that its runs may have."""
        shared = {each.name for each in fields_of(SweepOptions)}
        names = [each.name for each in fields_of(self.record) if not doc_of(each).only_python]
        return [name for name in names if name not in shared and name not in self.decided and name != self.seed]

    def read(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a call, with names and types checked, as JSON has them."""
        for name in options:
            if name in self.decided or name == self.seed:
                instead = " Give --seeds (seeds=…)." if name == self.seed else ""
                raise OptionError(f"The option {name!r} is set by the sweep itself.{instead or ' Leave it out.'}")
        signature = signature_of(self.record)
        check_names(f"sweep {self.name}", options, dict.fromkeys(self.own))
        check_types(f"sweep {self.name}", signature.bind_partial(**options))
        return {name: as_json(name, value) for name, value in options.items()}

    def mappings(self, options: Iterable[Mapping[str, Any]]) -> dict[str, Sequence[str]]:
        """Options that are mappings, with the entries that any of these options allow."""
        return {}

    @abstractmethod
    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse what a run with these options would refuse before it begins."""

    def shared(
        self, runs: Sequence[Mapping[str, Any]], folder: Path, progress: Progress | None
    ) -> list[dict[str, Any]]:
        """The options of runs, with what they share built in a folder."""
        return [dict(options) for options in runs]

    def has_time_budget(self, runs: Sequence[Mapping[str, Any]]) -> bool:
        """Whether runs are given a time, of which they would get less side by side on one device."""
        return False

    def notes(self, names: Iterable[str], places: Mapping[str, Any]) -> list[str]:
        """What must be known to compare runs in which these settings vary."""
        return []


def as_json(name: str, value: Any) -> Any:
    """A value that goes through JSON unchanged: paths as strings, tuples as lists."""
    if hasattr(value, "bundle"):
        path = folder_of(value)
        if path is None:
            raise OptionError("Runs of a sweep are processes of their own, so a model is named by its folder. Save it.")
        value = path
    try:
        return json.loads(json.dumps(value, default=os.fspath))
    except TypeError:
        raise OptionError(
            f"Runs of a sweep are processes of their own, so {name} must be files, numbers or words. Got "
            f"{type(value).__name__} instead; write it to a file, and name that."
        ) from None


class _Pretrain(SweptVerb):
    def mappings(self, options: Iterable[Mapping[str, Any]]) -> dict[str, Sequence[str]]:
        shape: dict[str, None] = {}
        objective: dict[str, None] = {}
        for each in options:
            recipe = recipe_of(self._options(each))
            if isinstance(recipe, CountedRecipe):
                shape |= dict.fromkeys(recipe.settings({}))
                continue
            shape |= dict.fromkeys(field.name for field in dataclasses.fields(FAMILIES[recipe.family].base()))
            objective |= dict.fromkeys(objective_from(recipe.objective, recipe.objective_settings).to_json())
        return {"objective": list(objective), "shape": list(shape)}

    def check(self, options: Mapping[str, Any]) -> None:
        check_pretraining(self._options(options))

    def shared(
        self, runs: Sequence[Mapping[str, Any]], folder: Path, progress: Progress | None
    ) -> list[dict[str, Any]]:
        """Each corpus is built once, with the seed 0, whatever the seeds of the runs."""
        with_corpora = []
        places: dict[str, Corpus] = {}
        for options in runs:
            texts = Texts.of(self._options(options))
            if texts.corpus is not None:
                with_corpora.append(dict(options))
                continue
            building = {**check_pretraining(self._options(options)), "progress": progress}
            named = {name: getattr(texts, name) for name in texts.named}
            decides = json.dumps([named, {**building, "progress": None}], sort_keys=True, default=str)
            place = folder / f"{CORPUS}-{hashlib.sha256(decides.encode()).hexdigest()[:8]}"
            if place.name not in places:
                places[place.name] = build_corpus(**named, output=place, **building, reuse=True)
            others = {name: value for name, value in options.items() if name not in OF_CORPUS}
            with_corpora.append({"sources": [str(place)], **others})
        return with_corpora

    def has_time_budget(self, runs: Sequence[Mapping[str, Any]]) -> bool:
        budgets = [options.get("budget") for options in runs]
        return any(each is None or parse_budget(each).unit == "seconds" for each in budgets)

    def notes(self, names: Iterable[str], places: Mapping[str, Any]) -> list[str]:
        changing = {"recipe", "objective", "tokenizer", "vocab_size", "held_out", "sources", "model"}
        if not any(places[name].option in changing for name in names):
            return []
        return [
            "The held-out loss is that of each run's own objective and pieces: compare it only where those are equal."
        ]

    def _options(self, options: Mapping[str, Any]) -> PretrainOptions:
        return PretrainOptions(**{"output": "run", **options})


class _Finetune(SweptVerb):
    def check(self, options: Mapping[str, Any]) -> None:
        if options.get("task") is None:
            raise OptionError("There is no task to fit a model to. Name one: polyseme sweep finetune TASK ….")
        read = FinetuneTaskOptions(**options)
        settings_of(read)
        find_device(read.device)
        Rates.of(read.cost_rates)
        if read.model != NO_MODEL:
            find_model(str(model_or_default("finetune", read.model)))
        files = {"train": read.train, "dev": read.dev, "test": read.test}
        read_task(read.task, read.data, files, read.values(TaskDataOptions))


SWEPT: Mapping[str, SweptVerb] = {
    "pretrain": _Pretrain(
        name="pretrain",
        record=PretrainOptions,
        first="sources",
        seed="seed",
        decided=frozenset({"resume", "dry_run", "on_report", "progress", "started"}),
    ),
    "finetune": _Finetune(
        name="finetune",
        record=FinetuneTaskOptions,
        first="task",
        seed="seeds",
        decided=frozenset({"train_share", "scratch", "on_report", "progress"}),
    ),
}
"""By name."""

"""What distillation changes of a recipe: its objective has a teacher, and the student may begin with layers of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyseme.bundle import Bundle
from polyseme.errors import OptionError
from polyseme.objectives.distilled import Distilled, DistilledCausal, WithTeacher
from polyseme.recipes.recipe import Recipe
from polyseme.recipes.recipe_table import RECIPES

OBJECTIVES: Mapping[str, type[WithTeacher]] = {"both": Distilled, "causal": DistilledCausal}
"""The objective for a teacher of each direction."""
HOW = {"both": "modern-tiny", "causal": "gpt-tiny"}
"""The recipe that says how to train, where there is none of the student's family."""
NAME = "distillation"


@dataclass(frozen=True, kw_only=True)
class Teaching:
    """A teacher, and what the student begins with."""

    teacher: str
    """Its folder."""
    direction: str
    """What the teacher sees of a text."""
    taken_layers: tuple[int, ...] | None = None
    """The layers of the teacher, counted from 1, that the student begins with; None: it is another model."""

    @classmethod
    def by(cls, folder: str, teacher: Bundle, layers: tuple[int, ...] | None) -> Teaching:
        """By a teacher that predicts pieces from both sides, or from those before."""
        direction = teacher.config.direction
        if direction not in OBJECTIVES or teacher.decoder is not None:
            raise OptionError(
                f"Masked and causal language models of one stack can be distilled on texts, and {folder} is neither. "
                "Take another teacher."
            )
        return cls(teacher=folder, direction=direction, taken_layers=layers)

    @property
    def kind(self) -> type[WithTeacher]:
        """The objective's class."""
        return OBJECTIVES[self.direction]

    def recipe_for(self, family: str) -> str:
        """The recipe that says how a student of a family is trained: the first of its family with such an objective."""
        plain = self.kind.output
        fitting = (name for name, each in RECIPES.items() if each.trains(family) and each.objective == plain)
        return next(fitting, HOW[self.direction])

    def taught(self, recipe: Recipe) -> Recipe:
        """A recipe with the objective of distillation in the place of its own, whose settings it keeps if it can; the
        parts that judge pairs of sentences (`next`) and predict spans from their boundaries are not taught.
        """
        objective = self.kind
        same = recipe.objective == objective.output
        scaling = recipe.scaling
        if scaling is not None and not same:
            scaling = dataclasses.replace(scaling, objective={}, cpu_objective={})
        published = recipe.objective_settings.items()
        settings = {name: value for name, value in published if same and name not in ("next", "boundary")}
        return dataclasses.replace(
            recipe,
            name=NAME,
            objective=objective.name,
            objective_settings=settings,
            scaling=scaling,
        )

    def settings(self, temperature: float, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of the objective."""
        if "teacher" in changes:
            raise OptionError("The teacher is named by -m (model=…), and not among the settings of the objective.")
        return {"temperature": temperature, **changes, "teacher": self.teacher}

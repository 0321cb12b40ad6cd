"""Which recipe is trained where the user names none: the best encoder for the device and the budget."""

from __future__ import annotations

import torch

from polyseme.errors import OptionError
from polyseme.model_folder import load_bundle
from polyseme.recipes.budget_fit import UTILIZATION
from polyseme.recipes.recipe import Recipe
from polyseme.recipes.recipe_table import RECIPES, get_recipe
from polyseme.training.budget import Budget
from polyseme.training.energy_ledger import measured_peak

ENCODERS = ("modern-tiny", "modern-mini", "modern-small", "modern-base")
"""From small to large."""
PIECES_PER_WEIGHT = 10
"""Pieces that a run should read for each weight of the layers, so that a model is not too large for its budget."""
TRANSLATION = "transformer-tiny"


def chosen_recipe(name: str | None, *, budget: Budget, device: str, start: str | None, in_pairs: bool) -> Recipe:
    """The recipe of a name; without one, what suits the texts, the model that is trained further, or the budget."""
    if name is not None:
        recipe = get_recipe(name)
        if recipe.only_further and start is None:
            raise OptionError(
                f"The recipe {name} trains a language model further, and none is named. Name one with -m (model=…), or "
                "take another recipe (see: polyseme recipes)."
            )
        return recipe
    if in_pairs:
        return RECIPES[TRANSLATION]
    if start is not None:
        return _recipe_of_model(start)
    return RECIPES[best_encoder(budget, device)]


def best_encoder(budget: Budget, device: str) -> str:
    """The largest of our encoders that reads enough pieces for its weights within a budget."""
    kind = "cuda" if torch.device(device).type == "cuda" else "cpu"
    if budget.unit in ("steps", "epochs"):  # of which nothing is known but where they are taken
        return "modern-small" if kind == "cuda" else "modern-tiny"
    amount = budget.amount
    if budget.unit == "seconds":  # in floating-point operations
        dtype = torch.bfloat16 if kind == "cuda" else torch.float32
        amount *= UTILIZATION[kind] * measured_peak(device, dtype)
    best = ENCODERS[0]
    for name in ENCODERS:
        recipe = RECIPES[name]
        weights = recipe.config(recipe.vocabulary).matrix_weights
        pieces = amount if budget.unit == "pieces" else amount / (6 * weights)
        if pieces >= PIECES_PER_WEIGHT * weights:
            best = name
    return best


def _recipe_of_model(start: str) -> Recipe:
    """How a model is trained further: by the first recipe of its family."""
    family = load_bundle(start).family.name
    for recipe in RECIPES.values():
        if recipe.trains(family):
            return recipe
    raise OptionError(
        f"There is no recipe for models of the family {family!r}. Name one that trains {start} as you want it: "
        "--recipe NAME (see: polyseme recipes)."
    )

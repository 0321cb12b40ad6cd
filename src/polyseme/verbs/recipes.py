"""`recipes`: what can be pretrained, with size, paper and cost."""

from __future__ import annotations

from dataclasses import dataclass

from polyseme.recipes.recipe import Recipe
from polyseme.recipes.recipe_table import RECIPES


@dataclass(frozen=True)
class RecipeCard:
    """A recipe at a glance."""

    name: str
    system: str
    objective: str
    layers: int
    width: int
    parameters: int
    paper: str
    published_pieces: float | None
    published_flops: float | None
    note: str


def list_recipes() -> list[RecipeCard]:
    """Every recipe: name, system, objective, size, paper, and the FLOPs of the published budget."""
    return [_card(recipe) for recipe in RECIPES.values()]


def _card(recipe: Recipe) -> RecipeCard:
    config = recipe.config(recipe.vocabulary)
    return RecipeCard(
        name=recipe.name,
        system=recipe.system,
        objective=recipe.objective,
        layers=config.depth,
        width=config.widths[-1],
        parameters=recipe.n_parameters,
        paper=recipe.paper,
        published_pieces=recipe.published_pieces,
        published_flops=recipe.published_flops,
        note=recipe.note,
    )

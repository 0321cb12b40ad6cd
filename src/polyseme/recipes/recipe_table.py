"""The one list of recipes."""

from __future__ import annotations

from collections.abc import Mapping

from polyseme.errors import OptionError, nearest
from polyseme.recipes import (
    bart,
    bert,
    electra,
    elmo,
    gpt,
    lstm,
    modern,
    roberta,
    t5,
    transformer,
    transformer_xl,
    xlnet,
)
from polyseme.recipes.recipe import Recipe

RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for paper in (modern, bert, roberta, electra, gpt, lstm, elmo, transformer, transformer_xl, xlnet, bart, t5)
    for recipe in paper.RECIPES
}


def recipe_named(name: str) -> Recipe:
    """A recipe by its name; an unknown one is refused with the nearest."""
    if name not in RECIPES:
        raise OptionError(f"There is no recipe {name!r}. {nearest(name, RECIPES)}")
    return RECIPES[name]

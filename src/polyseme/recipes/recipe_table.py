"""The one list of recipes."""

from __future__ import annotations

from collections.abc import Mapping

from polyseme.errors import OptionError, nearest
from polyseme.recipes import (
    albert,
    awd_lstm,
    bart,
    bert,
    electra,
    elmo,
    flair,
    gpt,
    gpt_2018,
    kneser_ney,
    lstm,
    modern,
    nnlm,
    roberta,
    seq2seq,
    spanbert,
    static,
    t5,
    transformer,
    transformer_xl,
    ulmfit,
    xlm,
    xlnet,
)
from polyseme.recipes.kneser_ney import CountedRecipe
from polyseme.recipes.recipe import Recipe

_PAPERS = (
    *(modern, bert, roberta, spanbert, albert, electra, gpt, gpt_2018),
    *(static, nnlm, lstm, awd_lstm, ulmfit, elmo, flair, seq2seq, transformer, xlm, transformer_xl, xlnet, bart, t5),
)

RECIPES: Mapping[str, Recipe] = {recipe.name: recipe for paper in _PAPERS for recipe in paper.RECIPES}

COUNTED: Mapping[str, CountedRecipe] = {recipe.name: recipe for recipe in kneser_ney.RECIPES}
"""Recipes of models that are counted, not trained."""


def get_recipe(name: str) -> Recipe:
    """A recipe by its name; an unknown one is refused with the nearest."""
    if name not in RECIPES:
        raise OptionError(f"There is no recipe {name!r}. {nearest(name, [*RECIPES, *COUNTED])}")
    return RECIPES[name]

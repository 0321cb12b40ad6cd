"""The published pretraining runs whose compute is counted: which recipe, for how many steps.

`Recipe.published_flops` counts the real rows of each phase, two operations for a multiply-add, and the backward pass as
two forward passes. ELECTRA's authors count differently (`electra_flops`), and so do GPT-3's.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyseme.recipes.recipe import Recipe, size
from polyseme.recipes.recipe_table import RECIPES
from polyseme.training.training_settings import Phase

PF_DAY = 8.64e19
"""Operations of a day at 10^15 per second."""
_GPT3_PIECES = 300e9


def _gpt3(layers: int, width: int, heads: int, pieces_per_step: float) -> Recipe:
    """A size of GPT-3. Attention is counted as dense in all layers, although half of them are banded."""
    rows = round(pieces_per_step / 2048)
    return RECIPES["gpt-small"].but(
        "gpt3",
        shape={**size(layers, width, heads), "max_positions": 2048},
        training={"phases": (Phase(length=2048, batch_size=rows),)},
        published_steps=round(_GPT3_PIECES / (2048 * rows)),
    )


RUNS: Mapping[str, Recipe] = {
    "ELMo": RECIPES["elmo-original"],
    "GPT": RECIPES["gpt-2018"],
    "BERT-base": RECIPES["bert-base"],
    "BERT-large": RECIPES["bert-large"],
    "RoBERTa-base": RECIPES["roberta-base"],
    "RoBERTa-100K": RECIPES["roberta-large"].but("roberta-100k", published_steps=100_000),
    "RoBERTa-large": RECIPES["roberta-large"],
    "XLNet-large": RECIPES["xlnet-large"],
    "SpanBERT-large": RECIPES["spanbert-large"],
    "ALBERT-xxlarge": RECIPES["albert-xxlarge"].but("albert-xxlarge-long", published_steps=1_500_000),
    "ELECTRA-small": RECIPES["electra-small"],
    "ELECTRA-base": RECIPES["electra-base"],
    "ELECTRA-400K": RECIPES["electra-large"],
    "ELECTRA-large": RECIPES["electra-large"].but("electra-1.75m", published_steps=1_750_000),
    "Transformer base": RECIPES["transformer-base"],
    "Transformer big": RECIPES["transformer-big"],
    "GPT-3 small": _gpt3(12, 768, 12, 0.5e6),
    "GPT-3 175B": _gpt3(96, 12288, 96, 3.2e6),
}
"""System of the table `cost` → its run."""
SYSTEMS: Mapping[str, str] = {recipe.name: system for system, recipe in RUNS.items() if recipe.name in RECIPES}
"""Recipe → its system, for recipes that are published runs."""


def counted_flops(system: str) -> float:
    """Operations of a published run, by our count."""
    flops = RUNS[system].published_flops
    assert flops is not None  # every run has steps
    return flops


def electra_flops(system: str) -> float:
    """The same by the rules of ELECTRA's authors, as far as they matter.

    All rows are as long as the longest, the backward pass is one forward pass, and looking a piece up is the product of
    a one-hot vector with the whole table. Their counts of dropout, activations and norms are left out.
    """
    recipe = RUNS[system]
    longest = Phase(length=recipe.training.longest, batch_size=recipe.training.phases[-1].batch_size)
    run = recipe.but(recipe.name, training={"phases": (longest,)})
    assert run.published_flops is not None
    assert run.published_pieces is not None
    config = run.config(run.vocabulary)
    width = getattr(config, "embedding_width", None) or config.widths[-1]
    lookups = 0.0 if getattr(config, "spelled", False) else 2 * 2.0 * run.vocabulary * width * run.published_pieces
    return run.published_flops * 2 / 3 + lookups

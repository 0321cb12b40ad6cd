"""`recipes`: what can be pretrained, how the papers trained it, and how training is fitted to a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyseme.encoders.encoder_kinds import config_to_json
from polyseme.errors import OptionError
from polyseme.objectives.objective_table import objective_from
from polyseme.options import flat
from polyseme.parts.device import find_device
from polyseme.recipes.budget_fit import Fit
from polyseme.recipes.kneser_ney import CountedRecipe
from polyseme.recipes.pretraining_request import PretrainingRequest
from polyseme.recipes.published_counts import reported_flops
from polyseme.recipes.published_runs import SYSTEMS
from polyseme.recipes.recipe import Recipe
from polyseme.recipes.recipe_table import COUNTED, RECIPES, get_recipe
from polyseme.training.budget import parse_budget
from polyseme.training.device_group import devices_for
from polyseme.training.training_settings import TrainingSettings
from polyseme.verb_options.pretraining_options import PretrainOptions, RecipesOptions


@dataclass(frozen=True, kw_only=True)
class FittedTraining:
    """What the rules give for a budget on a device, before the size of a text is known."""

    budget: str
    device: str
    fit: Fit
    training: TrainingSettings
    changed: Mapping[str, Any]
    """The settings of objective and encoder that suit a budget better than the published ones."""
    many_epochs_dropout: float
    """The dropout rate where the text is read more than a few times."""

    @property
    def n_steps(self) -> int:
        """About so many steps."""
        return max(1, round(self.fit.pieces / (self.fit.batch_size * self.fit.length)))


@dataclass(frozen=True, kw_only=True)
class RecipeCard:
    """A recipe at a glance."""

    name: str
    system: str
    objective: str
    layers: int
    width: int
    parameters: int
    tokenizer: str
    vocabulary: int
    paper: str
    published: TrainingSettings | None
    """How the paper trained it (for sizes of our own: the sizes that it published); `--as-published` takes this. None:
    it is counted, not trained."""
    published_settings: Mapping[str, Any]
    """Of the objective and the encoder."""
    published_dropout: float
    published_steps: int | None
    """None: nobody published a run of this size, or how long it was."""
    published_pieces: float | None
    published_flops: float | None
    """By our count."""
    reported_flops: tuple[str, ...]
    """As others count it, with sources; empty: nobody did, or the recipe is no published run."""
    scales: bool
    """Whether training is fitted to budget, device and text; else the published settings serve every budget."""
    fitted: FittedTraining | None
    """What the rules give for a budget, where one recipe was named and its training is fitted."""
    note: str


@flat(RecipesOptions)
def list_recipes(options: RecipesOptions) -> list[RecipeCard]:
    """Every recipe, or one: size, the published training, and whether training is fitted to a budget.

    Of a recipe that is named, also what the rules give for a budget on this device.
    """
    if options.recipe is not None and options.recipe in COUNTED:
        return [_counted_card(COUNTED[options.recipe])]
    if options.recipe is not None:
        recipe = get_recipe(options.recipe)
        return [_card(recipe, _fit_to_budget(recipe, options))]
    if options.changed():
        raise OptionError(
            f"Training is shown as it is fitted for one recipe at a time, and {', '.join(options.changed())} would "
            "change nothing here. Name a recipe, as in: polyseme recipes bert-small --budget 1h."
        )
    return [*(_card(recipe, None) for recipe in RECIPES.values()), *map(_counted_card, COUNTED.values())]


def _counted_card(recipe: CountedRecipe) -> RecipeCard:
    return RecipeCard(
        **{name: getattr(recipe, name) for name in ("name", "system", "tokenizer", "vocabulary", "paper", "note")},
        objective="counts",
        layers=0,
        width=0,
        parameters=0,
        published=None,
        published_settings={name: getattr(recipe, name) for name in ("order", "smoothing", "discount")},
        published_dropout=0.0,
        published_steps=None,
        published_pieces=None,
        published_flops=None,
        reported_flops=(),
        scales=False,
        fitted=None,
    )


def _card(recipe: Recipe, fitted: FittedTraining | None) -> RecipeCard:
    config = recipe.config(recipe.vocabulary)
    return RecipeCard(
        name=recipe.name,
        system=recipe.system,
        objective=recipe.objective,
        layers=config.depth,
        width=config.widths[-1],
        parameters=recipe.n_parameters,
        tokenizer=recipe.tokenizer,
        vocabulary=recipe.vocabulary,
        paper=recipe.paper,
        published=recipe.training,
        published_settings={
            **config_to_json(config),
            **objective_from(recipe.objective, recipe.objective_settings).to_json(),
        },
        published_dropout=getattr(config, "dropout_rate", 0.0),
        published_steps=recipe.published_steps,
        published_pieces=recipe.published_pieces,
        published_flops=recipe.published_flops,
        reported_flops=reported_flops(SYSTEMS.get(recipe.name, "")),
        scales=recipe.scaling is not None,
        fitted=fitted,
        note=recipe.note,
    )


def _fit_to_budget(recipe: Recipe, options: RecipesOptions) -> FittedTraining | None:
    """What `pretrain` would begin with, but for what goes by the text."""
    budget, device = parse_budget(options.budget), find_device(options.device)
    if recipe.scaling is None:
        return None
    request = PretrainingRequest(
        recipe=recipe,
        budget=budget,
        device=device,
        start=None,
        shape={},
        objective={},
        options=PretrainOptions().values(),
        reporting={},
    )
    with devices_for(device) as devices:
        fit = devices.agree(request.fit(recipe.vocabulary, devices))
    return FittedTraining(
        budget=str(budget),
        device=device,
        fit=fit,
        training=request.plan(recipe.vocabulary, fit).training,
        changed={**request.for_budget, **recipe.scaling.shape},
        many_epochs_dropout=recipe.scaling.dropout,
    )

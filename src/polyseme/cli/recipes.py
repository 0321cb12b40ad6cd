"""`polyseme recipes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polyseme
from polyseme.cli.printing import print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import print_table
from polyseme.verb_options.pretraining_options import RecipesOptions

if TYPE_CHECKING:
    from polyseme.training.training_settings import TrainingSettings
    from polyseme.verbs.recipes import RecipeCard

HEADER = ("recipe", "system", "objective", "layers", "parameters", "rows", "rate", "steps", "budget")


@command_of(RecipesOptions, json=True)
def command(as_json: bool, **settings: Any) -> None:
    """List the recipes of `polyseme pretrain --recipe NAME`, or show one, [NAME].

    Rows (with their length in pieces), learning rate and steps are those of the published training, used with
    --as-published. Otherwise training is fitted to the budget, the device and the text, as the last column shows.
    Sizes that were never published have no number of steps. Parameters include the trained outputs, with the recipe's
    vocabulary.

    For one recipe, the published settings are printed beside the settings fitted to a budget on this device.

    \b
    Examples:
      polyseme recipes
      polyseme recipes modern-small
      polyseme recipes electra-small --budget 1h --device cpu
      polyseme recipes --json
    """
    cards = polyseme.list_recipes(**settings)
    if as_json:
        print_json(cards, indent=2)
    elif settings["recipe"] is not None:
        _print_one(cards[0])
    else:
        print_table([_row(card) for card in cards], header=HEADER)
        print_text("\nOf one recipe, with what the rules give for a budget: polyseme recipes NAME --budget 10min")


def _row(card: RecipeCard) -> tuple[str, ...]:
    if card.published is None:
        return (card.name, card.system, card.objective, _order(card), "", "", "", "", "none")
    return (
        card.name,
        card.system,
        card.objective,
        _size(card),
        f"{card.parameters / 1e6:,.1f}M",
        _phases(card.published, shares=False),
        f"{card.published.optimizer.lr:.2g}",
        "" if card.published_steps is None else f"{card.published_steps:,}",
        "fitted" if card.scales else "as is",
    )


def _print_one(card: RecipeCard) -> None:
    """A recipe, its published settings, and beside them the fitted ones."""
    if card.published is None:
        print_text(f"{card.name}: {card.system} ({card.paper}), {_order(card)}")
        print_text(f"at most {card.vocabulary:,} words ({card.tokenizer})\nnote: {card.note}")
        print_table([(name, _value(value)) for name, value in card.published_settings.items()])
        return
    print_text(f"{card.name}: {card.system} ({card.paper}), {card.objective}, {_size(card)}")
    print_text(f"{card.parameters:,} parameters with a vocabulary of {card.vocabulary:,} ({card.tokenizer})")
    if card.note:
        print_text(f"note: {card.note}")
    print_text()
    changed: Mapping[str, Any] = {} if card.fitted is None else card.fitted.changed
    columns = {
        "as published": {
            **_lines(card.published),
            "dropout": f"{card.published_dropout:g}",
            "steps": "" if card.published_steps is None else f"{card.published_steps:,}",
            **{name: _value(card.published_settings.get(name)) for name in changed},
        }
    }
    if card.fitted is not None:
        many = card.fitted.many_epochs_dropout
        columns[f"fitted to {card.fitted.budget} on {card.fitted.device}"] = {
            **_lines(card.fitted.training),
            "dropout": f"0; {many:g} where the text is read often" if many else "0",
            "steps": f"about {card.fitted.n_steps:,}",
            **{name: _value(value) for name, value in changed.items()},
        }
    rows = [(name, *(column[name] for column in columns.values())) for name in next(iter(columns.values()))]
    print_table([row for row in rows if any(row[1:])], header=("", *columns))
    if card.published_flops is not None:
        print_text(f"\nThe published run took {card.published_flops:.1e} FLOPs, by our count.")
        if card.reported_flops:
            print_text("As others count it (why they differ: polyseme published ratios):")
            for text in card.reported_flops:
                print_text(f"  {text}")
    if card.fitted is None:
        print_text("\nIts settings are the same whatever the budget.")


def _value(value: Any) -> str:
    return "none" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def _lines(training: TrainingSettings) -> dict[str, str]:
    """Settings of training, by what they are called in the table."""
    optimizer, schedule = training.optimizer, training.schedule
    matrices = "" if optimizer.matrix_lr is None else f" ({optimizer.matrix_lr:.2g} for matrices)"
    warmup = f"{schedule.warmup:,.0f} steps" if schedule.warmup >= 1 else f"{schedule.warmup:.0%}"
    return {
        "rows x pieces": _phases(training, shares=True),
        "optimizer": optimizer.kind,
        "learning rate": f"{optimizer.lr:.2g}{matrices}",
        "weight decay": f"{optimizer.weight_decay:g}",
        "schedule": f"{schedule.kind}, warmup of {warmup}" if schedule.warmup else schedule.kind,
    }


def _phases(training: TrainingSettings, *, shares: bool) -> str:
    """Rows of a step times their pieces, of each phase."""
    phases = training.phases
    if shares and len(phases) > 1:
        return ", then ".join(f"{each.batch_size:,} x {each.length:,} ({each.share:.0%})" for each in phases)
    rows = dict.fromkeys(f"{each.batch_size:,}" for each in phases)
    return f"{'/'.join(rows)} x {'/'.join(f'{each.length:,}' for each in phases)}"


def _order(card: RecipeCard) -> str:
    return f"order {card.published_settings['order']}"


def _size(card: RecipeCard) -> str:
    return f"{card.layers} x {card.width}"

"""`polyseme recipes`."""

from __future__ import annotations

import click

import polyseme
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import print_json, print_table
from polyseme.options import Options


@command_of(Options, json=True)
def command(as_json: bool) -> None:
    """List the recipes: what `polyseme pretrain --recipe NAME` trains.

    Parameters include the outputs that are trained, with the recipe's vocabulary. FLOPs are those of the published run,
    forward and backward, computed from the config; recipes for small budgets have none.

    \b
    Examples:
      polyseme recipes
      polyseme recipes --json
    """
    cards = polyseme.list_recipes()
    if as_json:
        print_json(cards, indent=2)
        return
    print_table(
        [
            (
                card.name,
                card.system,
                card.objective,
                f"{card.layers} x {card.width}",
                f"{card.parameters / 1e6:,.1f}M",
                "" if card.published_flops is None else f"{card.published_flops:.1e}",
                card.paper,
            )
            for card in cards
        ],
        header=("recipe", "system", "objective", "layers", "parameters", "FLOPs", "paper"),
    )
    click.echo()
    print_table([(f"{card.name}:", card.note) for card in cards if card.note])

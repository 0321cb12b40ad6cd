"""`polyseme models`."""

from __future__ import annotations

import polyseme
from polyseme.cli.printing import print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import print_table
from polyseme.options import Options


@command_of(Options, json=True)
def command(as_json: bool) -> None:
    """List the packaged models: their names for -m, and the verbs that use them by default.

    \b
    Examples:
      polyseme models
      polyseme models --json
    """
    cards = polyseme.list_models()
    if as_json:
        print_json(cards, indent=2)
        return
    print_table(
        [(card.name, "no" if card.path is None else "yes", ", ".join(card.default_of)) for card in cards],
        header=("model", "installed", "default of"),
    )
    print_text()
    print_table([(f"{card.name}:", card.description) for card in cards])
    for card in cards:
        if card.path is None:
            print_text(f"note: {card.name} is not installed. Install it {card.install}.", err=True)

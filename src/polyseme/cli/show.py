"""`polyseme show`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.printing import print_json
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_table
from polyseme.verb_options.model_options import ShowOptions


@command_of(ShowOptions, json=True)
def command(as_json: bool, **settings: Any) -> None:
    """Show what a model is: family, sizes, parameters, tokenizer, outputs, and which verbs work with it.

    With -o also draw which pieces the states of each layer depend on, and the positions that the model adds.
    `polyseme models` lists the packaged ones.

    \b
    Examples:
      polyseme show
      polyseme show -m english-encoder
      polyseme show -m path/to/bert --json
      polyseme show -m path/to/bert -o bert.html
    """
    with Bar("loading the model"):
        card = polyseme.show(**settings)
    if as_json:
        print_json(card, indent=2)
        return
    print_table([("model", card.path), *card.description()])

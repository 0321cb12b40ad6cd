"""`polyseme next`."""

from __future__ import annotations

from typing import Any

import click

import polyseme
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar
from polyseme.verb_options.text_options import NextOptions


@command_of(NextOptions)
def command(first: str, second: str, **settings: Any) -> None:
    """Predict how likely SECOND follows FIRST: a probability, by the model's next-sentence output.

    The model needs such an output; `polyseme show` lists the outputs of a model.

    \b
    Examples:
      polyseme next "The vase fell." "It broke." -m path/to/bert
    """
    with Bar("loading the model"):
        probability = polyseme.next(first, second, **settings)
    click.echo(f"{probability:.4f}")

"""`polyseme next`."""

from __future__ import annotations

import click

import polyseme
from polyseme.cli import options


@click.command()
@click.argument("first")
@click.argument("second")
@options.model
@options.device
def command(first: str, second: str, model: str | None, device: str) -> None:
    """Say how likely SECOND follows FIRST, by the model's next-sentence output.

    \b
    Examples:
      polyseme next "The vase fell." "It broke." -m path/to/bert
    """
    click.echo(f"{polyseme.next(first, second, model=model, device=device):.4f}")

"""Uses of words, one below the other: the words in one column, in brackets, and in bold on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from polyseme.plots.uses import Use

CONTEXT = 40
"""Characters on each side of a word."""


def print_uses(lines: Sequence[tuple[str, Use]]) -> None:
    """Print uses, something short before each; "none" where there are none."""
    from rich.cells import cell_len

    if not lines:
        click.echo("none")
        return
    keywords = [use.keyword(CONTEXT) for _, use in lines]
    first = max(cell_len(before) for before, _ in lines)
    margin = max(cell_len(keyword.before) for keyword in keywords)
    for (told, _), (before, word, after) in zip(lines, keywords, strict=True):
        indented = " " * (margin - cell_len(before)) + before
        click.echo(
            f"{told}{' ' * (first - cell_len(told))}  {indented}{click.style(f'[{word}]', bold=True)}{after}".rstrip()
        )

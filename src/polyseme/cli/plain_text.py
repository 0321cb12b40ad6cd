"""Tables as plain columns: nothing is cut or wrapped, and in a pipe there is nothing but text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from polyseme.plots.word_uses import Use


GAP = "  "


def print_table(rows: Iterable[Sequence[str]], *, header: Sequence[str] | None = None) -> None:
    """Print rows of cells under each other; a header is bold on a terminal."""
    from rich.cells import cell_len  # how many columns a cell takes on a terminal: some letters take two, some none

    lines = [*([header] if header is not None else []), *rows]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)]
        text = GAP.join(padded).rstrip()
        click.echo(click.style(text, bold=True) if number == 0 and header is not None else text)


# MERGED: Uses of words, one below the other: the words in one column, in brackets, and in bold on a terminal.


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

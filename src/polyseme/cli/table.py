"""Tables as plain columns: nothing is cut or wrapped, and in a pipe there is nothing but text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

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

"""The page of a published table: its picture, its figures by split, and their sources."""

from __future__ import annotations

from collections.abc import Sequence

from polyseme.plots.figures_table import FIGURES_STYLE, figures_table
from polyseme.plots.html_page import escaped, page

_STYLE = ".picture svg { max-width: 100%; height: auto }"


def published_page(
    title: str,
    picture: str,
    parts: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]],
    notes: Sequence[str],
    *,
    picture_first: bool,
) -> str:
    """The page, self-contained and without scripts. A part is a split, a header and rows."""
    drawn = f'<div class="picture">{picture}</div>'
    printed = []
    for split, header, rows in parts:
        printed += [f"<h2>{escaped(split)}</h2>"] if split else []
        printed.append(figures_table(header, rows))
    printed += [f'<p class="faint">{escaped(note)}</p>' for note in notes]
    body = [drawn, *printed] if picture_first else [*printed, drawn]
    return page(title, "\n".join([f"<h1>{escaped(title)}</h1>", *body]), style=f"{FIGURES_STYLE}\n{_STYLE}")

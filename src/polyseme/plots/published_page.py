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
) -> str:
    """The page, self-contained and without scripts. A part is a split, a header and rows."""
    body = [f"<h1>{escaped(title)}</h1>", f'<div class="picture">{picture}</div>']
    for split, header, rows in parts:
        body += [f"<h2>{escaped(split)}</h2>"] if split else []
        body.append(figures_table(header, rows))
    body += [f'<p class="faint">{escaped(note)}</p>' for note in notes]
    return page(title, "\n".join(body), style=f"{FIGURES_STYLE}\n{_STYLE}")

"""The nearest uses of a use as a page: one list beside the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polyseme.plots.page import concordance, escaped, page
from polyseme.plots.uses import Use, spelled

CONTEXT = 60
"""Characters on each side of a word."""
_STYLE = """
.lists { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 0 2.5rem }
.use { font-size: 1.2rem }
""".strip()


class UseList(NamedTuple):
    """Uses with their cosines, the nearest first, and what they are."""

    heading: str
    uses: Sequence[tuple[float, Use]]


def similar_page(use: Use, lists: Sequence[UseList], notes: Sequence[str]) -> str:
    """A use, lists of its neighbours, and what is to be said of them."""
    before, word, after = use.keyword(CONTEXT * 4)
    sections = [
        f"<section><h2>{escaped(each.heading)}</h2>"
        + (
            concordance([(spelled(cosine), near.keyword(CONTEXT)) for cosine, near in each.uses])
            if each.uses
            else '<p class="faint">None.</p>'
        )
        + "</section>"
        for each in lists
    ]
    body = "\n".join(
        [
            f"<h1>{escaped(word)}</h1>",
            f'<p class="use" dir="auto">{escaped(before)}<b>{escaped(word)}</b>{escaped(after)}</p>',
            *(f'<p class="faint">{escaped(note)}</p>' for note in notes),
            f'<div class="lists">{"".join(sections)}</div>',
        ]
    )
    return page(f"Uses near {word}", body, style=_STYLE)

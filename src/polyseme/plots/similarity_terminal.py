"""The similarity of the uses of a word in the terminal: the counterpart of `similarity_figure`, from the same data.

The two maps are side by side in a wide terminal and one below the other in a narrow one; sentences take the remaining
width. Without colors the numbers remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from polyseme.plots.colors import ink, ramp, to_hex
from polyseme.plots.word_uses import ALONE, IN_CONTEXT, WordUses, format_cosine, lowest, printable_keyword
from polyseme.printable import visible

_CELL_WIDTH = 6
_GAP = 2
_LEAST_CONTEXT = 16
"""Characters on each side of the word that a sentence needs for both maps to be beside it."""

_FEWEST = 4
"""Characters on each side of the word that are shown however narrow the terminal is."""


def similarity_tables(
    words: Sequence[WordUses], *, context: int = 34, headings: tuple[str, str] = (IN_CONTEXT, ALONE)
) -> Group:
    """One table per word, one below the other, all on one color scale; to be printed with rich."""
    least = lowest(words) if words else 0.0
    return Group(
        *(Padding(SimilarityTable(one, least=least, context=context, headings=headings), (0, 0, 1, 0)) for one in words)
    )


class SimilarityTable:
    """The uses of one word and their similarity, in context and alone; laid out when the width is known."""

    def __init__(
        self,
        one: WordUses,
        *,
        least: float | None = None,
        context: int = 34,
        headings: tuple[str, str] = (IN_CONTEXT, ALONE),
    ) -> None:
        self._one = one
        self._least = lowest([one]) if least is None else least
        self._context = context
        self._headings = headings

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        in_context = self._map(self._headings[0], self._one.in_context)
        alone = self._map(self._headings[1], self._one.alone)
        widest = max(cell_len(visible(use.text[use.start : use.end])) for use in self._one.uses)
        n_uses = len(self._one.uses)
        map_widths = [
            _GAP + _number_width(n_uses) + max(n_uses * _CELL_WIDTH, cell_len(heading)) for heading in self._headings
        ]

        def room(maps_width: int) -> int:
            """Characters that the maps leave on each side of the word."""
            return (options.max_width - maps_width - widest) // 2

        beside = room(sum(map_widths))
        if beside >= min(_LEAST_CONTEXT, self._context):
            yield _side_by_side(self._sentences(beside), in_context, alone)
        else:
            below = Table.grid()
            below.add_row(in_context)
            below.add_row(Padding(alone, (1, 0, 0, 0)))
            yield _side_by_side(self._sentences(max(room(max(map_widths)), _FEWEST)), below)

    def _sentences(self, room: int) -> Table:
        keywords = [printable_keyword(use.keyword(min(room, self._context) - 1)) for use in self._one.uses]
        margin = max(cell_len(keyword.before) for keyword in keywords)
        grid = Table.grid()
        grid.add_column(no_wrap=True)
        grid.add_row(Text.assemble(" " * margin, (visible(self._one.word), "bold underline")))
        grid.add_row("")
        for before, word, after in keywords:
            indented = " " * (margin - cell_len(before)) + before
            grid.add_row(Text.assemble((indented, "dim"), (word, "bold"), (after, "dim")))
        return grid

    def _map(self, heading: str, cosines: NDArray[Any]) -> Table:
        n_uses = len(self._one.uses)
        numbers = Text("").join(Text(f"{number:^{_CELL_WIDTH}}", style="dim") for number in range(1, n_uses + 1))
        margin = _number_width(n_uses)
        grid = Table.grid()
        grid.add_column(no_wrap=True)
        grid.add_row(Text(" " * margin + visible(heading)))
        grid.add_row(Text(" " * margin) + numbers)
        for number, row in enumerate(np.asarray(cosines), start=1):
            cells = (self._cell(float(cosine)) for cosine in row)
            grid.add_row(Text.assemble((f"{number:>{margin - 1}} ", "dim"), *cells))
        return grid

    def _cell(self, cosine: float) -> Text:
        background = ramp((cosine - self._least) / (1 - self._least))
        return Text(f"{format_cosine(cosine):^{_CELL_WIDTH}}", style=f"{ink(background)} on {to_hex(background)}")


def _number_width(n_uses: int) -> int:
    return len(str(n_uses)) + 1


def _side_by_side(*parts: Table) -> Table:
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    grid.add_row(*parts)
    return grid

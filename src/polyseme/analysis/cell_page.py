"""Text colored by the value of one cell, as in Karpathy's essay on recurrent networks: red at −1, blue at +1.

Self-contained HTML: no script, nothing fetched, users' text escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyseme.analysis.recurrent_cells import (
    Cell,
    CorrelatedCell,
    Half,
    Property,
    Readings,
    Value,
    correlated_cells,
    find_layer,
    find_property,
    read_cells,
)
from polyseme.errors import OptionError
from polyseme.files.atomic import whole_file
from polyseme.plots.html_page import escaped, page
from polyseme.plots.shaded_text import shaded_spans, signed_shade, signed_shades
from polyseme.text.documents import to_document

if TYPE_CHECKING:
    from polyseme.api import Model

MOST_PIECES = 20_000
"""Pieces that are shown; of a longer text the number of pieces is reported."""
_STYLE = """
.polyseme-cells { max-width: 60rem; font: 15px/1.5 system-ui, sans-serif }
.polyseme-cells h3 { font-size: 1rem; margin: 1.2rem 0 .3rem }
.polyseme-cells .text { white-space: pre-wrap; overflow-wrap: anywhere; font: 14px/1.65 ui-monospace, monospace;
  padding: .6rem .8rem; border-radius: 6px; background: #fbfaf7; color: #101820 }
.polyseme-cells .text span { padding: .1em 0 }
.polyseme-cells .scale { display: flex; align-items: center; gap: .6em; font-size: 13px;
  font-variant-numeric: tabular-nums }
.polyseme-cells .scale i { display: inline-block; width: 15em; height: .8em; border-radius: 3px;
  border: 1px solid #8886 }
.polyseme-cells table { width: auto; table-layout: auto; border-collapse: collapse; margin: .4rem 0;
  font-size: 14px; font-variant-numeric: tabular-nums }
.polyseme-cells th, .polyseme-cells td { text-align: right; padding: .15rem .9rem .15rem 0 }
.polyseme-cells th { font-weight: 600; border-bottom: 1px solid #8886 }
.polyseme-cells .note { font-size: 13px; opacity: .75 }
""".strip()


@dataclass(frozen=True, eq=False)
class CellView:
    """A text and the values of cells over its pieces; a notebook displays it as HTML."""

    text: str = field(repr=False)
    spans: NDArray[np.int64] = field(repr=False)
    """[n, 2]: the offsets of the pieces in the text."""
    values: Mapping[Cell, NDArray[Any]] = field(repr=False)
    """For each cell, one number per piece."""
    correlated: Sequence[CorrelatedCell]
    """The cells most correlated with the property, if one was named."""
    html: str = field(repr=False)
    """The HTML that a notebook displays, self-contained and without scripts."""

    def _repr_html_(self) -> str:
        return self.html

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write a self-contained HTML page."""
        title = "; ".join(map(str, self.values))
        with whole_file(path, force=force) as file:
            file.write_text(page(title, f"<h1>{escaped(title.capitalize())}</h1>\n{self.html}"), encoding="utf-8")


def cells(
    model: Model,
    text: str | Sequence[str],
    *,
    cell: int | Sequence[int] | None = None,
    layer: int = -1,
    half: Half | None = None,
    value: Value = "cell",
    property: str | Property | None = None,
    top: int = 10,
) -> CellView:
    """A text colored by the values of single cells of a recurrent model after each piece.

        >>> view = polyseme.analysis.cells(model, text, cell=17, layer=1)            # doctest: +SKIP
        >>> view = polyseme.analysis.cells(model, text, property="inside quotes")    # doctest: +SKIP
        >>> view.save("cells.html")                                                  # doctest: +SKIP

    Args:
        model: a recurrent language model, or ELMo.
        text: a text (or its words).
        cell: the number of a cell, or several, counted from 0; None: the one most correlated with the property.
        layer: the layer that it is in: 1 is the first above the token layer, −1 the top.
        half: the reading direction, in a model with both; None: the first that exists.
        value: the `cell` state (its tanh, from −1 to 1), or the cell's `output`.
        property: a property that cells may follow, as for `correlated_cells`; the most correlated cells of all layers
            and directions are listed.
        top: how many of them.
    """
    chosen = _chosen(model, cell, layer, half, value)
    correlated: list[CorrelatedCell] = []
    name = ""
    if property is not None:
        name, _ = find_property(property)
        correlated = correlated_cells(model, text, property, value=value, top=top)
        if not chosen:
            if not correlated:
                raise OptionError(
                    "No cell changes over the text, so that none correlates with the property. Name a cell."
                )
            chosen = [correlated[0].cell]
    elif not chosen:
        raise OptionError("Name a cell by its number, or a property by which one is chosen, as in 'inside quotes'.")
    [readings] = read_cells(model.bundle, text, value=value, layer=chosen[0].layer, half=chosen[0].half)
    values = {each: readings.values[:, each.number] for each in chosen}
    whole = to_document(text, 0).text
    unit = "tanh of the cell state" if value == "cell" else "output of the cell"
    n_pieces = len(readings.spans)
    more = "" if n_pieces <= MOST_PIECES else f" The first {MOST_PIECES:,} of {n_pieces:,} pieces are shown."
    html = "\n".join(
        [
            f'<div class="polyseme-cells"><style>{_style()}</style>',
            f'<p class="scale">−1<i class="both"></i>+1 &nbsp; {unit}</p>',
            *(_colored(whole, readings, each, cell_values) for each, cell_values in values.items()),
            f'<p class="note">Hover over a piece to see its value.{more}</p>',
            *([_table(name, correlated)] if name else []),
            "</div>",
        ]
    )
    return CellView(whole, readings.spans, values, correlated, html)


def _chosen(model: Model, cell: int | Sequence[int] | None, layer: int, half: Half | None, value: Value) -> list[Cell]:
    """The cells that the caller names, if any; they must exist."""
    number, direction, n_cells = find_layer(model.bundle.encoder, layer, half, value)
    chosen = []
    for each in () if cell is None else [cell] if isinstance(cell, (int, np.integer)) else cell:
        if isinstance(each, bool) or not isinstance(each, (int, np.integer)) or not 0 <= each < n_cells:
            raise OptionError(f"Layer {number} has cells 0 to {n_cells - 1:,}. Got {each!r} instead.")
        chosen.append(Cell(number, direction, int(each)))
    return chosen


def _colored(text: str, readings: Readings, cell: Cell, values: NDArray[Any]) -> str:
    """The text with every piece in its color."""
    pieces = zip(readings.spans[:MOST_PIECES].tolist(), values[:MOST_PIECES].tolist(), strict=True)
    spans = ((start, end, signed_shade(value), f"{value:+.2f}") for (start, end), value in pieces)
    colored = shaded_spans(text, spans, whole=len(readings.spans) <= MOST_PIECES)
    return f'<h3>{escaped(str(cell).capitalize())}</h3>\n<div class="text" dir="auto">{colored}</div>'


def _table(name: str, correlated: Sequence[CorrelatedCell]) -> str:
    """The cells most correlated with a property."""
    rows = "".join(
        f"<tr><td>{each.cell.layer}</td><td>{each.cell.half}</td><td>{each.cell.number:,}</td>"
        f"<td>{each.correlation:+.3f}</td></tr>"
        for each in correlated
    )
    header = "".join(f"<th>{title}</th>" for title in ("layer", "reads", "cell", "correlation"))
    return f"<h3>Cells correlated with: {escaped(name)}</h3>\n<table><tr>{header}</tr>{rows}</table>"


@cache
def _style() -> str:
    return f"{_STYLE}\n{signed_shades('polyseme-cells')}"

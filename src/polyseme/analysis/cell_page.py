"""Text colored by the value of one cell, as in Karpathy's essay on recurrent networks: red at −1, blue at +1."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyseme.analysis.findings import Findings, quoted, signed
from polyseme.analysis.recurrent_cells import (
    Cell,
    CorrelatedCell,
    Half,
    Property,
    Value,
    correlated_cells,
    encoded_text,
    find_layer,
    find_property,
    read_stretches,
)
from polyseme.bundle import Bundle
from polyseme.cost import Tally, forward_flops
from polyseme.errors import OptionError
from polyseme.plots.figures_table import figures_table
from polyseme.plots.html_page import escaped
from polyseme.plots.shaded_text import shaded_spans, signed_shade, signed_shades
from polyseme.text.documents import to_document
from polyseme.types import Pieces, Progress

MOST_PIECES = 20_000
"""Pieces that are shown; of a longer text the number of pieces is reported."""
_STYLE = """
.cells h3 { font-size: 1rem; margin: 1.2rem 0 .3rem }
.cells .text { white-space: pre-wrap; overflow-wrap: anywhere; font: 14px/1.65 ui-monospace, monospace;
  max-width: 60rem; padding: .6rem .8rem; border-radius: 6px; background: #fbfaf7; color: #101820 }
.cells .text span { padding: .1em 0 }
.cells .scale { display: flex; align-items: center; gap: .6em; font-size: 13px; font-variant-numeric: tabular-nums }
.cells .scale i { display: inline-block; width: 15em; height: .8em; border-radius: 3px; border: 1px solid #8886 }
""".strip()


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class CellFindings(Findings):
    """A text and the values of cells over its pieces, and the cells that go with a property of the text."""

    verb: ClassVar[str] = "cells"
    page_style: ClassVar[str] = f"{_STYLE}\n{signed_shades('cells')}"

    text: str
    spans: NDArray[np.int64]
    """[n, 2]: the offsets of the pieces in the text."""
    values: Mapping[Cell, NDArray[Any]]
    """For each cell, one number per piece."""
    value: Value = "cell"
    property: str = ""
    """What cells were correlated with, if anything."""
    correlated: Sequence[CorrelatedCell] = field(default=())
    """The cells most correlated with the property."""

    def title(self) -> str:
        return f"Cells that track “{self.property}”" if self.property else "Cells over a text"

    def records(self) -> list[dict[str, Any]]:
        """The cells most correlated with the property; without one, the chosen cells and the range of their values."""
        if self.property:
            return [
                {"layer": layer, "reads": half, "cell": number, "correlation": correlation}
                for (layer, half, number), correlation in self.correlated
            ]
        return [
            {
                "layer": each.layer,
                "reads": each.half,
                "cell": each.number,
                "lowest": float(values.min()),
                "mean": float(values.mean()),
                "highest": float(values.max()),
            }
            for each, values in self.values.items()
        ]

    def rows(self) -> Sequence[Sequence[str]]:
        numbers = ("correlation", "lowest", "mean", "highest")
        return [
            [signed(value, 3) if name in numbers else str(value) for name, value in record.items()]
            for record in self.records()
        ]

    def to_json(self) -> dict[str, Any]:
        cells = [{**each._asdict(), "values": values.tolist()} for each, values in self.values.items()]
        return {
            **super().to_json(),
            "property": self.property or None,
            "value": self.value,
            "text": self.text,
            "spans": self.spans.tolist(),
            "cells": cells,
        }

    def page_body(self) -> str:
        unit = "tanh of the cell state" if self.value == "cell" else "output of the cell"
        table = figures_table(self.header(), self.rows())
        return "\n".join(
            [
                '<div class="cells">',
                *([f"<h3>Correlation with “{escaped(self.property)}”</h3>", table] if self.property else []),
                f'<p class="scale">−1<i class="both"></i>+1 &nbsp; {unit}</p>',
                *(self._colored(each, values) for each, values in self.values.items()),
                '<p class="faint">Hover over a piece to see its value.</p>',
                "</div>",
            ]
        )

    def _colored(self, cell: Cell, values: NDArray[Any]) -> str:
        """The text with every piece in its color."""
        pieces = zip(self.spans[:MOST_PIECES].tolist(), values[:MOST_PIECES].tolist(), strict=True)
        spans = ((start, end, signed_shade(value), signed(value, 2)) for (start, end), value in pieces)
        colored = shaded_spans(self.text, spans, whole=len(self.spans) <= MOST_PIECES)
        return f'<h3>{escaped(str(cell).capitalize())}</h3>\n<div class="text" dir="auto">{colored}</div>'


def cells_over(
    bundle: Bundle,
    text: str | Sequence[str],
    *,
    model: str = "",
    data: str = "",
    cell: int | Sequence[int] | None = None,
    layer: int = -1,
    half: Half | None = None,
    value: Value = "cell",
    property: str | Property | None = None,
    top: int = 10,
    progress: Progress | None = None,
) -> CellFindings:
    """The values of single cells of a recurrent model over a text, after each piece.

    `cell` is one, or several; None: the one that is most correlated with the property.
    """
    started = time.perf_counter()
    chosen = _chosen(bundle, cell, layer, half, value)
    correlated: list[CorrelatedCell] = []
    name = ""
    if property is not None:
        name, _ = find_property(property)
        correlated = correlated_cells(bundle, text, property, value=value, top=top, progress=progress)
        if not chosen:
            if not correlated:
                raise OptionError(
                    "No cell changes its value over the text, so that none correlates with the property. Use a longer "
                    "text, or name a cell."
                )
            chosen = [correlated[0].cell]
    elif not chosen:
        raise OptionError(
            "Name a cell by its number (--cell 17), or a property to select one by (--property 'inside quotes')."
        )
    document, encoded = to_document(text, 0), encoded_text(bundle, text)
    n_pieces = len(encoded)
    values = _values(bundle, encoded, chosen, value, None if property is not None else progress)
    notes = []
    if n_pieces > MOST_PIECES:
        notes.append(f"The first {MOST_PIECES:,} of {n_pieces:,} pieces are shown.")
    n_runs = 2 if property is not None else 1
    flops = n_runs * forward_flops(bundle.config, [n_pieces])
    tally = Tally(documents=1, words=len(document.words), pieces=n_runs * n_pieces, flops=flops)
    return CellFindings(
        model=model,
        data=data or quoted(document.text),
        notes=notes,
        cost=tally.cost(time.perf_counter() - started, bundle.device),
        text=document.text,
        spans=encoded.spans,
        values=values,
        value=value,
        property=name,
        correlated=correlated,
    )


def _values(
    bundle: Bundle, encoded: Pieces, chosen: Sequence[Cell], value: Value, progress: Progress | None
) -> dict[Cell, NDArray[Any]]:
    """For each cell of one layer and half, its value after each piece of the text."""
    layer, half, _ = chosen[0]
    over_text = np.empty((len(encoded), len(chosen)), np.float32)
    for each in read_stretches(bundle, encoded, value=value, layer=layer, half=half, progress=progress):
        over_text[each.pieces] = each.values[:, [cell.number for cell in chosen]]
    return {cell: over_text[:, column] for column, cell in enumerate(chosen)}


def _chosen(
    bundle: Bundle, cell: int | Sequence[int] | None, layer: int, half: Half | None, value: Value
) -> list[Cell]:
    """The cells that the caller names, if any; they must exist."""
    number, direction, n_cells = find_layer(bundle.encoder, layer, half, value)
    chosen = []
    for each in () if cell is None else [cell] if isinstance(cell, (int, np.integer)) else cell:
        if isinstance(each, bool) or not isinstance(each, (int, np.integer)) or not 0 <= each < n_cells:
            raise OptionError(f"Layer {number} has cells 0 to {n_cells - 1:,}. Got {each!r} instead.")
        chosen.append(Cell(number, direction, int(each)))
    return chosen

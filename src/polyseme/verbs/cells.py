"""`cells`: what single cells of a recurrent model follow in a text."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from polyseme.analysis.cell_page import CellFindings, cells_over
from polyseme.analysis.findings import check_findings_output
from polyseme.api import load
from polyseme.errors import OptionError
from polyseme.files.lines import lines_of
from polyseme.files.source import open_source
from polyseme.options import flat
from polyseme.verb_options.cells_options import CellsOptions

OF_CELLS = ("cell", "layer", "half", "value", "property", "top")


@flat(CellsOptions)
def cells(options: CellsOptions) -> CellFindings:
    """Color a text by the values of single cells of a recurrent model, or rank all cells by a property of the text.

    A property (inside quotes, length of the line …) has a value at each piece; `correlated` lists the cells whose
    values follow it most closely.

    >>> polyseme.cells(text, model="models/chars", property="inside quotes").correlated[:3]     # doctest: +SKIP
    >>> polyseme.cells(text, model="models/chars", cell=17, layer=1, output="cells.html")       # doctest: +SKIP
    """
    source = options.source
    check_findings_output(options.output, force=options.force, inputs=() if source is None else [source])
    text: str | Sequence[str] = "" if options.text is None else options.text
    if source is not None:
        with closing(open_source(source)) as opened:
            text = "".join(line.text for line in lines_of(opened, with_ends=True))
    loaded = load(options.model, device=options.device)
    settings = {name: getattr(options, name) for name in OF_CELLS} | {"layer": _number(options.layer)}
    findings = cells_over(
        loaded.bundle,
        text,
        model=loaded.path,
        data="" if source is None else str(source),
        progress=options.progress,
        **settings,
    )
    if options.output is not None:
        findings.save(options.output, force=options.force)
    return findings


def _number(layer: str | int) -> int:
    try:
        return int(layer)
    except ValueError:
        raise OptionError(f"The layer of a cell is a number. Got {layer!r} instead.") from None

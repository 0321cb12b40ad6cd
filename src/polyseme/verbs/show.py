"""`show`: what a model is and what it can do, in words, and in pictures of who sees whom and of its positions."""

from __future__ import annotations

import numpy as np

from polyseme.analysis.position_tables import DrawnPositions, drawn_positions
from polyseme.analysis.receptive_fields import ReceptiveField, receptive_fields
from polyseme.api import Model, load
from polyseme.bundle import Bundle
from polyseme.errors import OptionError
from polyseme.files.result_formats import Formats, check_result_output, write_result
from polyseme.model_summary import ModelSummary
from polyseme.options import flat
from polyseme.packaged_models import model_name, model_or_default
from polyseme.parts.masks import get_mask
from polyseme.plots.model_picture import HeatMap, PieceGrid, model_page, model_picture
from polyseme.result_tables import counted
from polyseme.verb_options.model_options import ShowOptions


@flat(ShowOptions)
def show(options: ShowOptions) -> ModelSummary:
    """Describe a model: family, sizes, parameters, tokenizer, outputs, and which verbs work with it.

    With `output`, also draw what its states depend on, layer by layer, and its positions.

        >>> polyseme.show(model="english-encoder", output="encoder.html")                # doctest: +SKIP
    """
    if options.output is None:
        if "length" in options.changed():
            raise OptionError("The length is that of the pictures. Name an output file, or leave it out.")
        return _load(options).show()
    check_result_output(options.output, FORMATS, force=options.force)
    model = _load(options)
    card = model.show()
    shown = card, _picture(model.bundle, card, options.length)
    write_result(shown, options.output, FORMATS, force=options.force)
    return card


def _load(options: ShowOptions) -> Model:
    return (
        options.model
        if isinstance(options.model, Model)
        else load(model_or_default("show", options.model), device="cpu")
    )


def _picture(bundle: Bundle, card: ModelSummary, length: int) -> str:
    fields, positions = receptive_fields(bundle, length=length), drawn_positions(bundle)
    maps = [each for table in positions for each in _maps(table)]
    return model_picture(_name(card), list(map(_grid, fields)), maps, _notes(bundle, fields, positions))


def _grid(field: ReceptiveField) -> PieceGrid:
    first, last = field.layers[0], field.layers[-1]
    layers = f"layer {first}" if first == last else f"layers {first} to {last}"
    return PieceGrid(layers if field.part == "encoder" else f"{field.part}, {layers}", field.pieces, field.depends)


def _maps(table: DrawnPositions) -> list[HeatMap]:
    """The table itself, and of vectors of positions also how alike they are."""
    stack = "" if table.stack == "encoder" else f" of {table.stack}"
    title = f"Positions{stack}: {table.kind}"
    if table.rows == "distance" and table.columns == "head":
        title += ", what each head's scores gain by the distance of a key"
    if table.columns == "pair of dimensions":
        title += ", cosines of the angles by which queries and keys are turned"
    maps = [HeatMap(title, table.values, table.first, table.rows, table.columns)]
    if table.columns == "dimension":
        norms = np.linalg.norm(table.values, axis=1, keepdims=True)
        cosines = (table.values / np.maximum(norms, 1e-12)) @ (table.values / np.maximum(norms, 1e-12)).T
        maps.append(HeatMap(f"Cosines of the {table.rows}s{stack}", cosines, table.first, table.rows, table.rows))
    return maps


def _notes(bundle: Bundle, fields: list[ReceptiveField], positions: list[DrawnPositions]) -> list[str]:
    n_pieces = len(fields[0].pieces)
    notes = [f"One of {counted(n_pieces, 'piece')} is changed at a time, in float64; a state that moves depends on it."]
    windows = [get_mask(name).window for name in getattr(bundle.config, "layer_masks", ())]
    widest = max((side for window in windows for side in window), default=0)
    if widest >= n_pieces - 1:
        notes.append(f"Some layers see {widest:,} pieces to a side, more than are drawn: --length shows more.")
    if not positions:
        notes.append("No positions are drawn: the model has none.")
    return notes


def _page(card: ModelSummary, picture: str) -> str:
    return model_page(_name(card), card.description(), picture)


def _name(card: ModelSummary) -> str:
    return model_name(card.path) if card.path else card.family


FORMATS: Formats = {".html": lambda shown: _page(*shown), ".svg": lambda shown: shown[1]}
"""Of a model's card and its pictures."""

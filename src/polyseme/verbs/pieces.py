"""`pieces`: a text in a model's pieces, with the states of every layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyseme.analysis.word_attention import no_attentions
from polyseme.api import load
from polyseme.embedding.piece_states import PieceStates
from polyseme.errors import OptionError
from polyseme.files.atomic import check_output, whole_file
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options.word_options import PiecesOptions


@flat(PiecesOptions)
def pieces(options: PiecesOptions) -> PieceStates:
    """A text in a model's pieces, specials included, with the states of every layer."""
    output = options.output
    if output is not None:
        if not str(output).endswith(".npz"):
            raise OptionError(f"The states of pieces are written as .npz. Got {str(output)!r} instead.")
        check_output(output, force=options.force)
    loaded = load(model_or_default("pieces", options.model), device=options.device)
    result = loaded.pieces(options.text, stack=options.stack, attentions=options.attentions)
    if options.attentions and result.attentions is None:
        raise no_attentions(loaded.bundle)
    if output is not None:
        arrays: dict[str, Any] = {"pieces": np.array(result.pieces), "ids": result.ids, "spans": result.spans}
        arrays |= _layers("states", result.states, first=0)
        arrays |= {} if result.attentions is None else _layers("attentions", result.attentions, first=1)
        with whole_file(output, force=options.force) as path, path.open("wb") as file:
            np.savez(file, **arrays)
    return result


def _layers(name: str, layers: Any, *, first: int) -> dict[str, Any]:
    """The arrays of all layers as one, or where they differ in shape, one for each layer by its number."""
    if isinstance(layers, list):
        return {f"{name}_{number}": layer for number, layer in enumerate(layers, start=first)}
    return {name: layers}

"""`pieces`: a text in a model's pieces, with the states of every layer."""

from __future__ import annotations

import numpy as np

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
    if output is not None:
        arrays = {"pieces": np.array(result.pieces), "ids": result.ids, "spans": result.spans}
        if isinstance(result.states, list):
            arrays |= {f"states_{number}": layer for number, layer in enumerate(result.states)}
        else:
            arrays["states"] = result.states
        if result.attentions is not None:
            arrays["attentions"] = result.attentions
        with whole_file(output, force=options.force) as path, path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    return result

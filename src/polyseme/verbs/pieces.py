"""`pieces`: a text in a model's pieces, with the states of every layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyseme.api import AnyPath, PieceStates, load
from polyseme.embedding.decoder_stack import Stack
from polyseme.errors import OptionError
from polyseme.files.atomic import check_output, whole_file


def pieces(
    text: str | Sequence[str],
    *,
    model: AnyPath | None = None,
    stack: Stack = "encoder",
    attentions: bool = False,
    output: AnyPath | None = None,
    device: str = "auto",
    force: bool = False,
) -> PieceStates:
    """A text in a model's pieces, with the states of every layer; `output` also keeps them as an .npz."""
    if output is not None:
        if not str(output).endswith(".npz"):
            raise OptionError(f"The states of pieces are written as .npz. Got {str(output)!r} instead.")
        check_output(output, force=force)
    found = load(model, device=device).pieces(text, stack=stack, attentions=attentions)
    if output is not None:
        arrays = {"pieces": np.array(found.pieces), "ids": found.ids, "spans": found.spans, "states": found.states}
        if found.attentions is not None:
            arrays["attentions"] = found.attentions
        with whole_file(output, force=force) as path, path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    return found

"""Masks filled with single pieces by a masked output, each mask by itself."""

from __future__ import annotations

import torch

from polyseme.bundle import Bundle
from polyseme.embedding.piece_states import one_row
from polyseme.errors import InputError
from polyseme.filling.filled_masks import NO_MASK, FilledMask
from polyseme.outputs.output import Output


def fill_pieces(bundle: Bundle, output: Output, text: str, top: int) -> list[FilledMask]:
    """The likeliest pieces at each mask of a text."""
    tokenizer = bundle.text_tokenizer
    encoded = tokenizer.encode_with_masks(text)
    if not len(encoded.words):
        raise InputError(NO_MASK)
    framed = tokenizer.frame(encoded.ids)
    batch = one_row(bundle, framed)
    places = torch.from_numpy(encoded.words[:, 0] + framed.offset)
    with torch.inference_mode():
        states = bundle.encoder(batch, layers=[-1])[-1][0]
        probabilities = output.log_probs(states[places.to(states.device)]).float().exp()
        best = probabilities.topk(min(top, tokenizer.n_pieces))
    return [
        FilledMask(
            start=int(encoded.spans[place, 0]),
            end=int(encoded.spans[place, 1]),
            pieces=tokenizer.pieces(ids),
            probabilities=values,
        )
        for place, ids, values in zip(encoded.words[:, 0], best.indices.tolist(), best.values.tolist(), strict=True)
    ]

"""One text in a model's pieces, with the states of every layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.embedding.decoder_stack import Stack, check_stack, decoder_of
from polyseme.errors import InputError
from polyseme.result_tables import ShownAsTable, Table, counted
from polyseme.text.documents import to_document
from polyseme.types import Batch, FramedRow


@dataclass(frozen=True, repr=False)
class PieceStates(ShownAsTable):
    """A text in a model's pieces, specials included, and what the encoder makes of each."""

    pieces: list[str]
    ids: NDArray[np.int64]
    spans: NDArray[np.int64]
    """[n, 2] in the text; specials are empty."""
    states: NDArray[Any] | list[NDArray[Any]]
    """[layers, n, D], layer 0 first; where layers differ in width, a list of [n, D]."""
    attentions: NDArray[Any] | list[NDArray[Any]] | None = None
    """[layers, heads, n, n], on request; where layers differ in heads (some were pruned), a list of [heads, n, n]."""

    def table(self) -> Table:
        widths = list(dict.fromkeys(layer.shape[-1] for layer in self.states))
        shape = "×".join(map(str, (len(self.states), len(self.pieces), "/".join(map(str, widths)))))
        title = f"{counted(len(self.pieces), 'piece')}, states {shape} (layers, pieces, width)"
        rows = list(zip(self.pieces, self.ids.tolist(), self.spans.tolist(), strict=True))
        return Table.of(title, ("piece", "id", "span"), rows, lambda row: row)


def piece_states(bundle: Bundle, text: str | Sequence[str], *, stack: Stack, attentions: bool) -> PieceStates:
    """A text (or its words) in the pieces of a model, with the states of every layer of one of its stacks."""
    check_stack(bundle, stack)
    tokenizer = bundle.text_tokenizer
    encoded = tokenizer.encode(to_document(text, 0))
    framed = tokenizer.frame(encoded.ids)
    batch = one_row(bundle, framed)
    with torch.inference_mode():
        if stack == "decoder":
            source = bundle.encoder(batch, layers=[-1])
            framed = decoder_row(framed, len(encoded), bundle.first_written)
            row = dataclasses.replace(batch_of(bundle, framed), segments=None, source=source)
            states = decoder_of(bundle)(row, attentions=attentions)
        else:
            states = bundle.encoder(batch, attentions=attentions)
    spans = np.zeros((len(framed.ids), 2), dtype=np.int64)
    spans[framed.offset : framed.offset + len(encoded)] = encoded.spans
    seen = [to_numpy(each[0]) for each in states.attentions.get("self", ())]
    layers = [to_numpy(states[number][0]) for number in range(states.depth + 1)]
    return PieceStates(
        pieces=tokenizer.pieces(framed.ids.tolist()),
        ids=framed.ids,
        spans=spans,
        states=np.stack(layers) if len({layer.shape for layer in layers}) == 1 else layers,
        attentions=(np.stack(seen) if len({each.shape for each in seen}) == 1 else seen) if seen else None,
    )


def one_row(bundle: Bundle, framed: FramedRow) -> Batch:
    """A text as a batch of its own; refused where it is longer than the model reads at once."""
    window = bundle.config.window
    if window is not None and len(framed.ids) > window:
        raise InputError(
            f"The text makes {len(framed.ids):,} pieces, specials included; the model reads {window:,} at once. "
            "Shorten it; to have vectors for words of longer text, use embed, which cuts windows."
        )
    return batch_of(bundle, framed)


def batch_of(bundle: Bundle, framed: FramedRow) -> Batch:
    """A row as a batch of its own."""
    ids, segments = (torch.from_numpy(each)[None].to(bundle.device) for each in (framed.ids, framed.segments))
    return Batch(ids, segments=segments)


def decoder_row(framed: FramedRow, n_pieces: int, first: int) -> FramedRow:
    """A row as a decoder reads it: behind the piece that it begins with, and without the special that ends it."""
    ids = np.concatenate([[first], framed.ids])
    if framed.offset + n_pieces < len(framed.ids):
        ids = ids[:-1]
    return FramedRow(ids, np.zeros_like(ids), framed.offset + 1)


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """In fp32, or in fp64 where the model computes in it."""
    return (tensor if tensor.dtype == torch.float64 else tensor.float()).cpu().numpy()

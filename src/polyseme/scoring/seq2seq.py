"""Scoring a text given a source: a decoder predicts each piece from those before it and from all of the source.

The text is framed as its targets are in training, and the decoder reads it behind the piece that it begins with. Only
the text's own pieces are scored, not those of the frame.

Shapes: R rows, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.cost import forward_flops
from polyseme.encoders.batch_runner import batches, padded
from polyseme.encoders.encoder import Encoder
from polyseme.errors import InputError
from polyseme.scoring.target_rows import (
    Ints,
    PiecePredictor,
    ScoringMethod,
    ScoringRequest,
    TargetScores,
    Usage,
    usage_of,
)
from polyseme.text.ragged_arrays import concatenate
from polyseme.types import Pieces, Tokenizer


class SourceScoring(ScoringMethod):
    """Scores of a decoder."""

    unscored_first: str | None = None
    description = "left to right, given a source"

    def __init__(self, bundle: Bundle, decoder: Encoder, tokenizer: Tokenizer, predictor: PiecePredictor) -> None:
        self.encoder = bundle.encoder
        self.decoder = decoder
        self.tokenizer = tokenizer
        self.predictor = predictor
        self.first = bundle.first_written

    def check(self, encoded: Sequence[Pieces], sources: Sequence[Pieces], names: Sequence[str]) -> None:
        """Refuse what is too long for a stack: here nothing is cut."""
        rooms = (("source", self.encoder.config.window, sources), ("text", self.decoder.config.window, encoded))
        for side, room, texts in rooms:
            for name, each in zip(names, texts, strict=True):
                length = len(each) + self.tokenizer.n_specials
                if room is not None and length > room:
                    raise InputError(
                        f"The {side} of {name} makes {length:,} pieces, specials included, and the model reads "
                        f"{room:,} of a {side}. Shorten it, or cut it into sentences."
                    )

    def __call__(self, request: ScoringRequest) -> tuple[TargetScores, Usage]:
        encoded, only = request.encoded, request.only
        pieces, ends = concatenate([each.ids for each in encoded])
        scores = TargetScores.empty(len(pieces), request.bounds)
        read = [self.tokenizer.frame(each.ids).ids for each in request.sources or ()]
        framed = [self.tokenizer.frame(each.ids) for each in encoded]
        rows = [
            np.concatenate([[self.first], each.ids[: each.offset + len(text) - 1]])
            for each, text in zip(framed, encoded, strict=True)
        ]
        order = sorted((n for n, text in enumerate(encoded) if len(text)), key=lambda n: (len(read[n]), len(rows[n])))
        total = sum(len(read[n]) + len(rows[n]) for n in order)
        done = 0
        sizes = np.array([len(one) + len(row) for one, row in zip(read, rows, strict=True)], dtype=np.int64)
        for batch in batches(np.array(order, dtype=np.int64), sizes, self.predictor.batch_pieces):
            numbers = batch.tolist()
            places = [
                np.arange(*(framed[n].offset + place for place in ((0, len(encoded[n])) if only is None else only[n])))
                for n in numbers
            ]
            targets = np.concatenate(
                [ends[n] + place - framed[n].offset for n, place in zip(numbers, places, strict=True)]
            )
            states = self._states([read[n] for n in numbers], [rows[n] for n in numbers], places)
            theirs = torch.from_numpy(pieces[targets]).to(self.predictor.device)
            scores.put(targets, *self.predictor.log_probs(states, theirs, best=request.best))
            self.predictor.put_bounds(scores, states, targets, request.bounds)
            done += sum(len(read[n]) + len(rows[n]) for n in numbers)
            request.report(done, total)
        usage = usage_of(self.decoder.config, [len(rows[n]) for n in order], scores.n_predicted, self.predictor.output)
        of_sources = [len(read[n]) for n in order]
        flops = usage.flops + forward_flops(self.encoder.config, of_sources)
        return scores, Usage(usage.pieces + sum(of_sources), flops)

    @torch.inference_mode()
    def _states(self, read: Sequence[Ints], rows: Sequence[Ints], places: Sequence[Ints]) -> Tensor:
        """The decoder's states at the places of each row, one after another."""
        device = self.predictor.device
        source = self.encoder(padded(read, device), layers=[-1])
        batch = padded(rows, device)
        batch.source = source
        states: Tensor = self.decoder(batch, layers=[-1])[-1]
        row_of = np.repeat(np.arange(len(places)), [len(each) for each in places])
        return states[torch.from_numpy(row_of).to(device), torch.from_numpy(np.concatenate(places)).to(device)]

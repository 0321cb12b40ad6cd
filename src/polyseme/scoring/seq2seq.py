"""Scoring a text given a source: a decoder guesses each piece from those before it and from all of the source.

The text is framed as its targets are in training, and the decoder reads it behind the piece that it begins with. Only
the text's own pieces are scored, not those of the frame.

Shapes: R rows, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from polyseme.bundle import Bundle
from polyseme.cost import forward_flops
from polyseme.encoders.encoder import Encoder
from polyseme.errors import InputError
from polyseme.scoring.target_rows import Guessed, Guesser, Ints, OnBatch, Ran, Way, flat, ran
from polyseme.types import Batch, Pieces, Tokenizer


class GivenSource(Way):
    """Scores of a decoder; `sources` are set before each call, one for each document."""

    unscored_first: str | None = None
    how = "left to right, given a source"

    def __init__(self, bundle: Bundle, decoder: Encoder, tokenizer: Tokenizer, guesser: Guesser) -> None:
        self.encoder = bundle.encoder
        self.decoder = decoder
        self.tokenizer = tokenizer
        self.guesser = guesser
        self.first = bundle.first_written

    def key(self, pieces: Pieces) -> bytes:
        """Equal for documents that have equal scores, if their sources are equal, too."""
        return pieces.ids.tobytes()

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

    def __call__(
        self,
        encoded: Sequence[Pieces],
        *,
        sources: Sequence[Pieces] = (),
        only: Sequence[tuple[int, int]] | None = None,
        best: bool = False,
        on_batch: OnBatch | None = None,
    ) -> tuple[Guessed, Ran]:
        """Log-probabilities of all pieces of all documents, one after another, and what that took."""
        pieces, ends = flat([each.ids for each in encoded])
        found = Guessed(np.full(len(pieces), np.nan), np.zeros(len(pieces), np.bool_))
        read = [self.tokenizer.frame(each.ids).ids for each in sources]
        framed = [self.tokenizer.frame(each.ids) for each in encoded]
        rows = [
            np.concatenate([[self.first], each.ids[: each.offset + len(text) - 1]])
            for each, text in zip(framed, encoded, strict=True)
        ]
        order = sorted((n for n, text in enumerate(encoded) if len(text)), key=lambda n: (len(read[n]), len(rows[n])))
        total = sum(len(read[n]) + len(rows[n]) for n in order)
        done = 0
        for some in _batches(order, [len(one) + len(row) for one, row in zip(read, rows, strict=True)], self.guesser):
            places = [
                np.arange(*(framed[n].offset + place for place in ((0, len(encoded[n])) if only is None else only[n])))
                for n in some
            ]
            targets = np.concatenate(
                [ends[n] + place - framed[n].offset for n, place in zip(some, places, strict=True)]
            )
            log_probs, is_best = self._guess(
                [read[n] for n in some], [rows[n] for n in some], places, pieces[targets], best
            )
            found.log_probs[targets] = log_probs
            if is_best is not None:
                found.best[targets] = is_best
            done += sum(len(read[n]) + len(rows[n]) for n in some)
            if on_batch is not None:
                on_batch(done, total)
        took = ran(self.decoder.config, [len(rows[n]) for n in order], found, self.guesser.output)
        of_sources = [len(read[n]) for n in order]
        return found, Ran(took.pieces + sum(of_sources), took.flops + forward_flops(self.encoder.config, of_sources))

    @torch.inference_mode()
    def _guess(
        self, read: Sequence[Ints], rows: Sequence[Ints], places: Sequence[Ints], targets: Ints, best: bool
    ) -> tuple[Ints, Ints | None]:
        device = self.guesser.device
        source = self.encoder(_padded(read, device), layers=[-1])
        batch = _padded(rows, device)
        batch.source = source
        states = self.decoder(batch, layers=[-1])[-1]
        row_of = np.repeat(np.arange(len(places)), [len(each) for each in places])
        chosen = states[torch.from_numpy(row_of).to(device), torch.from_numpy(np.concatenate(places)).to(device)]
        log_probs, is_best = self.guesser.guess(chosen, torch.from_numpy(targets).to(device), best=best)
        return log_probs.double().cpu().numpy(), None if is_best is None else is_best.cpu().numpy()


def _padded(rows: Sequence[Ints], device: torch.device) -> Batch:
    lengths = [len(row) for row in rows]
    pieces = torch.zeros(len(rows), max(lengths), dtype=torch.long)
    for number, row in enumerate(rows):
        pieces[number, : len(row)] = torch.from_numpy(row)
    level = min(lengths) == max(lengths)
    return Batch(pieces.to(device), None if level else torch.tensor(lengths, device=device))


def _batches(order: Sequence[int], lengths: Sequence[int], guesser: Guesser) -> list[list[int]]:
    """Rows in this order, as many as fit the budget of pieces; a longer one is a batch by itself."""
    found: list[list[int]] = []
    size = 0
    for number in order:
        if not found or size + lengths[number] > guesser.batch_pieces:
            found.append([])
            size = 0
        found[-1].append(number)
        size += lengths[number]
    return found

"""Beam search: of all continuations of a few texts, the few likeliest are kept, step by step.

As `transformers` does it, with the same results: of twice as many candidates as the beam is wide, those that end
are kept as finished if they are among the first half, by log-probability / length ^ penalty, the end piece counted; the
others are continued. Repetition control works on log-probabilities here. What differs is that each prompt ends by
itself.

Shapes: P prompts, B texts of a beam, K = 2·B candidates, V pieces in the vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from polyseme.errors import OptionError
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.language_model import LanguageModel
from polyseme.generating.sampling import NEVER, ScoreConstraints
from polyseme.generating.sequences import GeneratedText, Lines, TextOf, first_stop


@dataclass
class _Beam:
    """One prompt's: texts that are continued, and the best that have ended, both best first."""

    number: int
    active: list[GeneratedText]
    ended: list[GeneratedText]
    open: bool = True
    """Whether a text that is still to come may be among the best."""


def search(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    decoding: Decoding,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    text_of: TextOf | None = None,
) -> list[list[GeneratedText]]:
    """The `n` best texts for each prompt, the best first."""
    width = decoding.beam
    n_compared = max(2, 1 + len(model.ends)) * width  # of which enough do not end the text
    if n_compared > model.n_pieces:
        raise OptionError(
            f"A beam of {width} compares {n_compared} pieces, and the model has {model.n_pieces:,}. Narrow the beam."
        )
    shaping = ScoreConstraints(model, decoding)
    lines = Lines(model, prompts, decoding.max_new, stride=decoding.stride, sources=sources)
    growing = _Growing(model, decoding, text_of)
    beams = [_Beam(number, [GeneratedText()], []) for number in range(len(prompts))]
    scores = lines.start()
    for n_new in range(1, decoding.max_new + 1):
        shaped = shaping(lines.log_probs(scores), lines, n_new - 1)
        rows: list[int] = []
        chosen: list[int] = []
        first = 0
        for beam in [beam for beam in beams if beam.open]:
            n_rows = len(beam.active)
            for row, piece in growing(beam, shaped[first : first + n_rows], n_new):
                rows.append(first + row)
                chosen.append(piece)
            first += n_rows
        if not rows:
            break
        if model.device.type == "cuda":  # as many rows every time, so that one graph serves
            n_idle = len(prompts) * width - len(rows)
            rows, chosen = rows + rows[:1] * n_idle, chosen + chosen[:1] * n_idle
        lines.select(rows)
        scores = lines.advance(torch.tensor(chosen, device=model.device))
    return [beam.ended[: decoding.n] for beam in beams]


class _Growing:
    """Lets a beam grow by one piece."""

    def __init__(self, model: LanguageModel, decoding: Decoding, text_of: TextOf | None) -> None:
        self.ends = frozenset(model.ends)
        self.decoding = decoding
        self.text_of = text_of

    def __call__(self, beam: _Beam, shaped: Tensor, n_new: int) -> list[tuple[int, int]]:
        """From log-probabilities [B, V] to the rows of texts that are continued, each with its next piece."""
        width = self.decoding.beam
        before = torch.tensor([text.log_probability for text in beam.active], dtype=shaped.dtype, device=shaped.device)
        likeliest = (before[:, None] + shaped).flatten().topk(max(2, 1 + len(self.ends)) * width)
        active: list[tuple[int, GeneratedText]] = []
        for rank, (score, place) in enumerate(zip(likeliest.values.tolist(), likeliest.indices.tolist(), strict=True)):
            if score == NEVER:
                break
            row, piece = divmod(place, shaped.shape[1])
            text = self._grown(beam, beam.active[row], piece, score, n_new)
            if text.ending is None:
                active.append((row, text))
            elif rank < width:
                beam.ended.append(text)
        beam.ended = sorted(beam.ended, key=lambda text: -text.score)[:width]
        if not (active or beam.ended):  # nothing may follow any more
            beam.ended = [dataclasses.replace(text, ending="forbidden") for text in beam.active]
        active = active[:width]
        beam.active = [text for _, text in active]
        beam.open = bool(active) and self._may_improve(beam, n_new)
        return [(row, text.pieces[-1]) for row, text in active] if beam.open else []

    def _grown(self, beam: _Beam, text: GeneratedText, piece: int, log_probability: float, n_new: int) -> GeneratedText:
        """A text with one more piece, and whether that has ended it."""
        ended = piece in self.ends
        pieces = text.pieces if ended else [*text.pieces, piece]
        score = log_probability / n_new**self.decoding.length_penalty
        grown = GeneratedText(pieces, log_probability, score, "end" if ended else None)
        if not ended and self.decoding.stop and self.text_of is not None:
            so_far = self.text_of(beam.number, pieces)
            place = first_stop(so_far, self.decoding.stop)
            if place is not None:
                grown.ending, grown.text = "stop", so_far[:place]
        if grown.ending is None and n_new == self.decoding.max_new:
            grown.ending = "length"
        return grown

    def _may_improve(self, beam: _Beam, n_new: int) -> bool:
        """Whether there is room among the best, or a better one may come; how that is guessed is a setting."""
        decoding = self.decoding
        if len(beam.ended) < decoding.beam:
            return True
        if decoding.early_stopping is True:
            return False
        at_best = decoding.max_new if decoding.early_stopping == "never" and decoding.length_penalty > 0 else n_new
        return bool(beam.active[0].log_probability / at_best**decoding.length_penalty > beam.ended[-1].score)

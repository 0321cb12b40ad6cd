"""Writing on from prompts, in pieces: the likeliest piece each time, or one that is drawn. Beams are in `beam_search`.

A text's draws come from a stream of its own (`sampling.streams`), and a row's distribution depends on no other row, so
that prompts come out the same together and one at a time.

Shapes: R rows, V pieces in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polyseme.errors import ModelError
from polyseme.generating.beam_search import search
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.language_model import LanguageModel
from polyseme.generating.sampling import NEVER, ScoreConstraints, choose, streams
from polyseme.generating.sequences import GeneratedText, Lines, OnPiece, TextOf, first_stop

STEPS_PER_COPY = 8
"""On a GPU, steps after which the written pieces are copied back. They are read while the next ones are written."""
UNREAD_COPIES = {"cuda": 1}
"""Copies that may be unread when the next steps start, by device."""


def write_on(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    decoding: Decoding,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    numbers: Sequence[int] | None = None,
    text_of: TextOf | None = None,
    on_piece: OnPiece | None = None,
) -> list[list[GeneratedText]]:
    """`n` texts for each prompt, all written side by side.

    `sources` are what each prompt's texts are written from, where the model reads a source. `numbers` are those of the
    prompts among all there are, which their random numbers go by; None: 0, 1, …. `text_of` is needed where there are
    stop strings.
    """
    numbers = range(len(prompts)) if numbers is None else numbers
    if not prompts:
        return []
    if (sources is None) != (model.source is None):
        raise ModelError("A model that reads a source needs one for every prompt, and no other does.")
    if decoding.beam > 1:
        return search(model, prompts, decoding, sources=sources, text_of=text_of)
    return _Writing(model, prompts, decoding, sources, numbers, text_of, on_piece).run()


class _Copy:
    """Pieces and log-probabilities [steps, R], copied from a GPU while it runs the next steps."""

    def __init__(self, pieces: Tensor, likelihoods: Tensor) -> None:
        self.tensors = pieces, likelihoods
        self.arrived: torch.cuda.Event | None = None
        if pieces.is_cuda:
            self.tensors = _pin(pieces), _pin(likelihoods)
            self.arrived = torch.cuda.current_stream(pieces.device).record_event()

    def lists(self) -> tuple[list[list[int]], list[list[float]]]:
        """Both; waits until the copy is complete."""
        if self.arrived is not None:
            self.arrived.synchronize()
        pieces, likelihoods = self.tensors
        return pieces.tolist(), likelihoods.tolist()


def _pin(tensor: Tensor) -> Tensor:
    """A copy in pinned memory, which is complete once the GPU has reached it."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


class _Writing:
    """Rows at work: those whose text has ended are dropped once they are half of all."""

    def __init__(
        self,
        model: LanguageModel,
        prompts: Sequence[Sequence[int]],
        decoding: Decoding,
        sources: Sequence[Sequence[int]] | None,
        numbers: Sequence[int],
        text_of: TextOf | None,
        on_piece: OnPiece | None,
    ) -> None:
        self.model = model
        self.decoding = decoding
        self.text_of = text_of
        self.on_piece = on_piece
        self.shaping = ScoreConstraints(model, decoding)
        self.lines = Lines(model, prompts, decoding.max_new, stride=decoding.stride, sources=sources)
        self.written = [GeneratedText() for _ in range(len(prompts) * decoding.n)]
        self.at_work = list(range(len(self.written)))
        """Which text each row writes."""
        self.streams: Tensor | None = None
        if decoding.heat:
            self.streams = streams(decoding.seed, numbers, decoding.n, decoding.max_new).to(model.device)
        self.new: list[tuple[Tensor, Tensor]] = []
        """Pieces that are not yet copied, and their log-probabilities, [steps, R] each."""
        self.copies: list[_Copy] = []
        self.n_unread = 0
        """How many of the latest copies are read only after the next steps have started."""
        self.has_greedy_steps = False

    def run(self) -> list[list[GeneratedText]]:
        decoding, n = self.decoding, self.decoding.n
        scores = self.lines.start()
        if n > 1:
            rows = [prompt for prompt in range(len(scores)) for _ in range(n)]
            scores = scores[rows]
            self.lines.select(rows)
        on_gpu = self.model.device.type == "cuda"
        needs_each = decoding.stop or self.on_piece is not None or self.shaping.may_forbid_all
        reads_each = needs_each or not (on_gpu or self.lines.has_greedy_steps())
        self.has_greedy_steps = not reads_each and self.lines.has_greedy_steps() and not self.shaping.reads_text
        self.n_unread = 0 if reads_each else UNREAD_COPIES.get(self.model.device.type, 0)
        chosen: Tensor | None = None
        n_new = n_not_copied = 0
        while n_new < decoding.max_new:
            n_greedy = self._n_greedy_steps(n_new)
            if chosen is not None and n_greedy:
                forbidden = self.shaping.forbidden_mask(n_new, scores.shape[1])
                several, likelihoods = self.lines.greedy_steps(chosen, forbidden, n_greedy)
                self.new.append((several, likelihoods))
                chosen = several[-1]
                n_steps = n_greedy
            else:
                scores = scores if chosen is None else self.lines.advance(chosen)
                shaped = self.shaping(scores, self.lines, n_new)
                drawn = None if self.streams is None else self.streams[:, n_new]
                chosen = choose(shaped, decoding, drawn)
                self.new.append((chosen[None], self._likelihood(scores, shaped, chosen)[None]))
                n_steps = 1
            n_new += n_steps
            n_not_copied += n_steps
            last = n_new == decoding.max_new
            if last or reads_each or n_not_copied >= STEPS_PER_COPY:
                n_not_copied = 0
                self._read_new(last)
                rows = [row for row, text in enumerate(self.at_work) if self.written[text].ending is None]
                if not rows:
                    break
                if len(rows) <= len(self.at_work) // 2 and not (on_gpu or self.n_unread):
                    chosen = self._continue_with(rows, chosen)
        return [self.written[first : first + n] for first in range(0, len(self.written), n)]

    def _n_greedy_steps(self, n_new: int) -> int:
        """How many greedy steps can follow so many new pieces, with the same pieces forbidden in all of them."""
        if not self.has_greedy_steps or self.streams is not None:
            return 0
        bound = self.decoding.max_new - (self.shaping.last is not None)
        if n_new < self.decoding.min_new:
            bound = min(bound, self.decoding.min_new)
        return max(min(bound - n_new, STEPS_PER_COPY), 0)

    def _continue_with(self, rows: Sequence[int], chosen: Tensor) -> Tensor:
        self.lines.select(rows)
        self.at_work = [self.at_work[row] for row in rows]
        self.streams = None if self.streams is None else self.streams[rows]
        return chosen[rows]

    def _likelihood(self, scores: Tensor, shaped: Tensor, chosen: Tensor) -> Tensor:
        """By the model's own distribution; minus infinity where every piece was forbidden."""
        own = self.lines.log_probs(scores).gather(1, chosen[:, None])[:, 0]
        if not self.shaping.may_forbid_all:
            return own
        return own.masked_fill(shaped.amax(dim=-1) == NEVER, NEVER)

    def _read_new(self, last: bool) -> None:
        """Copy the new pieces, and add those of earlier copies to the texts; at the `last` call those of all copies."""
        self.copies.append(_Copy(*(torch.cat(each) for each in zip(*self.new, strict=True))))
        self.new = []
        while len(self.copies) > (0 if last else self.n_unread):
            pieces, likelihoods = self.copies.pop(0).lists()
            self._take_all(pieces, likelihoods, last and not self.copies)

    def _take_all(self, pieces: list[list[int]], likelihoods: list[list[float]], last: bool) -> None:
        for step, (chosen, likelihood) in enumerate(zip(pieces, likelihoods, strict=True)):
            at_bound = last and step == len(pieces) - 1
            for text, piece, log_prob in zip(self.at_work, chosen, likelihood, strict=True):
                if self.written[text].ending is None:
                    self._take(text, piece, log_prob, at_bound)

    def _take(self, text: int, piece: int, log_prob: float, at_bound: bool) -> None:
        written = self.written[text]
        if log_prob == NEVER:
            written.ending = "forbidden"
        else:
            written.log_probability += log_prob
            written.score = written.log_probability
            if piece in self.model.ends:
                written.ending = "end"
            else:
                written.pieces.append(piece)
                self._stop(text, written)
                if written.ending is None and at_bound:
                    written.ending = "length"
        if self.on_piece is not None:
            self.on_piece(*divmod(text, self.decoding.n), written)

    def _stop(self, text: int, written: GeneratedText) -> None:
        if not self.decoding.stop or self.text_of is None:
            return
        so_far = self.text_of(text // self.decoding.n, written.pieces)
        place = first_stop(so_far, self.decoding.stop)
        if place is not None:
            written.ending, written.text = "stop", so_far[:place]

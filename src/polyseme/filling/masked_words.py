"""Whole words at masks, by a masked model: words of one to n pieces, compared by all their pieces together.

For words of k pieces the mask is written k times. A word's log-probability is the sum over its pieces:

- `left-to-right` (Kauf and Ivanova 2023): each piece is predicted with those before it in place and those after it
  hidden. A beam goes through the masks in this order; what cannot come among the best any more, since each further
  piece only makes it less likely, is dropped;
- `word`: every piece is predicted with all of them hidden, in one pass over the row. That is quicker, and puts pieces
  together that do not belong together.

The sums of words with different numbers of pieces are compared as they are. With k masks the model spreads its
probability over everything that k pieces may be, several words included; a word of k pieces gets the share that is
left for one word. So the comparison holds if any number of missing pieces is as probable as any other. Means over
pieces, the usual alternative, favor long words, whose last pieces are nearly certain.

Several masks are filled from left to right, each given the words before it; those after it are one mask each meanwhile.

Shapes: R rows, V pieces in the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.cost import Tally
from polyseme.errors import InputError, ModelError, OptionError, nearest
from polyseme.filling.filled_masks import Candidate, FillRequest, MaskedText, best
from polyseme.filling.row_log_probs import Row, RowLogProbs
from polyseme.text.piece_texts import PieceTexts, over_rows
from polyseme.text.tokenizer import MASK_TEXT
from polyseme.types import Tokenizer

Ints = NDArray[np.int64]
WordHide = Literal["left-to-right", "word"]
"""What is hidden with a piece of a word that is filled in."""
BEAM = 3
"""Beginnings of words of each number of pieces that are followed up."""
SPARE = 2
"""How many times as many words are looked at as are wanted, since the tokenizer would write some in other pieces."""

_HOW = {
    "left-to-right": "from both sides, each piece of a word given those before it",
    "word": "from both sides, the pieces of a word hidden at once",
}


def check_word_hide(hide: str | None) -> None:
    """Refuse what is no way to hide the pieces of a word that is filled in."""
    if hide is not None and hide not in get_args(WordHide):
        raise OptionError(
            f"There is no way {hide!r} to hide the pieces of a word that is filled in. "
            f"{nearest(str(hide), get_args(WordHide))}"
        )


@dataclass(frozen=True)
class _Beginning:
    """The first pieces of a word of `length` pieces, behind a candidate for the masks before."""

    before: Candidate
    length: int
    pieces: tuple[int, ...]
    log_prob: float


class MaskedFiller:
    """A masked model as it fills masks with whole words."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        log_probs: RowLogProbs,
        texts: PieceTexts,
        *,
        window: int | None,
        hide: WordHide = "left-to-right",
        beam: int = BEAM,
    ) -> None:
        if "mask" not in tokenizer.specials:
            raise ModelError("This model has no mask piece, so there is nothing that it could fill in.")
        self.tokenizer = tokenizer
        self.log_probs = log_probs
        self.texts = texts
        self.window = window
        self.hide = hide
        self.beam = beam
        self.description = _HOW[hide]
        self.own_mask: str | None = texts.tokenizer.framing.specials["mask"]

    @property
    def tally(self) -> Tally:
        return self.log_probs.tally

    def spelled(self, pieces: Sequence[int]) -> list[str]:
        return self.tokenizer.pieces(pieces)

    def as_written(self, before: str, word: str) -> str:
        return self.texts.text_of(self.texts.encode_after(before, word))

    def __call__(self, request: FillRequest) -> list[Candidate]:
        rows = _Rows(request.text, self.tokenizer, self.texts, self.window)
        candidates = [Candidate(0.0)]
        width = max(request.n_candidates, self.beam)
        for mask in range(len(request.text.masks)):
            search = self._targets if request.targets else self._words
            candidates = best(search(request, rows, candidates, mask, width), width)
        return candidates[: request.n_candidates]

    # --- the model's own words ----------------------------------------------------------------------------------------

    def _words(
        self, request: FillRequest, rows: _Rows, candidates: Sequence[Candidate], mask: int, width: int
    ) -> list[Candidate]:
        """Each candidate with its likeliest words at the next mask."""
        before = request.text.before(mask, candidates[0].words)
        words: list[Candidate] = []
        beginnings = [
            _Beginning(each, length, (), each.log_prob)
            for each in candidates
            for length in range(1, request.max_pieces + 1)
        ]
        hidden: dict[tuple[Candidate, int], Tensor] = {}
        bound = -math.inf  # candidates at or below it are not among the best
        for place in range(request.max_pieces):
            log_probs = self._predict_next(rows, mask, beginnings, hidden)
            allowed = self._allowed_pieces(before, len(log_probs[0]))
            longer: list[_Beginning] = []
            for each, row in zip(beginnings, log_probs, strict=True):
                last = each.length == place + 1
                of_it = row.masked_fill(~allowed[place > 0, last], -math.inf)
                likeliest = of_it.topk(min(SPARE * width if last else self.beam, len(of_it)))
                grown = [
                    _Beginning(each.before, each.length, (*each.pieces, piece), each.log_prob + log_prob)
                    for log_prob, piece in zip(likeliest.values.tolist(), likeliest.indices.tolist(), strict=True)
                    if each.log_prob + log_prob > bound
                ]
                if last:
                    words += [word for one in grown if (word := self._word(one, before)) is not None]
                else:
                    longer += grown
            words = best(words, width)
            bound = words[-1].log_prob if len(words) == width else -math.inf
            beginnings = self._extend(longer, bound)
            if not beginnings:
                break
        return words

    def _extend(self, beginnings: Sequence[_Beginning], bound: float) -> list[_Beginning]:
        """The likeliest beginnings of words of each length, without those that can no longer be among the best."""
        followed: list[_Beginning] = []
        counts: dict[int, int] = {}
        for each in sorted(beginnings, key=lambda beginning: -beginning.log_prob):
            if each.log_prob > bound and counts.get(each.length, 0) < self.beam:
                counts[each.length] = counts.get(each.length, 0) + 1
                followed.append(each)
        return followed

    def _word(self, beginning: _Beginning, before: str) -> Candidate | None:
        """A finished word; None if the tokenizer would write it in other pieces, or if it is no word."""
        word = self.texts.text_of(beginning.pieces)
        if not any(character.isalnum() for character in word):
            return None
        if not self.texts.is_as_written(before, beginning.pieces):
            return None
        return beginning.before.with_word(word, beginning.pieces, beginning.log_prob)

    def _allowed_pieces(self, before: str, n_pieces: int) -> dict[tuple[bool, bool], Tensor]:
        """[V] each: the pieces that may begin or (True) continue a word, and be its last (True) or not."""
        return {
            (later, last): torch.from_numpy(over_rows(self.texts.allowed(before, later=later, last=last), n_pieces))
            for later in (False, True)
            for last in (False, True)
        }

    def _predict_next(
        self,
        rows: _Rows,
        mask: int,
        beginnings: Sequence[_Beginning],
        hidden: dict[tuple[Candidate, int], Tensor],
    ) -> list[Tensor]:
        """[V] for each beginning: the log-probabilities of its next piece.

        Where a word's pieces are hidden at once, those of all places are computed with the first, and are in `hidden`.
        """
        if self.hide == "left-to-right":
            requests = [
                (*rows(each.before, mask, [*each.pieces, *rows.masks(each.length - len(each.pieces))]), 1)
                for each in beginnings
            ]
            shifted = [
                (ids, place + len(each.pieces), 1) for (ids, place, _), each in zip(requests, beginnings, strict=True)
            ]
            return [every[0] for every in self.log_probs(shifted)]
        new = list(dict.fromkeys((each.before, each.length) for each in beginnings if not each.pieces))
        if new:
            framed = [(*rows(before, mask, rows.masks(length)), length) for before, length in new]
            hidden.update(zip(new, self.log_probs(framed), strict=True))
        return [hidden[each.before, each.length][len(each.pieces)] for each in beginnings]

    # --- given answers ------------------------------------------------------------------------------------------------

    def _targets(
        self, request: FillRequest, rows: _Rows, candidates: Sequence[Candidate], mask: int, width: int
    ) -> list[Candidate]:
        """Each candidate with each given answer at the next mask."""
        before = request.text.before(mask, candidates[0].words)
        spelled = {target: target_pieces(self.texts, before, target) for target in request.targets}
        requests: dict[tuple[Candidate, tuple[int, ...]], int] = {}
        framed: list[Row] = []

        def log_probs_of(each: Candidate, seen: Sequence[int], length: int, n_places: int) -> int:
            row = [*seen, *rows.masks(length - len(seen))]
            if (each, tuple(row)) not in requests:
                ids, place = rows(each, mask, row)
                requests[each, tuple(row)] = len(framed)
                framed.append((ids, place + len(seen), n_places))
            return requests[each, tuple(row)]

        parts: list[tuple[Candidate, str, list[tuple[int, int, int]]]] = []
        for each in candidates:
            for target, pieces in spelled.items():
                if self.hide == "word":
                    number = log_probs_of(each, (), len(pieces), len(pieces))
                    parts.append((each, target, [(number, place, piece) for place, piece in enumerate(pieces)]))
                else:
                    numbers = [log_probs_of(each, pieces[:place], len(pieces), 1) for place in range(len(pieces))]
                    parts.append((each, target, [(n, 0, piece) for n, piece in zip(numbers, pieces, strict=True)]))
        log_probs = self.log_probs(framed)
        return [
            each.with_word(
                target,
                spelled[target],
                each.log_prob + math.fsum(float(log_probs[number][place, piece]) for number, place, piece in of_it),
            )
            for each, target, of_it in parts
        ]


class _Rows:
    """Rows of a text with its masks filled, or written several times."""

    def __init__(self, text: MaskedText, tokenizer: Tokenizer, texts: PieceTexts, window: int | None) -> None:
        self.tokenizer = tokenizer
        self.window = window
        *firsts, last = text.parts
        if texts.blanks_matter:  # the blank before a mask belongs to the word that is to be filled in
            firsts = [part.rstrip() for part in firsts]
        encoded = tokenizer.encode_with_masks(MASK_TEXT.join([*firsts, last]))
        places = encoded.words[:, 0].tolist()
        self.stretches = [
            encoded.ids[start:end]
            for start, end in zip([0, *(place + 1 for place in places)], [*places, len(encoded)], strict=True)
        ]
        self._mask = tokenizer.specials["mask"]

    def masks(self, n: int) -> list[int]:
        return [self._mask] * n

    def __call__(self, before: Candidate, mask: int, pieces: Sequence[int]) -> tuple[Ints, int]:
        """A row with the words of a candidate at the first masks and these pieces at the next, and where they begin."""
        fillings: list[Sequence[int]] = [*before.pieces, pieces]
        fillings += [self.masks(1)] * (len(self.stretches) - 1 - len(fillings))
        parts: list[Ints] = [self.stretches[0]]
        for filling, stretch in zip(fillings, self.stretches[1:], strict=True):
            parts += [np.array(filling, dtype=np.int64), stretch]
        framed = self.tokenizer.frame(np.concatenate(parts))
        if self.window is not None and len(framed.ids) > self.window:
            raise InputError(
                f"The text makes {len(framed.ids):,} pieces with {len(pieces)} at a mask, specials included; the model "
                f"reads {self.window:,} at once. Shorten it."
            )
        return framed.ids, framed.offset + sum(map(len, parts[: 2 * mask + 1]))


def target_pieces(texts: PieceTexts, before: str, target: str) -> list[int]:
    """The pieces of a given answer behind this text; refused where the tokenizer has none for it."""
    pieces = texts.encode_after(before, target)
    unknown = texts.tokenizer.specials.get("unknown")
    if not pieces or unknown in pieces:
        raise InputError(
            f"The model's tokenizer cannot write the target {target!r} at the mask: "
            f"{'it would be read as the unknown piece' if pieces else 'it has no pieces of its own there'}. Leave it "
            "out, or take a model whose vocabulary has its letters."
        )
    return pieces

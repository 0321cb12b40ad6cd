"""A text with masks, and what may be at them: the records that fillers take and return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from polyseme.cost import Tally
from polyseme.errors import InputError
from polyseme.result_tables import ShownAsTable, Table
from polyseme.text.piece_texts import find_masks
from polyseme.text.tokenizer import MASK_TEXT

NO_MASK = "There is no mask to fill in the text. Write [MASK] where something is to be predicted."


@dataclass(frozen=True, repr=False)
class FilledMask(ShownAsTable):
    """What may be at one mask: pieces with their probabilities, the likeliest first.

    Of whole words and spans at several masks, those of the same number belong together: `words[0]` of every mask make
    the likeliest text, and have one probability.
    """

    start: int
    end: int
    """Where the mask is in the text."""
    pieces: list[str]
    """Single pieces; of words and spans, the pieces of each with blanks between them."""
    probabilities: list[float]
    words: list[str] = field(default_factory=list)
    """Words or spans as they read in the text; empty where single pieces are predicted."""

    def table(self) -> Table:
        rows = list(zip(self.words or self.pieces, self.probabilities, strict=True))
        return Table.of(f"mask at {self.start}", ("candidate", "probability"), rows, lambda row: row)


@dataclass(frozen=True)
class MaskedText:
    """A text in parts: what is before the first mask, between masks, and behind the last one."""

    text: str
    masks: tuple[tuple[int, int], ...]
    """Where the masks are in the text."""

    @classmethod
    def read(cls, text: str, own_mask: str | None = None) -> MaskedText:
        """A text in which masks are written `[MASK]`, or as the model writes its own."""
        masks = find_masks(text, (MASK_TEXT,) if own_mask is None else (MASK_TEXT, own_mask))
        if not masks:
            raise InputError(NO_MASK)
        return cls(text, tuple(masks))

    @property
    def parts(self) -> list[str]:
        """One more than there are masks."""
        starts = [0, *(end for _, end in self.masks)]
        ends = [*(start for start, _ in self.masks), len(self.text)]
        return [self.text[start:end] for start, end in zip(starts, ends, strict=True)]

    def before(self, mask: int, words: Sequence[str] = ()) -> str:
        """The text before a mask, with words in place of the masks before it; masks without one are left out."""
        parts = self.parts
        return "".join(part + word for part, word in zip(parts, words, strict=False)) + "".join(
            parts[min(len(words), mask) : mask + 1]
        )

    def with_words(self, words: Sequence[str]) -> str:
        """The text with a word in place of each mask."""
        return self.before(len(self.masks), words)


@dataclass(frozen=True, order=True)
class Candidate:
    """A word or span for each mask so far, and the log-probability of all of them together."""

    log_prob: float
    words: tuple[str, ...] = ()
    pieces: tuple[tuple[int, ...], ...] = ()

    def with_word(self, word: str, pieces: Sequence[int], log_prob: float) -> Candidate:
        """With one more word; the log-probability is that of all together."""
        return Candidate(log_prob, (*self.words, word), (*self.pieces, tuple(pieces)))


@dataclass(frozen=True, kw_only=True)
class FillRequest:
    """What is to be filled in."""

    text: MaskedText
    top: int
    whole_words: bool = True
    """Whether each mask is one word; otherwise a span of any text, where the model writes spans."""
    targets: tuple[str, ...] = ()
    """The only answers that are compared; none: the model's own."""
    max_pieces: int = 3

    @property
    def n_candidates(self) -> int:
        """How many are returned: of given answers to one mask, all."""
        return max(len(self.targets), 1) if self.targets and len(self.text.masks) == 1 else self.top


class Filler(Protocol):
    """A model as it fills masks."""

    description: str
    """In words, how candidates are scored."""
    own_mask: str | None
    """How the model writes its own mask, if it has one."""

    @property
    def tally(self) -> Tally:
        """The pieces and FLOPs of all requests so far."""

    def spelled(self, pieces: Sequence[int]) -> list[str]:
        """Pieces as the vocabulary writes them."""

    def as_written(self, before: str, word: str) -> str:
        """A word behind this text in the spelling that the model's tokenizer gives it, in lower case for instance."""

    def __call__(self, request: FillRequest) -> list[Candidate]:
        """The likeliest candidates, the best first, each with a word for every mask."""


def best(candidates: Sequence[Candidate], n: int) -> list[Candidate]:
    """The likeliest, best first; where two read the same, the likelier of them."""
    distinct: dict[tuple[str, ...], Candidate] = {}
    for each in sorted(candidates, key=lambda candidate: -candidate.log_prob):
        distinct.setdefault(each.words, each)
        if len(distinct) == n:
            break
    return list(distinct.values())


def masks_with_candidates(
    text: MaskedText,
    candidates: Sequence[Candidate],
    spelled: Callable[[Sequence[int]], list[str]],
    probabilities: Sequence[float],
) -> list[FilledMask]:
    """Candidates as records, one for each mask."""
    return [
        FilledMask(
            start=start,
            end=end,
            pieces=[" ".join(spelled(each.pieces[number])) for each in candidates],
            probabilities=list(probabilities),
            words=[each.words[number] for each in candidates],
        )
        for number, (start, end) in enumerate(text.masks)
    ]

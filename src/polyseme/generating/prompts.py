"""Prompts: how a model reads one, and what text the pieces that it writes add.

| | a prompt is | the text written is |
|---|---|---|
| `TextPrompts` | pieces to continue | the difference between the prompt's pieces as text and all pieces as text |
| `SourcePrompts` | a source that is read first | independent of the prompt's text |
| `WordPrompts` | words to continue, read by their characters | words of the softmax |

With the difference of texts, blanks and parts of words come out as they should when it is put behind the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from polyseme.errors import InputError
from polyseme.text.character_tokenizer import WordTable
from polyseme.text.documents import make_document
from polyseme.text.joined_words import joined_words
from polyseme.types import Tokenizer


@dataclass(frozen=True)
class Prompt:
    """One prompt as a model reads it."""

    pieces: list[int]
    """The pieces that are continued."""
    text: str = ""
    """What these say."""
    source: list[int] | None = None
    """What is read first, specials included, where the model has an encoder for it."""

    @property
    def n_read(self) -> int:
        return len(self.pieces) + len(self.source or ())


class Prompts(Protocol):
    """Texts to prompts, and pieces to what they add."""

    continues: bool
    """Whether the text written continues the prompt's text."""

    def read(self, prompt: str, name: str) -> Prompt:
        """`name` is how messages call it."""

    def added(self, prompt: Prompt, pieces: Sequence[int]) -> str:
        """The text of pieces that were written after a prompt."""


class TextPrompts:
    """Prompts in the pieces of a tokenizer. An empty one is the `start` piece; without that, it is refused.

    `framed` says that every text begins with a piece of the frame, so that an empty prompt is something already.
    """

    continues = True

    def __init__(self, tokenizer: Tokenizer, *, start: int | None, framed: bool) -> None:
        self.tokenizer = tokenizer
        self.start = start
        self.framed = framed

    def read(self, prompt: str, name: str) -> Prompt:
        pieces: list[int] = self.tokenizer.encode(make_document(prompt)).ids.tolist()
        if not pieces and not self.framed:
            if self.start is None:
                raise InputError(
                    f"{name} is empty, and the model has no piece to start a text with. Give it some text."
                )
            pieces = [self.start]
        return Prompt(pieces, self.tokenizer.decode(pieces))

    def added(self, prompt: Prompt, pieces: Sequence[int]) -> str:
        before = prompt.text
        whole = self.tokenizer.decode([*prompt.pieces, *pieces])
        return whole[len(before) if whole.startswith(before) else _n_alike(whole, before) :]


class SourcePrompts:
    """Prompts as sources: each is read whole, and a text of its own is written."""

    continues = False

    def __init__(self, tokenizer: Tokenizer, room: int | None) -> None:
        self.tokenizer = tokenizer
        self.room = room

    def read(self, prompt: str, name: str) -> Prompt:
        source: list[int] = self.tokenizer.frame(self.tokenizer.encode(make_document(prompt)).ids).ids.tolist()
        if not source:
            raise InputError(f"{name} is empty, and the model has no piece that would stand for it. Give it something.")
        if self.room is not None and len(source) > self.room:
            raise InputError(
                f"{name} makes {len(source):,} pieces, specials included, and the model reads {self.room:,} of a "
                "source. Shorten it, or cut it into sentences."
            )
        return Prompt([], source=source)

    def added(self, prompt: Prompt, pieces: Sequence[int]) -> str:
        return self.tokenizer.decode(pieces)


class WordPrompts:
    """Prompts in words, any words; words of the softmax are written."""

    continues = True

    def __init__(self, words: WordTable) -> None:
        self.words = words

    def read(self, prompt: str, name: str) -> Prompt:
        return Prompt([self.words.number(str(word)) for word in make_document(prompt).words])

    def added(self, prompt: Prompt, pieces: Sequence[int]) -> str:
        read = [self.words[piece] for piece in prompt.pieces]
        return joined_words([*read, *(self.words[piece] for piece in pieces)])[len(joined_words(read)) :]


def _n_alike(one: str, other: str) -> int:
    """How many characters two texts have in common at their start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))

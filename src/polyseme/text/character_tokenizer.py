"""ELMo's tokenizer: each word is one piece, spelled in the bytes of its UTF-8.

A word is a row of 50 ids: begin of word, its bytes, end of word, and padding. Every id is one more than the character's
row in the published tables, so that 0 means padding. A word of more than 48 bytes is truncated to 48, as published,
with one warning per tokenizer.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import ModelError, PolysemeWarning
from polyseme.text.joined_words import joined_words
from polyseme.types import Document, FramedRow, Pieces, Unit

Ints = NDArray[np.int64]

N_IDS = 262
"""256 bytes, begin and end of sentence, begin and end of word, padding, and 0."""
SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, PADDING = range(257, 262)
MARKERS: Mapping[str, int] = {"<S>": SENTENCE_BEGIN, "</S>": SENTENCE_END}
"""The markers around a sentence, as words; a word of the user's that equals one is read as the marker."""
UNKNOWN = "<UNK>"
VOCABULARY = "vocabulary.txt"
"""The file with the words of a softmax, where a model has one."""


class CharacterTokenizer:
    """Words to rows of characters (`types.Tokenizer`); nothing is unknown to it.

    `vocabulary` has the words of the model's softmax, if it has one.
    """

    def __init__(self, max_characters: int = 50, vocabulary: Sequence[str] | None = None) -> None:
        if max_characters < 3:
            raise ModelError(f"A word needs room for at least 3 characters, with its marks. Got {max_characters}.")
        self.max_characters = max_characters
        self.vocabulary = None if vocabulary is None else tuple(vocabulary)
        self.specials: Mapping[str, int] = {"start": SENTENCE_BEGIN, "end": SENTENCE_END, "pad": 0}
        self._warned = False

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"characters in UTF-8, {self.max_characters} a word".encode())
        if self.vocabulary is not None:
            digest.update("\n".join(("", *self.vocabulary)).encode())
        return digest.hexdigest()

    @property
    def unit(self) -> Unit:
        return "character"

    @property
    def n_pieces(self) -> int:
        return N_IDS

    @property
    def n_specials(self) -> int:
        return 2

    # --- text to pieces ----------------------------------------------------------------------------------------------

    def encode(self, document: Document) -> Pieces:
        """A row of characters for every word, without the markers."""
        type_id: dict[str, int] = {}
        for word in document.words:
            type_id.setdefault(str(word), len(type_id))
        types = self.spell(list(type_id))
        type_ids = np.fromiter((type_id[str(word)] for word in document.words), np.int64, len(document.words))
        offsets = np.array([(word.start, word.end) for word in document.words], dtype=np.int64).reshape(-1, 2)
        indices = np.arange(len(type_ids), dtype=np.int64)
        return Pieces(types[type_ids], offsets, np.stack([indices, indices], axis=1))

    def encode_many(self, documents: Sequence[Document]) -> list[Pieces]:
        return [self.encode(document) for document in documents]

    def encode_with_masks(self, text: str) -> Pieces:
        raise ModelError("This model has no mask piece, so there is nothing to fill in.")

    def spell(self, words: Sequence[str]) -> Ints:
        """[n, C]: the character ids of the words."""
        rows = np.full((len(words), self.max_characters), PADDING, dtype=np.int64)
        rows[:, 0] = WORD_BEGIN
        room = self.max_characters - 2
        for row, word in zip(rows, words, strict=True):
            marker = MARKERS.get(word)
            if marker is not None:
                row[1:3] = marker, WORD_END
                continue
            content = word.encode("utf-8")
            if len(content) > room:
                self._warn_truncated(word)
                content = content[:room]
            row[1 : 1 + len(content)] = np.frombuffer(content, np.uint8)
            row[1 : 1 + len(content)] += 1
            row[1 + len(content)] = WORD_END
        return rows

    def _warn_truncated(self, word: str) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"Of words longer than {self.max_characters - 2} bytes in UTF-8 only the first are read, as published. "
            f"The first such word begins with {word[:20]!r}. Further ones are not reported.",
            PolysemeWarning,
            stacklevel=4,
        )

    def frame(self, ids: Ints, pair: Ints | None = None) -> FramedRow:
        """A stretch of words with the markers around it."""
        if pair is not None:
            raise ModelError("This model reads one text at a time; it cannot read a pair.")
        begin, end = self.spell(list(MARKERS))
        row = np.concatenate([begin[None], ids.reshape(-1, self.max_characters), end[None]])
        return FramedRow(row, np.zeros(len(row), dtype=np.int64), 1)

    # --- pieces to text ---------------------------------------------------------------------------------------------

    def pieces(self, ids: Sequence[Any]) -> list[str]:
        """The words that rows of characters spell; the empty string where there is none."""
        return [self._word([int(id) for id in row]) for row in ids]

    def decode(self, ids: Sequence[Any]) -> str:
        """The words, without markers."""
        return joined_words([word for word in self.pieces(ids) if word and word not in MARKERS])

    def _word(self, row: list[int]) -> str:
        for word, marker in MARKERS.items():
            if row[1:3] == [marker, WORD_END]:
                return word
        content = bytes(id - 1 for id in row if 1 <= id <= 256)
        return content.decode("utf-8", errors="replace")

    def save(self, folder: str) -> None:
        """Write the vocabulary of the softmax, if there is one; the model's config has everything else."""
        if self.vocabulary is not None:
            Path(folder, VOCABULARY).write_text("\n".join((*self.vocabulary, "")), encoding="utf-8", newline="\n")


def read_vocabulary(path: Path) -> list[str]:
    """The words of an ELMo vocabulary file, one per line, most frequent first: those of its softmax.

    It must hold the markers and the unknown word, without which no sentence can begin or end.
    """
    try:
        words = path.read_bytes().decode().replace("\r\n", "\n").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"The vocabulary {path} cannot be read ({error}).") from None
    missing = [marker for marker in (*MARKERS, UNKNOWN) if marker not in words]
    if missing:
        raise ModelError(
            f"The vocabulary {path} lacks {' and '.join(missing)}. ELMo's vocabularies have one word per line, and "
            "among them the markers <S> and </S> and the unknown word <UNK>; put them at its top."
        )
    if len(set(words)) < len(words):
        twice = next(word for number, word in enumerate(words) if word in words[:number])
        raise ModelError(f"The vocabulary {path} has {twice!r} more than once. Each word may occur only once.")
    return words


class WordTable:
    """Words by number: first those of the vocabulary, as a softmax over words numbers them, then others as they come.

    Any word can be read by its characters, but only those of the vocabulary can be predicted (ELMo); the others are
    predicted as the unknown word.
    """

    def __init__(self, tokenizer: CharacterTokenizer) -> None:
        self.tokenizer = tokenizer
        self.n_words = len(tokenizer.vocabulary or ())
        """Words of the softmax."""
        self._words = list(tokenizer.vocabulary or ())
        self._numbers = {word: number for number, word in enumerate(self._words)}
        self._room = tokenizer.max_characters - 2
        self._spellings: dict[bytes, int] = {}
        for number, word in enumerate(self._words):
            if word not in MARKERS:
                self._spellings.setdefault(word.encode("utf-8")[: self._room], number)
        begin, end = MARKERS
        self.begin = self._numbers[begin]
        self.end = self._numbers[end]
        self.unknown = self._numbers[UNKNOWN]

    def __getitem__(self, number: int) -> str:
        return self._words[number]

    def number(self, word: str) -> int:
        """The number of a word; one that is new gets the next."""
        if word not in self._numbers:
            self._numbers[word] = len(self._words)
            self._words.append(word)
        return self._numbers[word]

    def characters(self, numbers: Ints) -> Ints:
        """[…] → […, C]: how words are spelled, each word once."""
        distinct, which = np.unique(numbers, return_inverse=True)
        spelled = self.tokenizer.spell([self._words[number] for number in distinct.tolist()])
        return spelled[which.reshape(numbers.shape)]

    def predicted(self, spelled: Ints) -> Ints:
        """[n, C] → [n]: as which word of the softmax each spelled one is predicted."""
        if not len(spelled):
            return np.zeros(0, np.int64)
        distinct, which = np.unique(spelled, axis=0, return_inverse=True)
        numbers = [self._predicted(row) for row in distinct]
        return np.array(numbers, dtype=np.int64)[which.reshape(-1)]

    def _predicted(self, row: Ints) -> int:
        word = self.tokenizer.pieces([row.tolist()])[0]
        if word in MARKERS and int(row[1]) == MARKERS[word]:
            return self._numbers[word]
        inside = row[(row >= 1) & (row <= 256)] - 1
        return self._spellings.get(bytes(inside.astype(np.uint8)), self.unknown)

"""The tokenizer of static vectors: each word is one piece, its row of the table, or the unknown piece.

Where the table has rows for character n-grams too (fastText), a word is its own row and those of its n-grams, and an
unknown word its n-grams alone: the mean of a word's pieces is then fastText's vector. So a document's pieces depend on
nothing but the document, and any verb reads unknown words as it reads others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import ModelError
from polyseme.text.character_ngrams import CharacterNgrams
from polyseme.types import Document, FramedRow, Pieces, Unit

Ints = NDArray[np.int64]
VOCABULARY = "vocabulary.txt"
"""The words, one per line, in the order of their rows."""
BUCKETS = "buckets.txt"
"""The buckets of n-grams that a pruned table has rows for, one per line, in the order of their rows."""
UNKNOWN = "<unk>"
END_OF_SENTENCE = "</s>"
"""fastText's marker, which has no n-grams."""
SPELLED_WORDS = 2**16
"""Words whose n-grams are remembered."""


class WordTokenizer:
    """Words to rows of a table (`types.Tokenizer`).

    Words are looked up as they are and then, with `lowercase`, in lower case. Of a word that is listed several times
    the first row counts.
    """

    def __init__(self, words: Sequence[str], *, lowercase: bool = False, ngrams: CharacterNgrams | None = None) -> None:
        self.words = words
        self.lowercase = lowercase
        self.ngrams = ngrams
        self._rows = {word: row for row, word in zip(range(len(words) - 1, -1, -1), reversed(words), strict=True)}
        self._unknown = len(words) + (0 if ngrams is None else ngrams.n_rows)
        self.specials = {"unknown": self._unknown}
        self._spellings: dict[str, Ints] = {}

    @property
    def fingerprint(self) -> str:
        ngrams = self.ngrams
        spelling = None if ngrams is None else (ngrams.min_ngram, ngrams.max_ngram, ngrams.n_buckets)
        digest = hashlib.sha256(f"words, lowercase {self.lowercase}, n-grams {spelling}\n".encode())
        digest.update("\n".join(self.words).encode())
        if ngrams is not None and ngrams.buckets is not None:
            digest.update(np.asarray(ngrams.buckets, np.int64).tobytes())
        return digest.hexdigest()

    @property
    def unit(self) -> Unit:
        return "word" if self.ngrams is None else "piece"

    @property
    def n_pieces(self) -> int:
        return self._unknown + 1

    @property
    def n_specials(self) -> int:
        return 0

    # --- text to pieces ----------------------------------------------------------------------------------------------

    def row(self, word: str) -> int | None:
        """The row of a word, or None."""
        row = self._rows.get(word)
        return self._rows.get(word.lower()) if row is None and self.lowercase else row

    def encode(self, document: Document) -> Pieces:
        offsets = np.array([(word.start, word.end) for word in document.words], np.int64).reshape(-1, 2)
        if self.ngrams is None:
            rows = (self.row(word) for word in document.words)
            ids = np.fromiter((self._unknown if row is None else row for row in rows), np.int64, len(offsets))
            places = np.arange(len(ids), dtype=np.int64)
            return Pieces(ids, offsets, np.stack([places, places], axis=1))
        spelled = [self._spelled(str(word)) for word in document.words]
        counts = np.array([len(each) for each in spelled], np.int64)
        pieces = np.concatenate([np.zeros((0, 3), np.int64), *spelled])
        begins, limits = (np.repeat(edge, counts)[:, None] for edge in offsets.T)
        spans = np.minimum(pieces[:, 1:] + begins, limits)
        ends = np.cumsum(counts)
        return Pieces(pieces[:, 0].copy(), spans, np.stack([ends - counts, ends - 1], axis=1))

    def encode_many(self, documents: Sequence[Document]) -> list[Pieces]:
        return [self.encode(document) for document in documents]

    def encode_with_masks(self, text: str) -> Pieces:
        raise ModelError("This model has no mask piece, so there is nothing to fill in.")

    def _spelled(self, word: str) -> Ints:
        """[n, 3]: a word's rows, its own first, and [start, end) of each in the word."""
        if word not in self._spellings:
            if len(self._spellings) >= SPELLED_WORDS:
                self._spellings = {}
            self._spellings[word] = self._spell(word)
        return self._spellings[word]

    def _spell(self, word: str) -> Ints:
        row, length = self.row(word), len(word)
        pieces = [] if row is None else [(row, 0, length)]
        if self.ngrams is not None and word != END_OF_SENTENCE:
            shift = len(self.words)
            spelled = word.lower() if self.lowercase else word
            pieces += [(shift + bucket, start, end) for bucket, start, end in self.ngrams.of(spelled)]
        return np.array(pieces or [(self._unknown, 0, length)], np.int64)

    def frame(self, ids: Ints, pair: Ints | None = None) -> FramedRow:
        """Pieces as they are: no model of this kind has specials around a text."""
        if pair is not None:
            raise ModelError("This model reads one text at a time; it cannot read a pair.")
        return FramedRow(ids, np.zeros(len(ids), np.int64), 0)

    # --- pieces to text ----------------------------------------------------------------------------------------------

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The words of rows; a bucket, which many n-grams share, is named by its number."""
        return [self._name(int(id)) for id in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The words, with blanks between them; n-grams, whose letters no table has, are left out."""
        return " ".join(self._name(int(id)) for id in ids if id < len(self.words) or id == self._unknown)

    def _name(self, id: int) -> str:
        if id < len(self.words):
            return self.words[id]
        if id == self._unknown or self.ngrams is None:
            return UNKNOWN
        return f"bucket {self.ngrams.bucket(id - len(self.words))}"

    # --- files -------------------------------------------------------------------------------------------------------

    def save(self, folder: str) -> None:
        _write_lines(Path(folder, VOCABULARY), self.words)
        if self.ngrams is not None and self.ngrams.buckets is not None:
            _write_lines(Path(folder, BUCKETS), [str(bucket) for bucket in self.ngrams.buckets])


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def read_words(path: Path) -> list[str]:
    """The words of a vocabulary file. Only the end of a line separates them: words may hold any other blank."""
    try:
        return path.read_bytes().decode().removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"The vocabulary {path} cannot be read ({error}). Copy the model's folder again.") from None


def read_buckets(path: Path) -> list[int]:
    """The buckets that a pruned table has rows for."""
    try:
        return [int(line) for line in path.read_text(encoding="utf-8").split()]
    except (OSError, ValueError) as error:
        raise ModelError(
            f"The list of buckets {path} cannot be read ({error}). Copy the model's folder again."
        ) from None

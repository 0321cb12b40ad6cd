"""Vectors of words without a language model: a table of the training words beside a CNN over characters.

The inputs of the taggers before ELMo (Lample et al. 2016; Ma and Hovy 2016), which are the baseline of contextual ones.

Shapes: R rows, W words of the longest row, N different words of a batch, K characters of the longest word.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.config import Config
from polyseme.errors import ModelError

PADDING, UNKNOWN = 0, 1
N_SPECIAL = 2
MAX_CACHED_WORDS = 1 << 16
"""Words up to which numbers are kept."""


@dataclass(frozen=True, kw_only=True)
class WordInputsConfig(Config):
    """The tables' entries, in order, and their sizes."""

    words: tuple[str, ...]
    """The words of train, as `simplify_words` writes them, by falling count."""
    rare: int = 0
    """How many of the last of them occur once: in training these are now and then taken for unknown."""
    characters: tuple[str, ...] = ()
    word_width: int = 100
    character_width: int = 30
    n_filters: int = 30
    """Of the CNN over characters; 0: words are not spelled."""
    filter_width: int = 3
    unknown_rate: float = 0.5
    """How often a rare word is taken for unknown in training, so that the vector of unknown words is learned."""
    dropout_rate: float = 0.5
    """Of the characters' vectors."""

    def __post_init__(self) -> None:
        for name in ("words", "characters"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("word_width", "character_width", "filter_width"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ModelError(f"The '{name}' of word inputs must be a whole number above 0. Got {value!r} instead.")

    @property
    def width(self) -> int:
        """Of a word's vector."""
        return self.word_width + self.n_filters


def simplify_words(word: str) -> str:
    """Words as the table has them: in lower case, each digit a 0. The characters keep what this loses.

    >>> simplify_words("Boeing-747")
    'boeing-000'
    """
    return "".join("0" if character.isdigit() else character for character in word.lower())


def learn_word_inputs(rows: Iterable[Sequence[str]], **sizes: Any) -> WordInputsConfig:
    """The tables of the words of train, and of its characters that occur more than once; `sizes` as in the config."""
    words, characters = Counter[str](), Counter[str]()
    for row in rows:
        words.update(map(simplify_words, row))
        for word in row:
            characters.update(word)
    by_count = sorted(words, key=lambda word: (-words[word], word))
    return WordInputsConfig(
        words=tuple(by_count),
        rare=sum(count == 1 for count in words.values()),
        characters=tuple(sorted(character for character, count in characters.items() if count > 1)),
        **sizes,
    )


@dataclass
class WordNumbers:
    """Rows of words, as the tables count them."""

    words: Tensor
    """[R, W], `PADDING` past the end of a row."""
    mask: Tensor
    """[R, W]"""
    spelled: Tensor
    """[N, K]: the characters of each different word, `PADDING` past its end."""
    which: Tensor
    """[R, W]: which of these each word is."""

    def to(self, device: torch.device | str) -> WordNumbers:
        return WordNumbers(
            self.words.to(device), self.mask.to(device), self.spelled.to(device), self.which.to(device)
        )  # fmt: skip


class WordInputs(nn.Module):
    """Words → [R, W, width], zeros at padding: a word's vector in the table, and the largest answer of each filter to
    its characters. A word has the same vector wherever it stands.
    """

    def __init__(self, config: WordInputsConfig) -> None:
        super().__init__()
        self.config = config
        self.word_numbers = {word: number for number, word in enumerate(config.words, N_SPECIAL)}
        self.character_numbers = {character: number for number, character in enumerate(config.characters, N_SPECIAL)}
        self.words = nn.Embedding(N_SPECIAL + len(config.words), config.word_width)
        _draw(self.words)
        self.characters: nn.Embedding | None = None
        if config.n_filters:
            self.characters = nn.Embedding(N_SPECIAL + len(config.characters), config.character_width)
            _draw(self.characters)
            self.filters = nn.Conv1d(
                config.character_width, config.n_filters, config.filter_width, padding=config.filter_width - 1
            )
            nn.init.xavier_uniform_(self.filters.weight)
            nn.init.zeros_(self.filters.bias)  # type: ignore[arg-type]
        self.dropout = nn.Dropout(config.dropout_rate)
        self._spellings: dict[str, tuple[int, NDArray[np.int64]]] = {}

    @property
    def width(self) -> int:
        return self.config.width

    def read(self, rows: Sequence[Sequence[str]], longest: int | None = None) -> WordNumbers:
        """Words as numbers; what train did not have is unknown.

        With `longest`, rows have room for so many words, and shapes do not depend on which words they are: there is
        room for as many different ones, in one of a few lengths.
        """
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        n_words = max([longest or 0, *map(len, rows)])
        flat = [word for row in rows for word in row]
        place = {word: number for number, word in enumerate(dict.fromkeys(flat))}
        spellings = [self._spell(word) for word in place]
        n_different, n_characters = max(1, len(place)), max([1, *map(len, place)])
        if longest is not None:
            n_different, n_characters = len(rows) * n_words, spelled_room(n_characters)
        real = np.arange(n_words) < lengths[:, None]
        words, which = (np.zeros(real.shape, dtype=np.int64) for _ in range(2))
        spelled = np.full((n_different, n_characters), PADDING)
        if flat:
            which[real] = [place[word] for word in flat]
            words[real] = np.array([number for number, _ in spellings], dtype=np.int64)[which[real]]
            counts = np.array([len(characters) for _, characters in spellings])
            there = np.arange(n_characters) < counts[:, None]
            spelled[: len(place)][there] = np.concatenate([characters for _, characters in spellings])
        return WordNumbers(*map(torch.from_numpy, (words, real, spelled, which)))

    def _spell(self, word: str) -> tuple[int, NDArray[np.int64]]:
        """A word's number in the table, and those of its characters; kept, since words recur in every epoch."""
        spelling = self._spellings.get(word)
        if spelling is None:
            characters = [self.character_numbers.get(character, UNKNOWN) for character in word]
            spelling = self.word_numbers.get(simplify_words(word), UNKNOWN), np.array(characters, dtype=np.int64)
            if len(self._spellings) >= MAX_CACHED_WORDS:
                self._spellings.clear()
            self._spellings[word] = spelling
        return spelling

    def forward(self, numbers: WordNumbers) -> Tensor:
        words = numbers.words
        if self.training and self.config.unknown_rate and self.config.rare:
            rare = words >= N_SPECIAL + len(self.config.words) - self.config.rare
            taken = torch.rand(words.shape, device=words.device) < self.config.unknown_rate
            words = words.masked_fill(rare & taken, UNKNOWN)
        vectors = self.words(words)
        if self.characters is not None:
            vectors = torch.cat([vectors, self._read_characters(numbers.spelled)[numbers.which]], dim=-1)
        known: Tensor = vectors * numbers.mask[:, :, None]
        return known

    def _read_characters(self, spelled: Tensor) -> Tensor:
        """[N, K] → [N, filters]: the largest answer where a filter touches at least one character."""
        assert self.characters is not None
        real = spelled != PADDING
        vectors = self.dropout(self.characters(spelled)) * real[:, :, None]
        answers = self.filters(vectors.transpose(1, 2))  # [N, filters, K + filter width - 1]
        touched = torch.arange(answers.shape[-1], device=spelled.device) < (
            real.sum(1)[:, None] + self.config.filter_width - 1
        )
        answers = answers.masked_fill(~touched[:, None, :], torch.finfo(answers.dtype).min)
        largest: Tensor = answers.amax(-1) * real[:, :1]
        return largest


def spelled_room(n_characters: int) -> int:
    """The length that spelled words are padded to where shapes are few; filters over padding cost a GPU nothing.

    >>> spelled_room(7), spelled_room(33), spelled_room(129)
    (32, 128, 512)
    """
    return 32 << 2 * max(0, -(-((n_characters - 1) >> 5).bit_length() // 2))


def _draw(table: nn.Embedding) -> None:
    """As Ma and Hovy draw tables: from ± √(3 / width)."""
    bound = math.sqrt(3 / table.embedding_dim)
    nn.init.uniform_(table.weight, -bound, bound)

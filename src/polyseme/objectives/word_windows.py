"""What the objectives of word2vec and fastText share: which words are read, their windows, and the noise words.

Rare words and separators are left out, then a share of the frequent ones (subsampling), so that windows reach over
them; no window reaches over the end of a document. Sampling is that of word2vec.c: a word that is the share f of the
text is kept with probability √(t/f) + t/f, not with the paper's √(t/f), and noise words are drawn from counts to the
power of 0.75, in proportion, without the table of 10⁸ entries.

The original has noise words of its own for each pair of words. Here a block of consecutive words shares its noise
words, and each counts as often as the original would have drawn one, so that the expected loss and gradient are the
same, and products of small matrices compute both (as in Ji et al. 2016). The original moves after each pair; here the
tables move after each row of the text, or part of one, by the sum over its pairs (`WordNets.update`).

Shapes: R rows, T pieces of a row, L of them in whole blocks, B blocks of a row, S blocks of all rows, N words of a
block, C = N + 2 · window words in reach of a block, K noise words of a block, D width.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.packed_rows import Packed
from polyseme.corpus.random_keys import uniform
from polyseme.encoders.static import Static
from polyseme.errors import ModelError, OptionError
from polyseme.objectives.counted_words import CountedWords, Floats, Ints
from polyseme.objectives.objective import Arrays, BaseObjective, Parts
from polyseme.objectives.table_rows import Spellings, add_rows, mean_with_whole_gradient, rows_of
from polyseme.parts.memory_and_cache import Memory
from polyseme.text.character_ngrams import CharacterNgrams
from polyseme.text.word_tokenizer import WordTokenizer
from polyseme.types import Example, Needs, Rows

FEWEST_WORDS = 2
LARGEST_UPDATE = 1.0
"""Pairs of words, times the learning rate, that may move one vector in one update, on average."""


@dataclass(frozen=True, kw_only=True)
class WordObjective(BaseObjective):
    """What every objective of static vectors needs: an encoder without context, and the counts of words."""

    has_perplexity = False
    baseline_name = "the loss of word frequencies alone"
    least_gain, fair_share = 0.0, 1.0
    judges_models = False  # vectors are read out, and the loss is against noise words

    window: int = 5
    """Words on either side, at most."""

    def __post_init__(self) -> None:
        if self.window < 1:
            raise OptionError(f"The window of {self.name!r} must be at least 1 word. Got {self.window} instead.")

    def for_corpus(self, corpus: Corpus) -> WordObjective:
        return self.replace(known_vocabulary=CountedWords.of_corpus(corpus))

    @property
    def words(self) -> CountedWords:
        """The words and their counts."""
        if not isinstance(self.vocabulary, CountedWords):
            raise OptionError(f"The objective {self.name!r} needs the counts of a corpus. Call for_corpus(…) first.")
        return self.vocabulary

    def refuse(self, bundle: Bundle) -> None:
        n_words = int((self.words.counts > 0).sum())
        if n_words < FEWEST_WORDS:
            raise OptionError(
                f"The vocabulary has {n_words} word{'s' if n_words != 1 else ''}, and a word's vector is learned from "
                "others around it. Give more text, or count rarer words in (--min-count 1)."
            )


@dataclass(frozen=True, kw_only=True)
class NegativeSampling(WordObjective):
    """A word of a window is distinguished from noise words (Mikolov et al. 2013), k of them for each."""

    updates_in_place = True

    negatives: int = 5
    """k: noise words for each word that is predicted."""
    power: float = 0.75
    """Of the counts that noise words are drawn by (fastText: 0.5)."""
    subsample: float = 1e-3
    """The threshold t of subsampling; 0: every word is read."""
    block: int = 16
    """Consecutive words that share their noise words."""
    shared_negatives: int = 32
    """Noise words of a block."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("negatives", "block", "shared_negatives"):
            if getattr(self, name) < 1:
                raise OptionError(f"The {name} of {self.name!r} must be at least 1. Got {getattr(self, name)} instead.")
        if not (self.subsample >= 0 and 0 <= self.power <= 1):
            raise OptionError(
                f"The threshold of subsampling must be 0 or more, and the power of noise words from 0 to 1. Got "
                f"{self.subsample} and {self.power} instead."
            )

    @property
    def needs(self) -> Needs:
        return Needs(directions=("none",), outputs=(), layout=Packed(), units=("word",))

    def corrupt(self, rows: Rows) -> Example:
        """Words that are kept, moved together, with the number of their document; the reach of each; noise words."""
        n = rows.pieces.shape[1]
        n_blocks = -(-n // self.block)
        selected = uniform(rows.keys, "subsample", n) < self._selection[rows.pieces]
        order = np.argsort(~selected, axis=1, kind="stable")
        there = np.take_along_axis(selected, order, axis=1)
        pieces = np.where(there, np.take_along_axis(rows.pieces, order, axis=1), 0)
        numbers: Ints = np.cumsum(rows.special, axis=1, dtype=np.int64)
        documents: Ints = np.where(there, np.take_along_axis(numbers, order, axis=1), -1)
        reach = np.where(there, 1 + (uniform(rows.keys, "window", n) * self.window).astype(np.int64), 0)
        drawn = uniform(rows.keys, "noise", n_blocks * self.shared_negatives)
        noise = np.minimum(np.searchsorted(self._noise_ends, drawn, side="right"), self._last_noise)
        missing = n_blocks * self.block - n
        arrays = {
            "words": _pad_columns(pieces, missing, 0),
            "documents": _pad_columns(documents, missing, -1),
            "reach": _pad_columns(reach, missing, 0),
            "noise": noise.reshape(len(noise), n_blocks, self.shared_negatives).astype(np.int32),
        }
        return Example(arrays, {self.name: float(self.n_targets(n_contexts(documents, reach, self.window)))})

    @cached_property
    def _selection(self) -> Floats:
        return self.words.selection(self.subsample)

    @cached_property
    def _noise_ends(self) -> Floats:
        return np.cumsum(self.words.noise(self.power))

    @cached_property
    def _last_noise(self) -> int:
        return int(np.flatnonzero(self.words.counts).max(initial=0))

    @abstractmethod
    def n_targets(self, contexts: Ints) -> int:
        """Words that are predicted, from the words in reach of each."""

    @property
    @abstractmethod
    def targets_per_word(self) -> float:
        """The same for each word that is read, on average and at most."""

    def baseline(self, nets: nn.Module, corpus: Corpus, most: int) -> float:
        """The held-out loss of the best scores that depend on nothing but the word that is scored."""
        train, held = (
            corpus.piece_counts(split, most=most) * self._selection + add
            for split, add in (("train", 0.5), ("held", 0.0))
        )
        known = self.words.counts > 0
        p, q = (each[known] / each[known].sum() for each in (train, self.words.noise(self.power)))
        held = held[known] / max(held[known].sum(), 1e-300)
        odds = np.maximum(p, 1e-300) / np.maximum(self.negatives * q * (1 - p), 1e-300)
        noise = self.negatives * q * (1 - held)
        return float(held @ np.log1p(1 / odds) + noise @ np.log1p(odds))

    def update(self, nets: nn.Module, batch: Arrays, rate: float) -> Mapping[str, Tensor]:
        return cast(WordNets, nets).update(batch, rate)

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        """Of the products of vectors alone: each score once forwards and twice backwards."""
        share = float(self.words.shares @ self._selection) if isinstance(self.known_vocabulary, CountedWords) else 1.0
        scores = self.block + 2 * self.window + self.shared_negatives
        return 6.0 * share * n_rows * length * scores * cast(WordNets, nets).table.shape[1]

    def result(self, nets: nn.Module) -> dict[str, Bundle]:
        nets = cast(WordNets, nets)
        return {"model": trained_vectors(nets.bundle, nets.table.detach(), self.vocabulary.ordinary)}


def trained_vectors(bundle: Bundle, table: Tensor, words: Ints) -> Bundle:
    """A table that was trained over a corpus's pieces as a model: the rows of `words`, then those of n-grams."""
    trained, corpus_words = cast(Static, bundle.encoder).config, bundle.tokenizer
    if corpus_words is None:
        raise ModelError("The words of these vectors are not known.")
    ngrams = None
    if trained.max_ngram:
        ngrams = CharacterNgrams(trained.min_ngram, trained.max_ngram, trained.n_buckets)
    spelled = corpus_words.pieces(words.tolist())
    lowercase = all(word == word.lower() for word in spelled)
    tokenizer = WordTokenizer(spelled, lowercase=lowercase, ngrams=ngrams)
    encoder = Static(trained.replace(n_words=len(words), n_pieces=tokenizer.n_pieces, lowercase=lowercase))
    encoder.table = nn.Parameter(torch.cat([table[torch.from_numpy(words)], table[trained.n_words :]]))
    encoder.unknown = nn.Parameter(torch.zeros_like(encoder.table[0]))
    return Bundle(family=bundle.family, encoder=encoder, outputs={}, tokenizer=tokenizer)


def _pad_columns(numbers: Ints, n: int, value: int) -> NDArray[np.int32]:
    """The same with `n` more columns."""
    small = numbers.astype(np.int32)
    return np.pad(small, ((0, 0), (0, n)), constant_values=value) if n else small


def n_contexts(documents: Ints, reach: Ints, window: int) -> Ints:
    """[R, L]: how many words are in reach of each, in its document; -1 is no document."""
    counts = np.zeros(documents.shape, np.int64)
    for distance in range(1, min(window, documents.shape[1] - 1) + 1):
        same = (documents[:, distance:] == documents[:, :-distance]) & (documents[:, distance:] >= 0)
        counts[:, :-distance] += same & (reach[:, :-distance] >= distance)
        counts[:, distance:] += same & (reach[:, distance:] >= distance)
    return counts


class Windows(NamedTuple):
    """Blocks of words and what is in their reach; blocks without words are left out."""

    centers: Tensor
    """[S, N]"""
    contexts: Tensor
    """[S, C]"""
    in_reach: Tensor
    """[S, N, C]: 1 where a word of the block has the other in its window."""
    noise: Tensor
    """[S, K]"""
    n_blocks: list[int]
    """[R]: of each row of the text."""


class WordNets(nn.Module):
    """The table of an encoder, which is read, and a second one of the words that are predicted, which begins with 0."""

    def __init__(self, bundle: Bundle, objective: NegativeSampling) -> None:
        super().__init__()
        encoder = cast(Static, bundle.encoder)
        self.table = encoder.table
        self.predicted = nn.Parameter(torch.zeros(encoder.config.n_words, encoder.config.width))
        self.objective = objective
        self._bundle = (bundle,)  # in a tuple, so that it is no submodule
        self.spellings = Spellings.of(encoder.config, objective.known_vocabulary)

    @property
    def bundle(self) -> Bundle:
        return self._bundle[0]

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: words, documents and reach [R, L], noise [R, B, K]."""
        return {self.objective.name: self.loss(self.blocks(self.windows(arrays)))}, None

    @torch.no_grad()
    def update(self, arrays: Arrays, rate: float) -> dict[str, Tensor]:
        """Move the tables by plain SGD, row after row of the text; the sum of the loss, of each before its update.

        Where the vocabulary is small, a row of the text takes several updates.
        """
        windows = self.windows(arrays)
        n_blocks, rate = self.update_size(rate)
        sizes = [min(n_blocks, left) for n in windows.n_blocks for left in range(n, 0, -n_blocks)]
        total = self.table.new_zeros(())
        for blocks in zip(*(each.split(sizes) for each in self.blocks(windows)), strict=True):
            total += self.move(blocks, rate)
        return {self.objective.name: total}

    def update_size(self, rate: float) -> tuple[int, float]:
        """Blocks whose gradients may be added up, and the learning rate, which is lower where one block is too many.

        The sum over n pairs of the same word goes n times as far as one of them, while the original sees after each
        what the one before has done. In a text of few words that diverges.
        """
        of_block = rate * self.objective.block * self._pairs_of_vector
        return max(int(LARGEST_UPDATE / of_block), 1), rate * min(1.0, LARGEST_UPDATE / of_block)

    @cached_property
    def _pairs_of_vector(self) -> float:
        """For each word that is read, the pairs of words that move one vector, on average over words that are read."""
        objective = self.objective
        read = objective.words.shares * objective.words.selection(objective.subsample)
        read /= read.sum()
        predicted = objective.targets_per_word * (read + objective.negatives * objective.words.noise(objective.power))
        shares = read if self.spellings is None else self.spellings.mean_shares(read)
        centers = (objective.window + 1) * (1 + objective.negatives) * shares
        return float(max(read @ predicted, read @ centers))

    @abstractmethod
    def blocks(self, windows: Windows) -> tuple[Tensor, ...]:
        """[S, …] each: what the loss reads of windows; any of the blocks can be taken from all of them."""

    @abstractmethod
    def loss(self, blocks: tuple[Tensor, ...]) -> Tensor:
        """The sum over blocks."""

    @abstractmethod
    def move(self, blocks: tuple[Tensor, ...], rate: float) -> Tensor:
        """The same; and move the rows that blocks read against its gradient, without making one of whole tables."""

    def windows(self, arrays: Arrays) -> Windows:
        """What a pass reads, in blocks."""
        window, size = self.objective.window, self.objective.block
        places = torch.arange(size + 2 * window, device=arrays["words"].device)
        distance = (places - window - places[:size, None]).abs()  # [N, C]
        n_blocks = -(-(arrays["documents"] >= 0).sum(1) // size)
        longest = max(int(n_blocks.max()), 1)
        words, documents, reach = (arrays[name][:, : longest * size].long() for name in ("words", "documents", "reach"))
        filled = torch.arange(longest, device=n_blocks.device) < n_blocks[:, None]  # [R, B]
        ours, theirs = documents.unfold(1, size, size)[filled], _around(documents, window, size, -1)[filled]
        near = (distance > 0) & (distance <= reach.unfold(1, size, size)[filled][..., None])
        in_reach = near & (ours[..., None] == theirs[:, None]) & (ours >= 0)[..., None]
        return Windows(
            words.unfold(1, size, size)[filled],
            _around(words, window, size, 0)[filled],
            in_reach.to(self.predicted.dtype),
            arrays["noise"][:, :longest][filled].long(),
            n_blocks.tolist(),
        )

    def look_up(self, words: Tensor) -> Tensor:
        """[..., D]: the vectors of words; where words have n-grams, the mean of all of their rows.

        As in fastText, each of these rows gets the gradient of the mean whole, not its share.
        """
        if self.spellings is None:
            return rows_of(self.table, words)
        unique, places = words.unique(return_inverse=True)
        rows, counts = self.spellings.of_words(unique)
        sums = F.embedding_bag(rows, self.table, counts.cumsum(0) - counts, mode="sum", sparse=True)
        return F.embedding(places, mean_with_whole_gradient(sums, counts[:, None]))

    def add(self, words: Tensor, moves: Tensor) -> None:
        """Add to the rows of words [...] what each occurrence of them moves by [..., D]."""
        if self.spellings is None:
            return add_rows(self.table, words, moves)
        unique, places = words.unique(return_inverse=True)
        rows, counts = self.spellings.of_words(unique)
        sums = moves.new_zeros(len(unique), moves.shape[-1])
        add_rows(sums, places, moves)
        add_rows(self.table, rows, sums.repeat_interleave(counts, 0))


def logistic_loss(vectors: Tensor, others: Tensor, times: Tensor, n_true: int) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of - log σ(s) of the first `n_true` others and of - log σ(-s) of the rest, which are noise; and the
    gradients of vectors and others.

    s are the products of vectors [S, N, D] and others [S, n, D]; each counts `times` [S, N, n]. A loss that is larger
    than single precision can tell counts 87.
    """
    right = vectors @ others.transpose(1, 2)
    right[..., n_true:].neg_()
    right.sigmoid_()
    loss = -right.clamp(min=torch.finfo(right.dtype).tiny).log_().mul_(times).sum()
    of_scores = right.sub_(1).mul_(times)
    of_scores[..., n_true:].neg_()
    return loss, of_scores @ others, of_scores.transpose(1, 2) @ vectors


def _around(numbers: Tensor, window: int, size: int, fill: int) -> Tensor:
    """[R, B, C]: the numbers of each block and of its neighbors, `window` on either side."""
    return F.pad(numbers, (window, window), value=fill).unfold(1, size + 2 * window, size)

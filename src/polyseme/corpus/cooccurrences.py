"""Co-occurrences: how often two words of a corpus are near each other, weighted by one over their distance (GloVe).

They are counted once, in one pass over the training text in bounded memory, and kept in the corpus's folder as flat
files, in random order: the two words of each pair that occurs, the smaller number first, and its weight. Words that are
special pieces are left out before distances are counted, and no pair reaches over the end of a document. One pair in a
hundred is held out.

Shapes: R rows, T pairs of a row.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import Ints, Layout, RowOptions, RowSource
from polyseme.corpus.random_keys import row_keys
from polyseme.corpus.shards import Shard
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.atomic import whole_folder
from polyseme.files.checksums import checksums_in, first_damaged
from polyseme.json_reading import load_json
from polyseme.types import Rows

FOLDER = "cooccurrences"
CHECKSUMS = "checksums.json"
HELD_OUT = 100
"""One pair in so many is held out."""
BLOCK = 1 << 18
"""Words whose pairs are counted together."""
PART = 1 << 24
"""Pairs, with repetitions, that are summed up together at most, about."""
FILES = {"first": "<u4", "second": "<u4", "weight": "<f4"}


@dataclass(frozen=True, kw_only=True)
class Cooccurrences(Layout):
    """Pairs of words with their weights, each pair once in an epoch."""

    window: int = 15
    """The largest distance of two words."""

    def check(self, options: RowOptions, objective: str) -> None:
        super().check(options, objective)
        if options.sentence_starts:
            raise OptionError(f"The objective {objective!r} reads pairs of words, which begin no sentence.")

    def rows(self, corpus: Corpus, options: RowOptions) -> PairRows:
        return PairRows(corpus, options, pairs_of(corpus, self.window))


@dataclass(frozen=True)
class Pairs:
    """The pairs of a corpus, mapped into memory."""

    first: NDArray[Any]
    second: NDArray[Any]
    weight: NDArray[Any]

    def __len__(self) -> int:
        return len(self.first)

    def n_of(self, split: str) -> int:
        """Pairs that are trained on, or held out."""
        n_held = len(self) // HELD_OUT
        return n_held if split == "held" else len(self) - n_held

    def places(self, split: str, numbers: Ints) -> Ints:
        """Where the pairs of a split are, by their numbers in it."""
        if split == "held":
            return numbers * HELD_OUT + HELD_OUT - 1
        return numbers + numbers // (HELD_OUT - 1)


class PairRows(RowSource):
    """Rows of `length` pairs, one word of each here and the other in the target, with their weights."""

    def __init__(self, corpus: Corpus, options: RowOptions, pairs: Pairs) -> None:
        super().__init__(corpus, options)
        self.pairs = pairs

    @property
    def n_rows(self) -> int:
        return self.pairs.n_of(self.split) // self.length

    def rows(self, indices: Ints) -> Rows:
        epochs, places, order = self.placed(np.asarray(indices, np.int64), 0)
        at = self.pairs.places(self.split, order[:, None] * self.length + np.arange(self.length))
        keys, plain = row_keys(self.seed, epochs, places), np.zeros(at.shape, np.bool_)
        first, second = (
            Rows(pieces=each[at].astype(np.int64), starts=~plain, special=plain, keys=keys)
            for each in (self.pairs.first, self.pairs.second)
        )
        return Rows(
            pieces=first.pieces,
            starts=first.starts,
            special=plain,
            keys=keys,
            weights=self.pairs.weight[at].astype(np.float64),
            target=second,
        )


def pairs_of(corpus: Corpus, window: int) -> Pairs:
    """The pairs of a corpus: those that were counted before, or counted now."""
    folder = corpus.folder / FOLDER / f"window-{window}"
    damaged = _damaged(folder) if folder.is_dir() else None
    if damaged is not None:
        warnings.warn(
            f"The co-occurrences in {folder} are damaged ({damaged}) and are counted again.",
            PolysemeWarning,
            stacklevel=2,
        )
    if damaged is not None or not folder.is_dir():
        (corpus.folder / FOLDER).mkdir(exist_ok=True)
        with whole_folder(folder, force=True) as new:
            _count(corpus, window, new)
            (new / CHECKSUMS).write_text(json.dumps(checksums_in(new)) + "\n", encoding="utf-8")
    n_pairs = (folder / "first").stat().st_size // 4
    if not n_pairs:
        raise InputError(f"No two words of the corpus {corpus.folder} are near each other. Give more text.")
    return Pairs(**{name: np.memmap(folder / name, dtype=kind, mode="r") for name, kind in FILES.items()})


def _damaged(folder: Path) -> str | None:
    """What is wrong with the files of a folder; None if nothing is known to be."""
    path = folder / CHECKSUMS
    try:
        name = first_damaged(folder, load_json(path, kind=dict) if path.exists() else None)
    except (OSError, ValueError, TypeError):
        return f"{CHECKSUMS} cannot be read"
    return None if name is None else f"{name} is not as it was written"


def _count(corpus: Corpus, window: int, folder: Path) -> None:
    """Count in parts by the remainder of a pair's number, and write the sums of each part in random order."""
    n_pieces = corpus.tokenizer.n_pieces
    n_parts = max(1, -(-corpus.n_pieces("train") * window // PART))
    with tempfile.TemporaryDirectory(prefix="parts-", dir=folder.parent) as place:
        parts = [Path(place, str(number)) for number in range(n_parts)]
        for source, shard in zip(corpus.sources, corpus.shards("train"), strict=True):
            for keys, weights in _summed_blocks(corpus, shard, window):
                part_of = keys % n_parts
                for number, path in enumerate(parts):
                    these = part_of == number
                    with path.open("ab") as file:
                        file.write(_records(keys[these], weights[these] * source.weight).tobytes())
        files = {name: (folder / name).open("wb") for name in FILES}
        try:
            for number, path in enumerate(parts):
                records = np.fromfile(path, _RECORD) if path.exists() else np.zeros(0, _RECORD)
                keys, weights = _sums(records["key"], records["weight"])
                order = np.random.default_rng([n_parts, number]).permutation(len(keys))
                firsts, seconds = np.divmod(keys[order], n_pieces)
                for name, column in (("first", firsts), ("second", seconds), ("weight", weights[order])):
                    files[name].write(column.astype(FILES[name]).tobytes())
        finally:
            for file in files.values():
                file.close()


_RECORD = np.dtype([("key", "<i8"), ("weight", "<f8")])


def _records(keys: Ints, weights: NDArray[np.float64]) -> NDArray[Any]:
    records = np.empty(len(keys), _RECORD)
    records["key"], records["weight"] = keys, weights
    return records


def _summed_blocks(corpus: Corpus, shard: Shard, window: int) -> Iterator[tuple[Ints, NDArray[np.float64]]]:
    """Of each block of a shard, the pairs whose second word is in it, as first · pieces + second, and their weights."""
    special = np.zeros(corpus.tokenizer.n_pieces, np.bool_)
    special[sorted(set(corpus.tokenizer.specials.values()))] = True
    words, documents, before = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
    for start in range(0, len(shard), BLOCK):
        pieces = np.asarray(shard.pieces[start : start + BLOCK], np.int64)
        numbers = np.searchsorted(shard.ends, np.arange(start, start + len(pieces)), side="right")
        ordinary = ~special[pieces]
        words = np.concatenate([words[len(words) - before :], pieces[ordinary]])
        documents = np.concatenate([documents[len(documents) - before :], numbers[ordinary]])
        yield _pairs_of_block(words, documents, before, window, corpus.tokenizer.n_pieces)
        before = min(window, len(words))


def _pairs_of_block(
    words: Ints, documents: Ints, before: int, window: int, n_pieces: int
) -> tuple[Ints, NDArray[np.float64]]:
    """The first `before` words are of the block before, and are no second words here."""
    keys, weights = [], []
    for distance in range(1, min(window, len(words) - 1) + 1):
        near = documents[distance:] == documents[:-distance]
        near[: max(before - distance, 0)] = False
        one, other = words[:-distance][near], words[distance:][near]
        keys.append(np.minimum(one, other) * n_pieces + np.maximum(one, other))
        # Both orders of a pair of two words have this weight; the one order of a word with itself has it twice.
        weights.append(np.where(one == other, 2.0, 1.0) / distance)
    if not keys:
        return np.zeros(0, np.int64), np.zeros(0)
    return _sums(np.concatenate(keys), np.concatenate(weights))


def _sums(keys: Ints, weights: NDArray[np.float64]) -> tuple[Ints, NDArray[np.float64]]:
    """Every key once, and the sum of its weights."""
    unique, places = np.unique(keys, return_inverse=True)
    return unique, np.bincount(places, weights, minlength=len(unique)).astype(np.float64)

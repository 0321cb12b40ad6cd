"""A corpus: raw text as pieces, in a folder, ready for training.

| in the folder | |
|---|---|
| corpus.json | what it was made from and how, counts, checksums, and what there is to know about it |
| tokenizer/ | the tokenizer, as a model's folder has it |
| shards/ | the pieces (`shards`), one folder per source |
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.shards import SHARDS, SIDE, SPLITS, Counts, Shard, dtype_for
from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.atomic import AnyPath
from polyseme.files.checksums import state_unchecked
from polyseme.json_reading import load_json
from polyseme.text.framing import Frame
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.text.tokenizer_files import load_tokenizer

ABOUT = "corpus.json"
TOKENIZER = "tokenizer"
FORMAT = 1
"""Of the files; a corpus of another one has to be rebuilt."""


@dataclass(frozen=True, kw_only=True)
class CorpusSource:
    """One source of a corpus."""

    name: str
    weight: float
    """How often its rows come in an epoch."""
    files: Sequence[str]
    """As they were named."""
    counts: Mapping[str, Mapping[str, Counts]]
    """By side and split."""


class Corpus:
    """A corpus that was built (`build_corpus`) and is read; see `open`."""

    def __init__(self, folder: Path, record: Mapping[str, Any], tokenizer: PieceTokenizer) -> None:
        self.folder = folder
        self.record = record
        """The content of `corpus.json`."""
        self.tokenizer = tokenizer
        self.sides: tuple[str, ...] = tuple(record["sides"])
        """`text`, or `source` and `target` of pairs."""
        self.sources: tuple[CorpusSource, ...] = tuple(
            CorpusSource(
                name=source["name"],
                weight=source["weight"],
                files=tuple(source["files"]),
                counts={
                    side: {split: Counts(**_of_side(source, side, split)["counts"]) for split in SPLITS}
                    for side in self.sides
                },
            )
            for source in record["sources"]
        )
        dtype = dtype_for(tokenizer.n_pieces)
        self._shards = {
            (side, split): [
                Shard(folder, source.name, split, source.counts[side][split], dtype, side, checksums)
                for source, entry in zip(self.sources, record["sources"], strict=True)
                for checksums in [_of_side(entry, side, split).get("checksums")]
            ]
            for side in self.sides
            for split in SPLITS
        }

    def __repr__(self) -> str:
        return f"<Corpus {self.folder}: {self.n_documents('train'):,} documents, {self.n_pieces('train'):,} pieces>"

    @classmethod
    def open(cls, folder: AnyPath, *, tokenizer: PieceTokenizer | None = None) -> Corpus:
        """The corpus in a folder. That its files are there and of the right size is checked now, the checksum of each
        when it is first used; `check` reads all.

        `tokenizer` is the one in its folder, if it has been loaded already.
        """
        place = Path(folder)
        record = _read_record(place)
        try:
            if tokenizer is None:
                frame = Frame.from_json(record["tokenizer"]["frame"])
                tokenizer = load_tokenizer(place / TOKENIZER, frame=frame)
            if tokenizer.fingerprint != record["tokenizer"]["fingerprint"]:
                raise InputError(
                    f"The corpus {place} was made with another tokenizer than the one in its folder {TOKENIZER}/: the "
                    "pieces would be read as other text. Put back the tokenizer it was made with, or rebuild it."
                )
            if fingerprint_of(record) != record["fingerprint"]:
                raise ValueError("its counts and checksums are not those that its fingerprint was taken of")
            corpus = cls(place, record, tokenizer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(place / ABOUT, error) from None
        if not all(shard.has_checksums for shards in corpus._shards.values() for shard in shards):
            state_unchecked(place)
        return corpus

    def check(self) -> None:
        """Read all shards and refuse a corpus that is not as it was built."""
        for shard in itertools.chain.from_iterable(self._shards.values()):
            shard.check()

    @property
    def fingerprint(self) -> str:
        """Equal for corpora with the same pieces of the same tokenizer, in the same order and with equal weights."""
        return str(self.record["fingerprint"])

    @property
    def separator(self) -> int | None:
        """The piece after each document; None if the tokenizer has none for that."""
        return separator_of(self.tokenizer)

    @property
    def notes(self) -> Sequence[str]:
        """What was unusual in building it, in words."""
        return tuple(self.record["notes"])

    @property
    def bytes(self) -> int:
        """Of text, in UTF-8, over all splits."""
        return sum(self.counts(split).bytes for split in SPLITS)

    def counts(self, split: str = "train", side: str | None = None) -> Counts:
        """How much there is in a split, over all sources and sides, or of one side; weights do not enter.

        Documents of two sides count once.
        """
        sides = self.sides if side is None else (side,)
        total = sum((shard.counts for each in sides for shard in self.shards(split, each)), start=Counts())
        return dataclasses.replace(total, documents=total.documents // len(sides))

    def n_pieces(self, split: str = "train") -> int:
        """Separators included."""
        return self.counts(split).pieces

    @property
    def words_per_piece(self) -> float:
        """Of the training text, as often as its sources are read."""
        counts = [(source.weight, source.counts[side]["train"]) for source in self.sources for side in self.sides]
        n_words = sum(weight * each.words for weight, each in counts)
        return n_words / max(sum(weight * each.pieces for weight, each in counts), 1e-9)

    def n_documents(self, split: str = "train") -> int:
        return self.counts(split).documents

    def shards(self, split: str = "train", side: str | None = None) -> list[Shard]:
        """The shards of a split and a side, a source each, in the order of the sources; of pairs, a side must be named.

        Objectives that read plain text are refused pairs, and the other way round, before this is called.
        """
        if split not in SPLITS:
            raise OptionError(f"A corpus has no split {split!r}. {nearest(split, SPLITS)}")
        name = SIDE if side is None else side
        if name not in self.sides:
            content = "plain text" if self.sides == (SIDE,) else "texts in pairs"
            raise OptionError(
                f"The corpus {self.folder} is of {content}, and has no side {name!r}. It has: {', '.join(self.sides)}."
            )
        return self._shards[name, split]

    def unigram_entropy(self, split: str = "train", side: str | None = None) -> float:
        """How many nats a piece takes if one knows how frequent each is and nothing else; separators do not count.

        A model whose loss is not below that has learned nothing from context. Of pairs, the pieces of one side, by
        default those of the target.
        """
        counts = self.piece_counts(split, side)
        shares = counts[counts > 0] / max(counts.sum(), 1)
        return float(-(shares * np.log(shares)).sum())

    def piece_counts(
        self, split: str = "train", side: str | None = None, *, most: int | None = None
    ) -> NDArray[np.int64]:
        """How often each piece occurs, separators left out; of pairs, on one side, by default that of the target.

        Of more pieces than `most`, only a part is counted, from all over the text.
        """
        counts = np.zeros(self.tokenizer.n_pieces, np.int64)
        shards = self.shards(split, self.sides[-1] if side is None else side)
        n_pieces = sum(len(shard) for shard in shards)
        every = 1 if most is None else max(1, round(n_pieces / most))
        for pieces in itertools.islice((each for shard in shards for each in shard.numbers()), 0, None, every):
            counts += np.bincount(pieces, minlength=len(counts))
        if self.separator is not None:
            counts[self.separator] = 0
        return counts


def unigram_cross_entropy(train: NDArray[np.int64], held: NDArray[np.int64]) -> float:
    """How many nats a piece of held-out text takes if one knows how often each occurs in other text, from the counts of
    both; every piece is taken to occur half a time more, so that none is impossible.

    >>> round(unigram_cross_entropy(np.array([7, 1]), np.array([1, 1])), 3)
    0.987
    """
    shares = (train + 0.5) / (train + 0.5).sum()
    return float(-(held / max(held.sum(), 1) * np.log(shares)).sum())


def _of_side(source: Mapping[str, Any], side: str, split: str) -> Mapping[str, Any]:
    """The entry of a source's split in `corpus.json`; of pairs, there is one per side."""
    entry: Mapping[str, Any] = source["splits"][split]
    return entry if side == SIDE else entry[side]


def separator_of(tokenizer: PieceTokenizer) -> int | None:
    """The piece that ends a document: the special one with the role `end`, where there is one."""
    return tokenizer.specials.get("end")


def fingerprint_of(record: Mapping[str, Any]) -> str:
    """A digest of all that decides the rows of a corpus."""
    content = {
        "tokenizer": record["tokenizer"]["fingerprint"],
        "sources": [[source["weight"], source["splits"]] for source in record["sources"]],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _read_record(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    if not path.is_file():
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        if unfinished.is_dir():
            advice = f"{unfinished} is an unfinished one: the command that was building it resumes there."
        else:
            advice = "Build one from text: polyseme corpus TEXTS -o FOLDER"
        raise InputError(f"{folder} is no corpus: there is no {ABOUT} in it. {advice}")
    try:
        record: dict[str, Any] = load_json(path, kind=dict)
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None
    if record.get("format") != FORMAT:
        raise InputError(
            f"{path} is not of this version of polyseme, which reads format {FORMAT} of corpora with their {SHARDS}/. "
            "Rebuild the corpus."
        )
    return record


def _damaged(path: Path, error: Exception) -> InputError:
    reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
    return InputError(f"{path} is damaged ({reason}). Copy the corpus again, or rebuild it.")

"""Small corpora of made-up text, built once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus.texts import made_up
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import RowOptions
from polyseme.corpus.packed_rows import Packed, PackedRows
from polyseme.corpus.parallel_text import ParallelPairs, ParallelRows
from polyseme.corpus.sentence_pair_rows import SentencePairRows, SentencePairs
from polyseme.corpus.stream_rows import StreamRows, Streams
from polyseme.verbs.corpus import build_corpus


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 120 documents, some 100,000 bytes."""
    path = tmp_path_factory.mktemp("text") / "made.txt"
    path.write_text("\n\n".join(made_up(120, seed=1)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def corpus(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """WordPiece, framed as BERT's."""
    return build_corpus(text, output=tmp_path_factory.mktemp("corpus") / "c", vocab_size=300, held_out=0.1)


@pytest.fixture(scope="session")
def unframed(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """GPT's tokenizer: no frame, no separators."""
    return build_corpus(
        text, output=tmp_path_factory.mktemp("corpus") / "c", tokenizer="bpe", vocab_size=300, held_out=0.1
    )


@pytest.fixture(scope="session")
def bare_corpus(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """GPT-2's tokenizer: no frame, but a piece for starts and ends."""
    place = tmp_path_factory.mktemp("corpus") / "c"
    return build_corpus(text, output=place, tokenizer="byte-bpe", frame="gpt2", vocab_size=400, held_out=0.1)


@pytest.fixture(scope="session")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Two sources, of the weights 2.5 and 0.5."""
    folder = tmp_path_factory.mktemp("weighted")
    for name, seed in (("much", 2), ("little", 3)):
        (folder / f"{name}.txt").write_text("\n\n".join(made_up(60, seed=seed)), encoding="utf-8")
    sources = {"much": (folder / "much.txt", 2.5), "little": (folder / "little.txt", 0.5)}
    return build_corpus(sources, output=folder / "c", vocab_size=300, held_out=0.1)  # type: ignore[arg-type]


def packed_rows(
    corpus: Corpus, split: str = "train", *, same_cuts: bool = False, sentences: bool = False, **options: Any
) -> PackedRows:
    return Packed(same_cuts=same_cuts, sentences=sentences).rows(corpus, RowOptions(split=split, **options))


def stream_rows(
    corpus: Corpus,
    n: int,
    split: str = "train",
    *,
    ahead: int = 0,
    back: bool = False,
    backwards: bool = False,
    **options: Any,
) -> StreamRows:
    """Exactly `n` streams, also of held-out text."""
    layout = Streams(ahead=ahead, both_ways=back, backwards=backwards)
    return StreamRows(corpus, RowOptions(split=split, batch_size=n, **options), layout)


def parallel_rows(corpus: Corpus, split: str = "train", **options: Any) -> ParallelRows:
    return ParallelPairs().rows(corpus, RowOptions(split=split, **options))


def sentence_pair_rows(
    corpus: Corpus, split: str = "train", *, same_cuts: bool = False, **options: Any
) -> SentencePairRows:
    return SentencePairs(same_cuts=same_cuts).rows(corpus, RowOptions(split=split, **options))


def stream(corpus: Corpus, source: int = 0, split: str = "train") -> np.ndarray:
    return np.asarray(corpus.shards(split)[source].pieces).astype(np.int64)

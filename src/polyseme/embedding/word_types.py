"""One vector per word type: the mean of its uses in some texts, in word2vec's formats.

Uses are summed up chunk by chunk, in double precision, and the work is resumed as that of `embed` is
(`files.chunked_job`): of a chunk, the sums are stored. Memory grows with the number of different words, not with
the length of the texts.
"""

from __future__ import annotations

import contextlib
import re
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.cost import Cost
from polyseme.embedding.flow import Embedder, warn_unread
from polyseme.embedding.row_documents import encoded_rows
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.atomic import AnyPath, whole_file
from polyseme.files.chunk_spool import Storage
from polyseme.files.chunked_job import run_job
from polyseme.files.chunks import Chunk, Job, by_characters
from polyseme.files.rows import Row, read_rows
from polyseme.files.source_paths import Sources
from polyseme.files.vectors_word2vec import write_word2vec
from polyseme.text.sentences import split_sentences
from polyseme.types import Document, EmbeddedDocument, OnBatch, Pieces, Progress

BLANK = "words with blanks"
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True)
class TypeSums:
    """Word types, how often each was met, and the sum of its vectors."""

    words: list[str]
    counts: NDArray[np.int64]
    """[n]"""
    sums: NDArray[np.float64]
    """[n, D]"""


@dataclass(frozen=True, kw_only=True)
class TypesRequest:
    """Which types get a vector, and where the vectors go."""

    output: AnyPath
    min_count: int = 5
    """How often a word must occur."""
    lowercase: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        if self.min_count < 1:
            raise OptionError(f"A word with a vector occurs at least once. Got min_count {self.min_count} instead.")

    def type_of(self, word: str) -> str:
        """The type of a word: itself, with blanks written as underscores, since the formats have no blanks in words."""
        return _BLANKS.sub("_", word.lower() if self.lowercase else str(word))


def embed_types(
    embedder: Embedder,
    sources: Sources,
    request: TypesRequest,
    *,
    reading: Mapping[str, Any] | None = None,
    settings: Callable[[], Mapping[str, Any]] = dict,
    progress: Progress | None = None,
    started: float | None = None,
) -> Cost:
    """Write the mean vector of every word type of some files; what it cost, since it was `started`, is returned.

    `settings` gives all that decides the result; it is called only if the input is long enough to be resumed.
    """
    started = time.perf_counter() if started is None else started
    if len(embedder.shape) > 1:
        raise OptionError("Layer 'all' gives a word several vectors, and word2vec has one. Use concat:0:-1.")

    def prepare(rows: Sequence[Row]) -> list[tuple[Document, Pieces]]:
        return encoded_rows(rows, embedder.tokenizer)

    def compute(chunk: Chunk[tuple[Document, Pieces]], on_batch: OnBatch) -> list[TypeSums]:
        documents, encoded = [document for document, _ in chunk.units], [pieces for _, pieces in chunk.units]
        n_blank = sum(_BLANKS.search(word) is not None for document in documents for word in document.words)
        embedder.tally.sums[BLANK] = embedder.tally.sums.get(BLANK, 0) + n_blank
        return [sum_types(embedder.embed(documents, encoded, on_batch), request.type_of)]

    @contextlib.contextmanager
    def open_output(path: AnyPath, force: bool, from_storage: bool) -> Iterator[TypeMeans]:
        with whole_file(path, force=force) as file:
            means = TypeMeans(embedder.shape[0])
            yield means
            words, vectors = means.result(request.min_count)
            write_word2vec(file, words, vectors, shown=request.output)

    job = Job(
        noun="texts",
        ends_chunk=by_characters(),
        prepare=prepare,
        compute=compute,
        tally=embedder.tally,
        open_output=open_output,
        storage=_SumsOfChunks(),
        settings=settings,
        before_first=embedder.inference.prepare,
    )
    with read_rows(sources, **(reading or {}), sentences=split_sentences) as rows:
        run_job(job, rows, request.output, force=request.force, progress=progress)
    warn_unread(embedder.tally)
    if embedder.tally.sums[BLANK]:
        warnings.warn(
            f"{int(embedder.tally.sums[BLANK]):,} uses are of words with blanks in them, which are written as _.",
            PolysemeWarning,
            stacklevel=3,
        )
    return embedder.tally.cost(time.perf_counter() - started, embedder.device)


def sum_types(documents: Sequence[EmbeddedDocument], type_of: Callable[[str], str]) -> TypeSums:
    """The types of some documents, in the order in which they are met, with the sums of their uses."""
    numbers: dict[str, int] = {}
    owner = np.array(
        [numbers.setdefault(type_of(word), len(numbers)) for document in documents for word in document.words],
        dtype=np.int64,
    )
    counts = np.bincount(owner, minlength=len(numbers))
    if not len(owner):
        return TypeSums([], counts, np.zeros((0, 0)))
    vectors = np.concatenate([document.vectors for document in documents if len(document.words)])
    order = np.argsort(owner, kind="stable")
    starts = np.cumsum(counts) - counts
    return TypeSums(list(numbers), counts, np.add.reduceat(vectors[order].astype(np.float64), starts))


class TypeMeans:
    """Adds up the types of chunk after chunk (`chunks.Writer`)."""

    def __init__(self, width: int) -> None:
        self._numbers: dict[str, int] = {}
        self._counts = np.zeros(0, dtype=np.int64)
        self._sums = np.zeros((0, width))

    def write(self, results: Sequence[TypeSums], /) -> None:
        """Count in the sums of some chunks."""
        for chunk in results:
            if not chunk.words:
                continue
            numbers = self._numbers
            places = np.array([numbers.setdefault(word, len(numbers)) for word in chunk.words])
            self._make_room(len(numbers))
            self._counts[places] += chunk.counts
            self._sums[places] += chunk.sums

    def result(self, min_count: int) -> tuple[list[str], NDArray[np.float32]]:
        """The words that occur so often, the most frequent first, and their means [n, D]."""
        counts = self._counts.tolist()
        frequent = [
            (-counts[number], word, number) for word, number in self._numbers.items() if counts[number] >= min_count
        ]
        if not frequent:
            raise InputError(
                f"No word of the input occurs {min_count:,} times: of {len(self._numbers):,} different words the most "
                f"frequent occurs {max(counts[: len(self._numbers)], default=0):,} times. Give more text, or a smaller "
                "min_count (--min-count)."
            )
        frequent.sort()
        numbers = np.array([number for _, _, number in frequent])
        means = self._sums[numbers] / self._counts[numbers][:, None]
        return [word for _, word, _ in frequent], means.astype(np.float32)

    def _make_room(self, n_types: int) -> None:
        if n_types > len(self._counts):
            more = max(n_types, 2 * len(self._counts)) - len(self._counts)
            self._counts = np.concatenate([self._counts, np.zeros(more, dtype=np.int64)])
            self._sums = np.concatenate([self._sums, np.zeros((more, self._sums.shape[1]))])


class _SumsOfChunks(Storage[TypeSums]):
    """The sums of a chunk, as .npz."""

    suffix = ".npz"

    def save(self, path: Path, results: Sequence[TypeSums]) -> dict[str, Any]:
        [chunk] = results
        words = np.frombuffer("\n".join(chunk.words).encode(), dtype=np.uint8)
        with whole_file(path, force=True) as file:
            np.savez(file, words=words, counts=chunk.counts, sums=chunk.sums)
        return {}

    def load(self, path: Path) -> Iterator[TypeSums]:
        try:
            with np.load(path) as arrays:
                words = arrays["words"].tobytes().decode()
                yield TypeSums(words.split("\n") if words else [], arrays["counts"], arrays["sums"])
        except (OSError, KeyError, EOFError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(f"{path} cannot be read: {error}.") from None

    def expect(self, noted: Mapping[str, Any]) -> None:
        """Nothing depends on the first chunk."""

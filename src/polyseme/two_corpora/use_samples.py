"""Uses of words in two corpora with their vectors: of every word at most so many from each corpus, drawn at random.

Each corpus is read twice: to count its words, and to embed the texts with the uses that were drawn. Vectors and texts
are in files, so that memory does not grow with the corpora.
"""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from polyseme.embedding.flow import Embedder, warn_unread
from polyseme.embedding.row_documents import document_of
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.atomic import explained
from polyseme.files.in_memory import inputs_of
from polyseme.files.reading_options import TextOptions
from polyseme.files.rows import Row, read_rows
from polyseme.files.source import Reading, source_name
from polyseme.files.source_paths import Sources
from polyseme.plots.word_uses import Use
from polyseme.text.sentences import split_sentences
from polyseme.text.word_forms import close_forms, form, times
from polyseme.types import Document, Progress
from polyseme.verb_options.word_options import CompareOptions
from polyseme.word_senses.gather_uses import UsesChunk, gather
from polyseme.word_senses.nearest_neighbors import Floats, unit

UNITS = (None, "texts", "blocks")
"""What is exchanged, unless a field says which texts belong together; None: blocks, if there are empty texts."""
CONTEXT = 400
"""Characters on each side of a use that are kept of its text."""

_SCHEMA = pa.schema(
    [
        ("id", pa.large_string()),
        ("text", pa.large_string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("word", pa.int32()),
        ("corpus", pa.int8()),
        ("group", pa.int64()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """One of the two corpora: where it is, how it is read, and how often its words occur."""

    source: Sources
    reading: Mapping[str, Any]
    name: str
    counts: Counter[str]
    """By form."""
    has_empty_texts: bool
    n_bytes: int


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Uses of words in two corpora, both together."""

    words: Sequence[str]
    table: pa.Table
    vectors: Floats
    """[uses, D]"""
    rows: Sequence[NDArray[np.int64]]
    """Of each word."""
    others: NDArray[np.int64]
    """Uses of other words, one of each text, if they were requested."""

    def column(self, name: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """A column of numbers: corpus, group, word."""
        values: NDArray[np.int64] = self.table.column(name).to_numpy()[rows].astype(np.int64)
        return values

    def uses(self, rows: NDArray[np.int64]) -> list[tuple[str, Use]]:
        """Uses with the ids of their texts."""
        taken = self.table.select(["id", "text", "start", "end"]).take(rows).to_pylist()
        return [(each["id"], Use(each["text"], each["start"], each["end"])) for each in taken]


def read_corpus(source: Sources, reading: Mapping[str, Any], word: str | None = None) -> Corpus:
    """Count the words of a corpus, or only those of texts that may have a certain word."""
    counts: Counter[str] = Counter()
    has_empty_texts = False
    with read_rows(source, **reading, sentences=split_sentences) as rows:
        name, n_bytes = source_name(rows), rows.total
        if n_bytes is None:
            raise InputError(
                f"The corpora are read twice, and {name} can be read only once. Save it to a file, and name the file."
            )
        for row in rows if word is None else _filter_rows(rows, word):
            document = document_of(row)
            has_empty_texts = has_empty_texts or not document.words
            counts.update(document.words)
    forms: Counter[str] = Counter()
    for each, count in counts.items():
        forms[form(each)] += count
    return Corpus(
        source=source, reading=reading, name=name, counts=forms, has_empty_texts=has_empty_texts, n_bytes=n_bytes
    )


def read_corpora(sources: Sequence[Sources], options: CompareOptions, word: str | None = None) -> list[Corpus]:
    """Count the words of two corpora; those with one name are numbered."""
    reading, group_by = options.changed(TextOptions), options.group_by
    if group_by not in UNITS:
        reading = {**reading, "fields": (group_by,)}
    try:
        corpora = [read_corpus(inputs_of(source), reading, word) for source in sources]
    except OptionError as error:
        if group_by in UNITS:
            raise
        raise OptionError(
            f"The test exchanges texts, blocks, or texts with one value of a field, and {group_by!r} is taken as the "
            f"name of a field. {error}"
        ) from None
    if corpora[0].name != corpora[1].name:
        return corpora
    return [replace(corpus, name=f"{corpus.name} ({number})") for number, corpus in enumerate(corpora, start=1)]


def refuse_missing(word: str, corpora: Sequence[Corpus]) -> NoReturn:
    """Refuse a word that does not occur in both corpora."""
    counts = [corpus.counts[form(word)] for corpus in corpora]
    missing = corpora[counts.index(0)]
    close = close_forms(word, missing.counts, f"In {missing.name} there")
    elsewhere = " and ".join(f"{times(count)} in {corpus.name}" for corpus, count in zip(corpora, counts, strict=True))
    raise InputError(
        f"The word {word!r} occurs {elsewhere}: there is nothing to compare.{close} Words are found by their form, "
        "whatever their case: name the form that both corpora have."
    )


def frequent_words(corpora: Sequence[Corpus], *, min_uses: int, max_words: int) -> tuple[list[str], int]:
    """The words with a letter and `min_uses` in each corpus, the most frequent first, and how many there are in all.

    A word is as frequent as in the corpus where it is rarer.
    """
    first, second = (corpus.counts for corpus in corpora)
    least = {word: min(count, second[word]) for word, count in first.items() if word in second}
    frequent = [word for word, count in least.items() if count >= min_uses and any(map(str.isalpha, word))]
    frequent.sort(key=lambda word: (-least[word], word))
    return frequent[:max_words], len(frequent)


@contextmanager
def sampled_uses(
    corpora: Sequence[Corpus],
    words: Sequence[str],
    embedder: Embedder,
    *,
    max_uses: int,
    group_by: str | None,
    rng: np.random.Generator,
    with_others: bool = False,
    progress: Progress | None = None,
) -> Iterator[Samples]:
    """At most `max_uses` uses of each word (by form) from each corpus, with vectors, in files until the end.

    `with_others` also draws another word of each text with such a use.
    """
    with tempfile.TemporaryDirectory(prefix="polyseme-compare-") as folder, explained(folder):
        table_path, vectors_path = Path(folder) / "uses.arrow", Path(folder) / "vectors.f32"
        total = sum(corpus.n_bytes for corpus in corpora)
        done = 0
        with pa.ipc.new_file(str(table_path), _SCHEMA) as table, vectors_path.open("wb") as spool:
            for number, corpus in enumerate(corpora):
                draw = _Draw(words, corpus, max_uses, group_by, rng, with_others=with_others)
                for chunk in _chunks(corpus, embedder, draw, group_by, _shift_progress(progress, done, total)):
                    table.write_table(_uses(chunk, draw, number))
                    spool.write(_check_finite(chunk.vectors[0]).tobytes())
                draw.check(corpus)
                done += corpus.n_bytes
        warn_unread(embedder.tally)
        loaded = pa.ipc.open_file(pa.memory_map(str(table_path))).read_all()
        width = embedder.choice.width(embedder.config)
        vectors = np.memmap(vectors_path, dtype=np.float32, mode="r", shape=(loaded.num_rows, width))
        word_of_use = loaded.column("word").to_numpy()
        order = np.argsort(word_of_use, kind="stable")
        *rows, others = np.split(order, np.searchsorted(word_of_use[order], np.arange(1, len(words) + 1)))
        yield Samples(words=words, table=loaded, vectors=vectors, rows=rows, others=others)


def _chunks(
    corpus: Corpus, embedder: Embedder, draw: _Draw, group_by: str | None, progress: Progress | None
) -> Iterator[UsesChunk]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)  # files that are left out were reported at the first reading
        opened = read_rows(corpus.source, **corpus.reading, sentences=split_sentences)
    with opened as rows:
        sieved = rows
        if len(draw.words) == 1 and group_by in UNITS:
            sieved = Reading(rows, _filter_rows(rows, draw.words[0]))
        yield from gather(sieved, [embedder], draw, progress)


def _filter_rows(rows: Iterable[Row], word: str) -> Iterator[Row]:
    """Texts that may have a word, without splitting them into words, and empty ones, which end groups of texts."""
    sought = form(word)
    for row in rows:
        text = row.content if isinstance(row.content, str) else " ".join(row.content)
        if sought in form(text) or not text.strip():
            yield row


class _Draw:
    """Which uses of a corpus are drawn: called with one document after another, it returns places in it."""

    def __init__(
        self, words: Sequence[str], corpus: Corpus, max_uses: int, group_by: str | None, rng: np.random.Generator,
        *, with_others: bool,
    ) -> None:  # fmt: skip
        self.words = words
        self._number_of = {word: number for number, word in enumerate(words)}
        self._with_others = with_others
        self.groups: list[int] = []
        """Of the documents with uses that were drawn, until they are read."""
        self._n_seen = dict.fromkeys(words, 0)
        self._drawn = {word: _places(corpus.counts[word], max_uses, rng) for word in words}
        self._by_field = None if group_by in UNITS else group_by
        self._by_blocks = group_by == "blocks" or (group_by is None and corpus.has_empty_texts)
        self._group = 0
        self._group_of_value: dict[str, int] = {}
        self._forms: dict[str, str] = {}

    def __call__(self, document: Document) -> list[int]:
        self._enter(document)
        places, others = [], []
        for place, word in enumerate(document.words):
            each = self._forms.get(word) or self._forms.setdefault(str(word), form(word))
            if each not in self._n_seen:
                others.append(place)
                continue
            if self._n_seen[each] in self._drawn[each]:
                places.append(place)
            self._n_seen[each] += 1
        if places:
            self.groups.append(self._group)
            if self._with_others and others:
                places.append(others[len(document.text) % len(others)])
        return places

    def number_of(self, word: str) -> int:
        """The number of a word; that of other words comes after all of them."""
        return self._number_of.get(form(word), len(self._number_of))

    def _enter(self, document: Document) -> None:
        """Set the group of the document. One without a value in the field belongs to the group before it."""
        if self._by_field is not None:
            value = document.fields.get(self._by_field)
            if value is not None:
                self._group = self._group_of_value.setdefault(str(value), len(self._group_of_value) + 1)
        elif not self._by_blocks or not document.words:
            self._group += 1

    def check(self, corpus: Corpus) -> None:
        """Refuse a corpus that is no longer what it was when its words were counted."""
        if any(count != corpus.counts[word] for word, count in self._n_seen.items()):
            raise InputError(f"{corpus.name} has changed while it was read. Compare the corpora again.")


def _places(count: int, max_uses: int, rng: np.random.Generator) -> range | frozenset[int]:
    """Which uses of a word are drawn, of `count`, counted from 0."""
    if count <= max_uses:
        return range(count)
    return frozenset(rng.choice(count, size=max_uses, replace=False).tolist())


def _uses(chunk: UsesChunk, draw: _Draw, corpus: int) -> pa.Table:
    """The uses of a chunk as rows of the table; of a long text the part around the use is kept."""
    columns: dict[str, list[Any]] = {name: [] for name in _SCHEMA.names}
    groups, draw.groups = draw.groups, []
    for document, words, group in zip(chunk.documents, chunk.words, groups, strict=True):
        for word in words:
            cut = max(word.start - CONTEXT, 0)
            columns["id"].append(document.id)
            columns["text"].append(document.text[cut : word.end + CONTEXT])
            columns["start"].append(word.start - cut)
            columns["end"].append(word.end - cut)
            columns["word"].append(draw.number_of(word))
            columns["corpus"].append(corpus)
            columns["group"].append(2 * group + corpus)
    return pa.table(columns, schema=_SCHEMA)


def _check_finite(vectors: NDArray[Any]) -> Floats:
    """The vectors in float32; refused where they are not finite."""
    unit(vectors)
    return np.asarray(vectors, dtype=np.float32)


def _shift_progress(progress: Progress | None, done: int, total: int) -> Progress | None:
    """Progress over both corpora, from that over one of them."""
    if progress is None:
        return None
    return lambda more, _: progress(done + more, total)

"""Concordance lines sorted by the vectors of their matches: by similarity to a marked use, or by sense.

A match of several words has the mean of their vectors, and one that is a part of a word has that word's. As in
`similar`, vectors are compared without their mean if there are enough of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.embedding.flow import warn_unread
from polyseme.encoders.inference import Precision
from polyseme.files.reading_options import ReadingOptions
from polyseme.files.rows import Row
from polyseme.files.source import Reading, source_name
from polyseme.files.source_paths import Sources
from polyseme.keyword_in_context.keyword_lines import (
    Concordance,
    KeywordLine,
    line_of,
    opened_rows,
    refuse_no_match,
    reported,
)
from polyseme.keyword_in_context.matchers import MatchedText, matcher_of
from polyseme.text.marked_word import marked_use
from polyseme.types import Document
from polyseme.verb_options.word_options import ConcordanceOptions
from polyseme.word_senses.gather_uses import gather, use_embedder
from polyseme.word_senses.nearest_neighbors import Floats, cosines_to, unit
from polyseme.word_senses.sense_groups import check_n_senses, group
from polyseme.word_senses.similar_uses import MIN_CENTERED


def sorted_lines(
    bundle: Bundle, source: Sources, options: ConcordanceOptions, *, precision: Precision = "own"
) -> Concordance:
    """The matches of a query, sorted by their cosine to the use that is marked in `like`; without one, by sense."""
    started = time.perf_counter()
    query, match, reading = options.query, options.match, options.changed(ReadingOptions)
    embedder = use_embedder(bundle, options, precision=precision)
    marked = None if options.like is None else unit(embedder([marked_use(options.like)])[0].vectors[0])
    with (
        matcher_of(match, query, match_case=options.match_case) as matcher,
        opened_rows(source, reading, match) as rows,
    ):
        name = source_name(rows)
        collected = _Collected(options.width, reading)
        matches = matcher.search(reported(rows, options.progress))
        for chunk in gather(Reading(rows, collected.rows(matches)), [embedder], collected.places):
            collected.take(chunk.vectors[0])
    warn_unread(embedder.tally)
    if not collected.lines:
        refuse_no_match(query, source, name, match, reading)
    lines, vectors = _sample_lines(collected, options.sample, options.seed)
    explanation = ""
    if marked is not None:
        mean = vectors.mean(axis=0) if len(vectors) >= MIN_CENTERED else None
        cosines = cosines_to(vectors, marked, mean).tolist()
        order = np.argsort(-np.asarray(cosines), kind="stable").tolist()
        lines = [replace(lines[at], cosine=cosines[at]) for at in order]
    else:
        check_n_senses(options.n_senses, len(lines))
        grouped = group(vectors, options.n_senses, seed=options.seed)
        explanation = grouped.explanation
        senses = (grouped.labels + 1).tolist()
        lines = sorted(
            (replace(line, sense=sense) for line, sense in zip(lines, senses, strict=True)),
            key=lambda line: line.sense or 0,
        )
    return Concordance(
        query=query,
        match=match,
        source=name,
        sort="similarity" if marked is not None else "sense",
        width=options.width,
        lines=lines,
        n_matches=len(collected.lines),
        n_texts=collected.n_texts,
        explanation=explanation,
        cost=embedder.tally.cost(time.perf_counter() - started, embedder.device),
    )


class _Collected:
    """Matches and their vectors, as `gather` reads the texts with them."""

    def __init__(self, width: int, reading: Mapping[str, Any]) -> None:
        self.lines: list[KeywordLine] = []
        self.vectors: list[Floats] = []
        self.n_texts = 0
        self._width = width
        self._reading = reading
        self._ahead: deque[MatchedText] = deque()
        self._n_places: list[list[int]] = []
        """Of the texts whose vectors have not come, the places of each match among those of the text."""

    def rows(self, matches: Iterator[MatchedText]) -> Iterator[Row]:
        """The rows with matches, each remembered until its places are requested."""
        for matched in matches:
            self._ahead.append(matched)
            yield matched.row

    def places(self, document: Document) -> list[int]:
        """The words of a document that its matches touch, match by match."""
        matched = self._ahead.popleft()
        places: list[int] = []
        self.n_texts += 1
        for start, end in matched.spans:
            touched = [at for at, word in enumerate(document.words) if word.start < end and start < word.end]
            if not touched:
                continue
            self.lines.append(line_of(matched, start, end, self._width, self._reading))
            self._n_places.append(touched)
            places += touched
        return places

    def take(self, vectors: NDArray[Any]) -> None:
        """The vectors of all places since the last call."""
        ends = np.cumsum([len(touched) for touched in self._n_places])[:-1]
        self.vectors += [part.mean(axis=0) for part in np.split(np.asarray(vectors, dtype=np.float32), ends)]
        self._n_places = []


def _sample_lines(collected: _Collected, sample: int | None, seed: int) -> tuple[list[KeywordLine], Floats]:
    """The lines and their vectors at length 1, or a sample of them, in order."""
    vectors = unit(np.stack(collected.vectors))
    if sample is None or sample >= len(collected.lines):
        return collected.lines, vectors
    rows = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:sample])
    return [collected.lines[at] for at in rows.tolist()], vectors[rows]

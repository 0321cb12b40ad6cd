"""All uses of one word, with their vectors: of texts, of a file of vectors, or of an index."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyseme.embedding.flow import Embedder
from polyseme.errors import InputError
from polyseme.files.source_paths import Sources
from polyseme.plots.word_uses import Use
from polyseme.text.word_forms import form
from polyseme.types import Document, Progress
from polyseme.word_senses.build_index import AnyPath, opened_index
from polyseme.word_senses.gather_uses import Uses, opened_uses
from polyseme.word_senses.index import UseIndex, View
from polyseme.word_senses.nearest_neighbors import Floats, unit

N_OTHERS = 1000
"""Uses of other words that are taken from an index."""


@dataclass
class UsesOfWord:
    """The uses of a word, in the order of the texts."""

    name: str
    """Of the source."""
    view: View
    ids: list[str] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    fields: list[Mapping[str, Any]] = field(default_factory=list)
    vectors: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))
    """[uses, D], of length 1."""
    others: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))
    """[n, D]: of other words of the same texts."""
    background: Mapping[str, int] = field(default_factory=dict)
    """Forms of other words, with their frequencies in texts without the word (of an index, in all)."""

    def __len__(self) -> int:
        return len(self.uses)


def uses_of_word(
    word: str,
    source: Sources | None,
    index: AnyPath | None,
    embedder: Embedder | None,
    view: View | None,
    *,
    reading: Mapping[str, Any],
    force: bool = False,
    model: str = "",
    progress: Progress | None = None,
) -> UsesOfWord:
    """The uses of a word, in any case; refused if there are none.

    Without an embedder and a view, the vectors are those of an index or of a file of vectors.
    """
    embedders = [] if embedder is None else [embedder]
    views = [] if view is None else [view]
    if index is not None or source is None:
        settings: dict[str, Any] = {"reading": reading, "force": force, "model": model, "progress": progress}
        with opened_index(source, index, embedders, views, **settings) as uses:
            return _of_index(word, uses)
    with opened_uses(source, embedders, views, reading) as gathered:
        return _of_texts(word, gathered, progress)


def _of_texts(word: str, source: Uses, progress: Progress | None) -> UsesOfWord:
    word_form = form(word)
    seen: dict[str, int] = {}

    def places(document: Document) -> list[int]:
        forms = [form(each) for each in document.words]
        matches = [place for place, each in enumerate(forms) if each == word_form]
        if not matches:
            for each in forms:
                seen[each] = seen.get(each, 0) + 1
            return []
        others = [place for place, each in enumerate(forms) if each != word_form]
        return [*matches, others[len(document.text) % len(others)]] if others else matches

    result = UsesOfWord(source.name, source.views[0], background=seen)
    vectors: list[Floats] = []
    others: list[Floats] = []
    for chunk in source.gather(places, progress):
        unit_vectors = iter(unit(chunk.vectors[0]))
        for document, words in zip(chunk.documents, chunk.words, strict=True):
            for each in words:
                vector = next(unit_vectors)
                if form(each) != word_form:
                    others.append(vector)
                    continue
                result.ids.append(document.id)
                result.uses.append(Use(document.text, each.start, each.end))
                result.fields.append(document.fields)
                vectors.append(vector)
    _refuse_if_absent(word, result.uses, source.name, seen)
    result.vectors = np.stack(vectors)
    result.others = np.stack(others) if others else np.empty((0, vectors[0].size), np.float32)
    return result


def _of_index(word: str, index: UseIndex) -> UsesOfWord:
    matches = index.is_word(word)
    rows = np.flatnonzero(matches)
    forms = index.forms()
    indexed = [index.use(row) for row in rows.tolist()]
    name = index.source["name"]
    _refuse_if_absent(word, [each.use for each in indexed], name, forms)
    elsewhere = np.flatnonzero(~matches)
    step = max(len(elsewhere) // N_OTHERS, 1)
    return UsesOfWord(
        name,
        index.views[0],
        ids=[each.id for each in indexed],
        uses=[each.use for each in indexed],
        fields=[each.fields for each in indexed],
        vectors=np.array(index.vectors[0][rows]),
        others=np.array(index.vectors[0][elsewhere[::step][:N_OTHERS]]),
        background=forms,
    )


def _refuse_if_absent(word: str, uses: Sequence[Use], name: str, seen: Mapping[str, int]) -> None:
    if uses:
        return
    close = difflib.get_close_matches(form(word), seen, n=3, cutoff=0.7)
    candidates = ", ".join(f"{each!r} ({'once' if seen[each] == 1 else f'{seen[each]:,} times'})" for each in close)
    raise InputError(
        f"The word {word!r} does not occur in {name}."
        + (f" There is: {candidates}." if close else "")
        + " Words are found by their form, whatever their case: name the form that the text has."
    )


def refuse_if_single(word: str, uses: Sequence[Use], name: str) -> None:
    """Refuse a word that occurs only once: it has no senses to distinguish."""
    if len(uses) > 1:
        return
    before, match, after = uses[0].keyword(30)
    raise InputError(
        f"The word {word!r} occurs only once in {name} ({before}{match}{after}): its senses are found by comparing "
        "uses, so at least 2 are needed. Give a longer text."
    )

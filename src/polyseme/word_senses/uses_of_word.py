"""All uses of one word, with their vectors: of texts, of a file of vectors, or of an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyseme.embedding.flow import Embedder
from polyseme.errors import InputError
from polyseme.files.atomic import AnyPath
from polyseme.files.field_names import fields_of_words
from polyseme.files.source_paths import Sources
from polyseme.plots.word_uses import Use
from polyseme.text.word_forms import close_forms, form
from polyseme.types import Document, Progress
from polyseme.word_senses.build_index import open_index
from polyseme.word_senses.context_vectors import context_positions, with_context
from polyseme.word_senses.gather_uses import Uses, opened_uses
from polyseme.word_senses.index import UseIndex, View
from polyseme.word_senses.nearest_neighbors import Floats

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
    context: int = 0,
    reading: Mapping[str, Any],
    force: bool = False,
    model: str = "",
    progress: Progress | None = None,
) -> UsesOfWord:
    """The uses of a word, in any case; refused if there are none. Their vectors have `context` words on each side.

    Without an embedder and a view, the vectors are those of an index or of a file of vectors.
    """
    embedders = [] if embedder is None else [embedder]
    views = [] if view is None else [view]
    if index is not None or source is None:
        settings: dict[str, Any] = {"reading": reading, "force": force, "model": model, "progress": progress}
        with open_index(source, index, embedders, views, **settings) as uses:
            return _of_index(word, uses, context)
    with opened_uses(source, embedders, views, reading) as gathered:
        return _of_texts(word, gathered, context, progress)


def _of_texts(word: str, source: Uses, context: int, progress: Progress | None) -> UsesOfWord:
    word_form = form(word)
    seen: dict[str, int] = {}

    def matches_of(document: Document) -> tuple[list[int], list[int]]:
        """The positions of the word, and that of another word, if there is one."""
        forms = [form(each) for each in document.words]
        matches = [place for place, each in enumerate(forms) if each == word_form]
        others = [place for place, each in enumerate(forms) if each != word_form]
        return matches, [others[len(document.text) % len(others)]] if others else []

    def places(document: Document) -> list[int]:
        matches, other = matches_of(document)
        if not matches:
            for each in document.words:
                seen[form(each)] = seen.get(form(each), 0) + 1
            return []
        return context_positions([*matches, *other], len(document.words), context)

    result = UsesOfWord(source.name, source.views[0], background=seen)
    vectors: list[Floats] = []
    others: list[Floats] = []
    for chunk in source.gather(places, progress):
        starts = np.cumsum([0, *map(len, chunk.words)])
        for number, document in enumerate(chunk.documents):
            (matches, other), rows = matches_of(document), places(document)
            of_document = chunk.vectors[0][starts[number] : starts[number + 1]]
            vectors.append(with_context(of_document, matches, context, rows))
            others += [with_context(of_document, other, context, rows)] if other else []
            result.ids += [document.id] * len(matches)
            result.uses += [
                Use(document.text, each.start, each.end) for each in (document.words[place] for place in matches)
            ]
            n_words = len(document.words)
            result.fields += [fields_of_words(document.fields, [place], n_words) for place in matches]
    refuse_if_absent(word, result.uses, source.name, seen)
    result.vectors = np.concatenate(vectors)
    result.others = np.concatenate(others) if others else result.vectors[:0]
    return result


def _of_index(word: str, index: UseIndex, context: int) -> UsesOfWord:
    matches = index.is_word(word)
    rows = np.flatnonzero(matches)
    forms = index.forms()
    indexed = [index.use(row) for row in rows.tolist()]
    name = index.source["name"]
    refuse_if_absent(word, [each.use for each in indexed], name, forms)
    elsewhere = np.flatnonzero(~matches)
    step = max(len(elsewhere) // N_OTHERS, 1)
    return UsesOfWord(
        name,
        index.views[0],
        ids=[each.id for each in indexed],
        uses=[each.use for each in indexed],
        fields=[each.fields for each in indexed],
        vectors=index.with_context(rows, context),
        others=index.with_context(elsewhere[::step][:N_OTHERS], context),
        background=forms,
    )


def refuse_if_absent(word: str, uses: Sequence[Any], name: str, seen: Mapping[str, int]) -> None:
    """Refuse a word without uses, with the nearest of the forms that were seen."""
    if uses:
        return
    several = " Uses are those of a single word; `concordance` also finds several." if len(word.split()) > 1 else ""
    raise InputError(
        f"The word {word!r} does not occur in {name}.{close_forms(word, seen)} Words are found by their form, whatever "
        f"their case: name the form that the text has.{several}"
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

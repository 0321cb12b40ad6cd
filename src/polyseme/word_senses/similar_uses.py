"""The nearest uses of a marked use: of the same word and of other words; to compare, also by another layer or model."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.cost import Cost, Tally
from polyseme.embedding.flow import Embedder, warn_unread
from polyseme.embedding.model_fingerprint import fingerprint
from polyseme.encoders.inference import Precision, build_inference_encoder
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.packaged_models import model_name
from polyseme.plots.word_uses import Use
from polyseme.result_tables import ShownAsTable, Table
from polyseme.text.marked_word import marked_use
from polyseme.text.tokenizer import MASK_TEXT
from polyseme.types import Document
from polyseme.verb_options.word_options import SimilarOptions
from polyseme.word_senses.build_index import open_index
from polyseme.word_senses.gather_uses import index_settings, use_embedder
from polyseme.word_senses.index import UseIndex, View
from polyseme.word_senses.nearest_neighbors import Floats, unit

SHOWN = 25
"""Characters on each side of a word in a table."""
MIN_CENTERED = 5
"""Uses of the marked word from which on they are compared without their mean."""


@dataclass(frozen=True)
class NearUse(Use):
    """A use of a word, and how near it is."""

    word: str
    id: str
    """Of the text: as in the file it came from."""
    cosine: float
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Of the text: those that were requested."""


@dataclass(frozen=True)
class Neighbors:
    """The nearest uses by one layer of a model, nearest first; None for lists that were not requested."""

    layer: str
    model: str
    """Its path; empty: it comes from no folder."""
    center: bool
    """Whether uses of the marked word were compared without their mean."""
    same: list[NearUse] | None
    """Uses of the marked word, in any case."""
    other: list[NearUse] | None
    """Uses of other words."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Similar(ShownAsTable):
    """A marked use and its neighbors."""

    word: str
    text: str
    start: int
    end: int
    pool: str
    near: Neighbors
    against: Neighbors | None
    """The neighbors by another layer or model, to compare."""
    n_uses: int
    """The number of uses that were compared."""
    n_same: int
    """How many of them are of the marked word."""
    n_left_out: int
    """Uses that were left out because they are the marked use itself: the same offsets in the same text."""
    exact: bool
    """Whether every use was compared; beyond a million uses neighbors may be missed."""
    cost: Cost

    @property
    def use(self) -> Use:
        return Use(self.text, self.start, self.end)

    def table(self) -> Table:
        """The neighbors: those of the same word, then those of others."""
        uses = [*(self.near.same or ()), *(self.near.other or ())]
        before, word, after = self.use.keyword(SHOWN)
        return Table.of(
            f"uses near {before}[{word}]{after}",
            ("cosine", "id", "word", "text"),
            uses,
            lambda use: (f"{use.cosine:.3f}", use.id, use.word, "".join(use.keyword(SHOWN))),
        )


@dataclass(frozen=True, kw_only=True)
class ComparedBy:
    """A layer of a model, by whose vectors uses are compared."""

    bundle: Bundle
    layer: str | int
    precision: Precision = "own"
    model: str = ""
    """Its path."""

    @property
    def without_context(self) -> bool:
        """Whether a word has the same vector everywhere."""
        return self.bundle.config.direction == "none"


def similar_uses(options: SimilarOptions, compared_by: Sequence[ComparedBy]) -> Similar:
    """The nearest uses of the word marked in the text of `options`, among all words of its source or index.

    They are compared by one layer, or by two. With `center`, uses of the marked word are compared without their mean,
    if there are enough, and if they differ.
    """
    started = time.perf_counter()
    if options.top < 1:
        raise OptionError(f"The number of neighbors must be at least 1. Got {options.top} instead.")
    embedders = _build_embedders(options, compared_by)
    marked = marked_use(options.text, masks=_masks(compared_by[0].bundle))
    [use] = marked.words
    queries = _embed_query(marked, embedders, compared_by)
    views = [
        View(fingerprint=fingerprint(each.bundle, each.precision), layer=embedder.choice, pool=embedder.pool)
        for each, embedder in zip(compared_by, embedders, strict=True)
    ]
    settings = index_settings(options, compared_by[0].model)
    with open_index(options.source, options.index, embedders, views, **settings) as uses:
        is_same = uses.is_word(use)
        itself = uses.rows_of(marked.text, use.start, use.end)
        same, others = is_same.copy(), ~is_same
        same[itself] = others[itself] = False
        n_same = int(is_same.sum())
        if options.same_word is not False and not same.any():
            _report_none(use, n_same, uses, required=options.same_word is True)
        enough = options.center and int(same.sum()) >= MIN_CENTERED
        neighbors = []
        for number, (query, each) in enumerate(zip(queries, compared_by, strict=True)):
            center = enough and not each.without_context
            near_same = near_other = None
            if options.same_word is not False:
                near_same = near_uses(uses, query, number, options.top, same, center=center)
            if options.same_word is not True:
                near_other = near_uses(uses, query, number, options.top, others)
            neighbors.append(
                Neighbors(layer=str(each.layer), model=each.model, center=center, same=near_same, other=near_other)
            )
        return Similar(
            word=str(use),
            text=marked.text,
            start=use.start,
            end=use.end,
            pool=embedders[0].pool,
            near=neighbors[0],
            against=neighbors[1] if len(neighbors) > 1 else None,
            n_uses=len(uses),
            n_same=n_same,
            n_left_out=len(itself),
            exact=uses.is_exact,
            cost=_cost_of(embedders, time.perf_counter() - started),
        )


def _build_embedders(options: SimilarOptions, compared_by: Sequence[ComparedBy]) -> list[Embedder]:
    """One per layer; layers of one model share its packed encoder."""
    packed = {
        id(each.bundle): build_inference_encoder(each.bundle.encoder, each.precision) for each in reversed(compared_by)
    }
    return [
        use_embedder(
            each.bundle, options, layer=each.layer, precision=each.precision, inference=packed[id(each.bundle)]
        )
        for each in compared_by
    ]


def _embed_query(marked: Document, embedders: Sequence[Embedder], compared_by: Sequence[ComparedBy]) -> list[Floats]:
    """The vectors of the marked use, at length 1; a model that has none for it gets a warning."""
    queries = [unit(embedder([marked])[0].vectors[0]) for embedder in embedders]
    warn_unread(embedders[0].tally)
    for query, each in zip(queries, compared_by, strict=True):
        if not query.any():
            warnings.warn(
                f"{model_name(each.model)} has no vector for {str(marked.words[0])!r}, and all uses are equally far "
                "from it: its neighbors mean nothing.",
                PolysemeWarning,
                stacklevel=3,
            )
    for embedder in embedders:
        embedder.tally.vanished = embedder.tally.unknown = 0
    return queries


def _cost_of(embedders: Sequence[Embedder], seconds: float) -> Cost:
    """The cost of all embedders; texts and words are counted once."""
    tally = embedders[0].tally.copy()
    for embedder in embedders[1:]:
        tally.add(Tally(pieces=embedder.tally.pieces, flops=embedder.tally.flops))
    return tally.cost(seconds, embedders[0].device)


def near_uses(
    index: UseIndex, query: Floats, view: int, top: int, allowed: NDArray[np.bool_], *, center: bool = False
) -> list[NearUse]:
    """The nearest uses in an index, of those allowed; with `center`, compared without their mean."""
    mean = index.vectors[view][allowed].mean(axis=0) if center else None
    near = index.nearest(query, top, allowed, view, mean=mean)
    uses = [index.use(row) for row in near.rows.tolist()]
    return [
        NearUse(use.text, use.start, use.end, use.text[use.start : use.end], id, cosine, fields)
        for (id, use, fields), cosine in zip(uses, near.cosines.tolist(), strict=True)
    ]


def _report_none(word: str, n_same: int, index: UseIndex, *, required: bool) -> None:
    """Warn that there is no other use of the same word; raise an error if only such uses are requested."""
    where = f"{index.source['name']} ({len(index):,} words)"
    occurs = f"occurs in {where} only as the marked use itself" if n_same else f"does not occur in {where}"
    message = f"The word {word!r} {occurs}"
    if required:
        raise InputError(f"{message}, so no other use of it can be found. Look among other words, or in another text.")
    warnings.warn(f"{message}; only uses of other words are found.", PolysemeWarning, stacklevel=3)


def _masks(bundle: Bundle) -> list[str]:
    """The masks in a text: the common one, and the model's own."""
    tokenizer = bundle.tokenizer
    if tokenizer is None or "mask" not in tokenizer.specials:
        return [MASK_TEXT]
    return [MASK_TEXT, *tokenizer.pieces([tokenizer.specials["mask"]])]

"""The geometry of a model's layers: how alike the vectors of words are, of one word's uses, and of one text.

The measures are those of Ethayarajh (2019), each as it is and adjusted for anisotropy, of the vectors as they are and
without their mean and first principal components (all-but-the-top, Mu and Viswanath 2018); and linear CKA (Kornblith et
al. 2019) between layers and between two models. The texts are read three times: words are counted and uses drawn;
sums are added up; the same sums again without mean and components, which are known only then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyseme.analysis.geometry_findings import Change, GeometryFindings, LayerGeometry, Measure
from polyseme.analysis.layers_of_words import LayersOfWords, Texts
from polyseme.analysis.moments import (
    Array,
    CrossMoments,
    Directions,
    Means,
    Removal,
    explained_by_first,
    mean_cosine,
    unit_vectors,
)
from polyseme.analysis.use_sample import UseSample
from polyseme.bundle import Bundle
from polyseme.cost import Tally
from polyseme.embedding.flow import warn_unread
from polyseme.errors import InputError, OptionError
from polyseme.result_tables import counted
from polyseme.types import Progress

FEW_WORDS = 10
"""Words for each number of a vector below which CKA is noticeably too high."""


@dataclass(frozen=True, kw_only=True)
class GeometryPlan:
    """What is measured."""

    remove_components: int = 2
    max_types: int = 500
    min_uses: int = 5
    max_uses: int = 20
    seed: int = 0


def geometry(
    model: LayersOfWords,
    texts: Texts,
    plan: GeometryPlan,
    *,
    against: LayersOfWords | None = None,
    progress: Progress | None = None,
) -> GeometryFindings:
    """The geometry of all layers over the texts; with `against`, also how like that model's layers they are."""
    started = time.perf_counter()
    if plan.remove_components >= min(model.widths):
        raise OptionError(
            f"From vectors with {min(model.widths)} numbers at most {min(model.widths) - 1} components can be removed. "
            f"Got {plan.remove_components} instead."
        )
    sample = UseSample(plan.max_uses, plan.seed)
    for documents in texts.chunks():
        for document in documents:
            sample.read(document.in_original().words)
    if sample.n_words < 2:
        n_words = counted(sample.n_words, "word")
        raise InputError(f"{texts.name()} has {n_words}, and pairs of words are compared. Give more text.")
    drawn = sample.drawn(plan.max_types, plan.min_uses)

    def report(done: int) -> None:
        if progress is not None:
            progress(min(done // 2, sample.n_words), sample.n_words)  # the texts are read twice

    reading = _Reading(model, against, drawn, texts, report)
    raw = reading.read()
    removals = [raw.moments.removal(each, plan.remove_components) for each in range(len(model.widths))]
    removed = reading.read(removals)
    layers = [
        _layer(number, name, part.directions[number], vectors, reading.groups, plan.seed)
        for name, part, of in (("as they are", raw, [None] * len(removals)), (_left(plan), removed, removals))
        for number, removal in enumerate(of)
        for vectors in [raw.uses[number] if removal is None else removal(raw.uses[number])]
    ]
    tallies = [each.embedder.tally for each in (model, against) if each is not None]
    for number, tally in enumerate(tallies):
        warn_unread(tally, "The other model's tokenizer" if number else "The model's tokenizer")
    tally = Tally(documents=sample.n_texts, words=sample.n_words)
    tally.add(Tally(pieces=sum(each.pieces for each in tallies), flops=sum(each.flops for each in tallies)))
    n_layers = len(model.widths)
    others = [] if against is None else list(range(n_layers, n_layers + len(against.widths)))
    return GeometryFindings(
        model=model.name,
        data=f"{texts.name()}: {sample.n_texts:,} texts, {sample.n_words:,} words",
        seeds=(plan.seed,),
        notes=_notes(model, sample, plan, len(reading.groups), raw),
        cost=tally.cost(time.perf_counter() - started, model.embedder.device),
        layers=layers,
        cka=[[raw.moments.cka(row, column) for column in range(n_layers)] for row in range(n_layers)],
        against="" if against is None else against.name,
        cka_against=[[raw.moments.cka(row, column) for column in others] for row in range(n_layers)] if others else [],
        changes=[] if against is None else _changes(model, against, raw),
    )


def _left(plan: GeometryPlan) -> str:
    n = plan.remove_components
    return "without mean" if not n else f"without mean and {n} component{'s' * (n > 1)}"


# --- reading ----------------------------------------------------------------------------------------------------------


class _Sums:
    """What one reading of the texts adds up."""

    def __init__(self, widths: Sequence[int], other_widths: Sequence[int], n_uses: int) -> None:
        self.directions = [Directions(width) for width in widths]
        self.moments = CrossMoments([*widths, *other_widths])
        self.uses = [np.zeros((n_uses, width), np.float32) for width in widths]
        self.differences = np.zeros(len(widths))
        """Of each layer, the squared distance of the two models' vectors; and the squared norm of the other's."""
        self.other_squares = np.zeros(len(widths))


class _Reading:
    """Readings of the same texts by the same models."""

    def __init__(
        self,
        model: LayersOfWords,
        against: LayersOfWords | None,
        drawn: Mapping[str, list[int]],
        texts: Texts,
        report: Callable[[int], None],
    ) -> None:
        self._model, self._against, self._texts, self._report = model, against, texts, report
        places = np.array([place for each in drawn.values() for place in each], dtype=np.int64)
        order = np.argsort(places, kind="stable")
        self._places, self._rows = places[order], order
        ends = np.cumsum([0, *map(len, drawn.values())])
        self.groups = [slice(start, end) for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
        """The rows of each word's uses."""
        self.same_shape = against is not None and tuple(against.widths) == tuple(model.widths)
        self._n_words = 0

    def read(self, removals: Sequence[Removal] = ()) -> _Sums:
        """All texts; without means and components, only directions are added up."""
        other_widths = () if self._against is None else self._against.widths
        sums = _Sums(self._model.widths, () if removals else other_widths, len(self._rows))
        n_texts = n_words = 0
        for documents in self._texts.chunks():
            layers: Sequence[Array] = self._model(documents)
            lengths = [len(document.words) for document in documents]
            if removals:
                layers = [removal(layer) for removal, layer in zip(removals, layers, strict=True)]
            else:
                self._add(sums, documents, layers, n_words)
            for directions, layer in zip(sums.directions, layers, strict=True):
                directions.add(layer, lengths, n_texts)
            n_texts += len(documents)
            n_words += sum(lengths)
            self._n_words += sum(lengths)
            self._report(self._n_words)
        return sums

    def _add(self, sums: _Sums, documents: Sequence[Any], layers: Sequence[Array], first: int) -> None:
        others = [] if self._against is None else self._against(documents)
        sums.moments.add([*layers, *others])
        start, end = np.searchsorted(self._places, [first, first + len(layers[0])])
        for uses, layer in zip(sums.uses, layers, strict=True):
            uses[self._rows[start:end]] = layer[self._places[start:end] - first]
        if self.same_shape:
            for number, (own, other) in enumerate(zip(layers, others, strict=True)):
                sums.differences[number] += float(((own - other).astype(np.float64) ** 2).sum())
                sums.other_squares[number] += float((other.astype(np.float64) ** 2).sum())


# --- figures ----------------------------------------------------------------------------------------------------------


def _layer(
    number: int, name: str, directions: Directions, uses: Array, groups: Sequence[slice], seed: int
) -> LayerGeometry:
    """The figures of one layer; explained variance is adjusted by that of as many random words."""
    units = unit_vectors(uses)
    similar, explained, random_explained = Means(), Means(), Means()
    shuffled = uses[np.random.default_rng(seed).permutation(len(uses))]
    for group in groups:
        nonzero = units[group][units[group].any(axis=1)]
        similar.add(np.array([mean_cosine(nonzero.sum(axis=0), len(nonzero))]))
        explained.add(np.array([explained_by_first(uses[group])]))
        random_explained.add(np.array([explained_by_first(shuffled[group])]))
    return LayerGeometry(
        layer=number,
        vectors=name,
        norm=directions.norm.mean,
        anisotropy=directions.anisotropy,
        anisotropy_error=directions.anisotropy_error,
        self_similarity=Measure.of(similar, directions.anisotropy),
        intra_sentence=Measure.of(directions.intra_sentence, directions.anisotropy),
        explained=Measure.of(explained, random_explained.mean),
    )


def _changes(model: LayersOfWords, against: LayersOfWords, sums: _Sums) -> list[Change]:
    """Layer by layer, how far two models of one architecture are apart; none where architectures differ."""
    weights = weight_changes(model.bundle, against.bundle)
    if weights is None or tuple(model.widths) != tuple(against.widths):
        return []
    n_layers = len(model.widths)
    states = np.sqrt(sums.differences / np.maximum(sums.other_squares, 1e-300))
    return [
        Change(
            layer=each,
            one_minus_cka=1 - sums.moments.cka(each, n_layers + each),
            states=float(states[each]),
            weights=weights[each] if len(weights) == n_layers else math.nan,
        )
        for each in range(n_layers)
    ]


def weight_changes(bundle: Bundle, against: Bundle) -> list[float] | None:
    """‖W − W′‖ / ‖W′‖ of the weights of each layer, from bottom to top; None where shapes differ."""
    own, other = bundle.encoder.layer_groups(), against.encoder.layer_groups()
    if _shapes(own) != _shapes(other):
        return None
    changes = []
    with torch.inference_mode():
        for ours, theirs in zip(own, other, strict=True):
            distance = sum(float((a.double() - b.double()).square().sum()) for a, b in zip(ours, theirs, strict=True))
            size = sum(float(each.double().square().sum()) for each in theirs)
            changes.append(math.sqrt(distance / size) if size else math.nan)
    return changes


def _shapes(groups: Sequence[Sequence[Tensor]]) -> list[list[tuple[int, ...]]]:
    return [[tuple(each.shape) for each in group] for group in groups]


def _notes(model: LayersOfWords, sample: UseSample, plan: GeometryPlan, n_types: int, sums: _Sums) -> list[str]:
    notes = [
        "Anisotropy is the mean cosine of all pairs of words, computed exactly; its error is a jackknife over tenths "
        "of the texts. Other errors are standard errors of means over word types or texts. Adjusted similarities are "
        "minus anisotropy, adjusted explained variance is minus that of as many random words.",
        f"Word types (ignoring case): {n_types:,} of those with at least {plan.min_uses:,} uses, sampled at random, "
        f"with at most {plan.max_uses:,} uses each.",
    ]
    if sample.n_texts == 1:
        notes.append("There is only one text, so that there are no errors over texts.")
    if not n_types:
        notes.append(f"No word occurs {plan.min_uses:,} times, so that no uses are compared. Give more text.")
    if any(each.n_zero for each in sums.directions):
        count = max(each.n_zero for each in sums.directions)
        notes.append(f"{count:,} vectors are zero and left out of cosines.")
    if sample.n_words < FEW_WORDS * max(model.widths):
        notes.append(
            f"CKA is biased upwards, since there are only {sample.n_words:,} words for vectors of "
            f"{max(model.widths):,} numbers."
        )
    return notes

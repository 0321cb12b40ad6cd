"""How much each word adds to a task model's score: integrated gradients, and gradient × input.

The score is a function of the vectors that the model looks up for its pieces, before positions and layers. Integrated
gradients (Sundararajan et al. 2017) follow the straight line to the text from a baseline, in which every piece of a
word is replaced and specials stay; the integral is a sum over Gauss–Legendre points, as in captum. What pieces and
numbers of a word get is added up. Attributions sum to the difference of the two scores (completeness), up to the error
of the sum.

Shapes: N points on the line, T pieces, E width of a piece's vector, W words.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.tasks.encoder_rows import RowMaker, RowTally, TaskRow, Text, document_of, second_of
from polyseme.tasks.items import Item
from polyseme.tasks.kinds import KINDS
from polyseme.transfer.task_model import TaskModel
from polyseme.transfer.unit_batches import RowSource, Unit
from polyseme.types import Document

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Baseline = Literal["pad", "mask", "zero"]
Method = Literal["integrated-gradients", "gradient-x-input"]
KINDS_ATTRIBUTED = ("classify", "pair", "tag")
POINT_PIECES = 2048
"""Pieces of points that run together."""


@dataclass(frozen=True)
class ItemAttribution:
    """What the words of an item add to a score."""

    words: Sequence[str]
    spans: Sequence[tuple[int, int]]
    """Of each word in its text, `[start, end)`."""
    n_first: int
    """How many of the words are of the first text; the others are of the second."""
    values: Floats
    """[W]; NaN for words that were not read."""
    rest: float
    """What pieces outside of words got: 0 with integrated gradients."""
    score: float
    baseline_score: float
    notes: Sequence[str] = ()

    @property
    def total(self) -> float:
        return float(np.nansum(self.values)) + self.rest

    @property
    def error(self) -> float:
        """The difference of the sum and of the scores, as a share of the latter."""
        gap = self.score - self.baseline_score
        return abs(self.total - gap) / max(abs(gap), 1e-12)


@dataclass(frozen=True)
class ReadItem:
    """An item as rows of the encoder, with the places of its words."""

    unit: Unit
    words: Sequence[str]
    spans: Sequence[tuple[int, int]]
    n_first: int
    places: Sequence[tuple[int, int, int]]
    """Of each word that is read: which row (0, or 1: the second text's), its first and its last piece."""
    first_word: int = 0
    """Which of the item's words is the first that is read."""
    notes: Sequence[str] = ()

    @property
    def n_pieces(self) -> int:
        return self.unit.n_pieces


class Attributor:
    """A task model whose scores are followed back to the vectors of pieces."""

    def __init__(self, model: TaskModel, baseline: Baseline | None = None) -> None:
        self.kind = KINDS[model.config.kind]
        self.bundle = _check_model(model)
        self.trained = model
        self.model = copy.copy(model)
        self.model.config = replace(model.config, frozen=False, chunk_length=None)  # gradients pass the encoder
        self.model.inference = None
        tokenizer = self.bundle.text_tokenizer
        plain = tokenizer.unit != "character" or tokenizer.encode(Document(text="", words=())).ids.ndim == 1
        can_pad = plain and "pad" in tokenizer.specials
        self.baseline: Baseline = baseline or ("pad" if can_pad else "zero")
        if self.baseline != "zero" and not (plain and self.baseline in tokenizer.specials):
            raise OptionError(
                f"The model has no {self.baseline} piece that could be a baseline. Use --baseline zero (baseline=…)."
            )
        decoder = self.bundle.decoder if model.config.stack == "decoder" else None
        modules = [(module, 0) for module in self.bundle.encoder.token_modules()]
        modules += [] if decoder is None else [(module, 1) for module in decoder.token_modules()]
        self.modules = modules
        """What looks pieces up, and by how many places the row that it reads is shifted right."""
        if not self.modules:
            raise ModelError(
                f"attribute follows scores back to the vectors of pieces, and an encoder of kind "
                f"{self.bundle.config.kind!r} has no lookup that it supports. Use a Transformer or a recurrent model."
            )

    # --- items to rows ------------------------------------------------------------------------------------------------

    def read(self, item: Item, word: int | None = None) -> ReadItem:
        """An item as the model reads it; of a tagger the row with the word of this number."""
        item = self.kind.marked(item)
        documents = [document_of(item), *([second_of(item)] if self.kind.second is not None else [])]
        words = [str(each) for document in documents for each in document.words]
        spans = [(each.start, each.end) for document in documents for each in document.words]
        n_first = len(documents[0].words)
        if not words:
            raise InputError(f"{item.place or 'The text'} has no word, so there is nothing to attribute a score to.")
        notes: list[str] = []
        if self.trained.config.frozen and not self.trained.config.whole:
            texts = [self._alone(document) for document in documents]
            rows = [TaskRow(0, texts[0], texts[1] if len(texts) > 1 else None)]
        else:
            maker = replace(_present(self.model.row_maker), with_words=True, tally=RowTally())
            [rows] = self.kind.encoder_rows(maker, [item])
            if maker.tally.texts and len(documents) > 1:
                raise InputError(
                    f"{item.place or 'The pair'}: the two texts are longer than the {maker.max_pieces:,} pieces that "
                    "the model reads (max_pieces). Shorten them."
                )
            notes += [f"{note}." for note in maker.tally.notes(maker.max_pieces) if maker.tally.texts]
        [row] = rows if word is None else [each for each in rows if 0 <= word - each.first_word < each.n_words]
        if len(rows) > 1:
            notes.append(
                f"The text is read in {len(rows)} windows; the window with the word contains words "
                f"{row.first_word + 1:,} to {row.first_word + row.n_words:,}."
            )
        places = [(0, int(first), int(last)) for first, last in row.text.words]
        if row.second is not None:
            places += [(1, int(first), int(last)) for first, last in row.second.words]
        return ReadItem(Unit((row,), item), words, spans, n_first, places, row.first_word, notes)

    def _alone(self, document: Document) -> Text:
        """A text as `embed` reads it, by which frozen vectors are computed."""
        tokenizer, window = self.bundle.text_tokenizer, self.bundle.config.window
        encoded = tokenizer.encode(document)
        framed = tokenizer.frame(encoded.ids)
        if window is not None and len(framed.ids) > window:
            raise InputError(
                f"The text has {len(framed.ids):,} pieces, special pieces included; the model reads {window:,} at "
                "once. Shorten the text."
            )
        return Text(framed.ids, framed.segments, 0, encoded.words + framed.offset)

    # --- rows to scores -----------------------------------------------------------------------------------------------

    def scores(self, item: ReadItem) -> Tensor:
        """What the head says of an item: [L], [] in regression, [W, L] of a tagger."""
        with torch.no_grad():
            return self._run(item, 1)[0]

    def _run(self, item: ReadItem, n: int) -> Tensor:
        """The scores of an item `n` times in one batch."""
        source = RowSource([item.unit] * n, tags=self.kind.labels_words, with_marks=self.model.config.with_marks)
        features = self.model.features(source.batch(range(n)).to(self.model.device))
        scores: Tensor = self.model.head(features)
        return scores

    def attribute(
        self, item: ReadItem, pick: Callable[[Tensor], Tensor], *, method: Method, steps: int
    ) -> ItemAttribution:
        """What words add to the score that `pick` takes of the head's, [N, …] → [N]."""
        with torch.no_grad():
            with self._replaced(None) as calls:
                score = float(pick(self._run(item, 1))[0])
            inputs = [call.vectors for call in calls]
            baselines = [self._baseline_of(call, item) for call in calls]
            shifts = [(call.row, call.shift) for call in calls]
            with self._replaced(baselines):
                baseline_score = float(pick(self._run(item, 1))[0])
        if method == "gradient-x-input":
            products = [g * x for g, x in zip(self._gradients(item, inputs, pick), inputs, strict=True)]
        else:
            points, weights = gauss_legendre(steps)
            sums = [torch.zeros_like(each) for each in inputs]
            at_once = max(1, POINT_PIECES // max(item.n_pieces, 1))
            for start in range(0, steps, at_once):
                steps_here, shares = (
                    torch.tensor(each[start : start + at_once], dtype=inputs[0].dtype, device=inputs[0].device)
                    for each in (points, weights)
                )
                line = [
                    base + steps_here[:, None, None] * (x - base) for base, x in zip(baselines, inputs, strict=True)
                ]  # [N, T, E]
                for total, gradient in zip(sums, self._gradients(item, line, pick), strict=True):
                    total += (shares[:, None, None] * gradient).sum(0, keepdim=True)
            products = [total * (x - base) for total, x, base in zip(sums, inputs, baselines, strict=True)]
        return self._by_word(item, products, shifts, score, baseline_score)

    def _gradients(self, item: ReadItem, vectors: Sequence[Tensor], pick: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """[N, T, E] each: of the picked score by what was looked up."""
        leaves = [each.detach().requires_grad_() for each in vectors]
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False), self._replaced(leaves):
            picked = pick(self._run(item, len(leaves[0])))
            gradients = torch.autograd.grad(picked.sum(), leaves, allow_unused=True)
        return [torch.zeros_like(leaf) if each is None else each for leaf, each in zip(leaves, gradients, strict=True)]

    @contextmanager
    def _replaced(self, vectors: Sequence[Tensor] | None) -> Iterator[list[_Call]]:
        """Have lookups return these vectors, in the order of the calls; without, what they return is recorded."""
        calls: list[_Call] = []
        counts = dict.fromkeys((id(module) for module, _ in self.modules), 0)

        def hook(shift: int) -> Callable[[nn.Module, Any, Tensor], Tensor]:
            def on_lookup(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
                calls.append(_Call(module, counts[id(module)], shift, arguments[0], output.detach()))
                counts[id(module)] += 1
                return output if vectors is None else vectors[len(calls) - 1]

            return on_lookup

        with ExitStack() as hooks:
            for module, shift in self.modules:
                handle = module.register_forward_hook(hook(shift))
                hooks.callback(handle.remove)
            yield calls

    def _baseline_of(self, call: _Call, item: ReadItem) -> Tensor:
        """[1, T, E]: what was looked up, with the baseline's vector at every piece of a word."""
        vectors = call.vectors.clone()
        replaced = torch.zeros(vectors.shape[1], dtype=torch.bool, device=vectors.device)
        for row, first, last in item.places:
            if row == call.row:
                replaced[first + call.shift : last + 1 + call.shift] = True
        if self.baseline == "zero":
            vectors[:, replaced] = 0
            return vectors
        piece = self.bundle.text_tokenizer.specials[self.baseline]
        looked_up: Tensor = call.module(torch.full_like(call.pieces, piece))
        vectors[:, replaced] = looked_up[:, replaced]
        return vectors

    def _by_word(
        self,
        item: ReadItem,
        products: Sequence[Tensor],
        shifts: Sequence[tuple[int, int]],
        score: float,
        baseline_score: float,
    ) -> ItemAttribution:
        values = np.full(len(item.words), np.nan)
        by_piece = [each[0].double().sum(-1).cpu().numpy() for each in products]  # [T]
        of_words = 0.0
        seen = [np.zeros(len(each), np.bool_) for each in by_piece]
        for number, (row, first, last) in enumerate(item.places):
            value = 0.0
            for pieces, taken, (own_row, shift) in zip(by_piece, seen, shifts, strict=True):
                if own_row == row:
                    here = slice(first + shift, last + 1 + shift)
                    value += float(pieces[here][~taken[here]].sum())  # a piece of two words counts for the first
                    taken[here] = True
            of_words += value
            values[item.first_word + number] = value
        rest = float(sum(pieces.sum() for pieces in by_piece)) - of_words
        return ItemAttribution(
            item.words, item.spans, item.n_first, values, rest, score, baseline_score, notes=list(item.notes)
        )


@dataclass(frozen=True)
class _Call:
    """One lookup of pieces."""

    module: nn.Module
    row: int
    """Of the first text, or of the second."""
    shift: int
    pieces: Tensor
    vectors: Tensor


def _present(maker: RowMaker | None) -> RowMaker:
    if maker is None:
        raise TypeError("A task model with an encoder makes rows.")
    return maker


def gauss_legendre(n: int) -> tuple[Floats, Floats]:
    """Points from 0 to 1 and their weights.

    >>> points, weights = gauss_legendre(2)
    >>> points.round(4).tolist(), weights.tolist()
    ([0.2113, 0.7887], [0.5, 0.5])
    """
    points, weights = np.polynomial.legendre.leggauss(n)
    return 0.5 * (1 + points), 0.5 * weights


def _check_model(model: TaskModel) -> Bundle:
    """The bundle of a task model whose words' scores can be followed back."""
    config = model.config
    if config.kind not in KINDS_ATTRIBUTED:
        raise ModelError(
            f"attribute is for models that classify texts, classify pairs of texts or tag words; this one is for task "
            f"{config.kind!r}. Fine-tune a model for one of these: polyseme finetune classify, pair or tag."
        )
    if config.writes:
        raise ModelError(
            "The model generates its answers as texts, and attribute needs a score for each label. Use a model with a "
            "head, as finetune writes it by default."
        )
    if config.frozen and model.mix is not None and config.pool == "max":
        raise ModelError(
            "The model is frozen, mixes layers and pools the pieces of a word by their maximum, which attribute does "
            "not support. Train one with --pool mean."
        )
    if model.bundle is None or model.inputs is not None or len(model.stacked):
        raise ModelError(
            "The model reads word vectors besides those of its encoder, or has no encoder; attribute follows scores "
            "back to the pieces of one encoder. Train a model without --stack and --inputs."
        )
    return model.bundle

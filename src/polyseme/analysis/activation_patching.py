"""Activation patching: the state of one word in one layer of a clean sentence, put into a run of a corrupted one.

Both sentences have as many words. The measure is the difference of the log-probabilities of two answers: how much of it
comes back with the state, from the corrupted sentence's (0) to the clean one's (1) (Vig et al. 2020; Meng et al. 2022).
Columns are words, the mask, and special pieces, so that all columns of a layer together are the whole layer.

Hooks replace states on the plain path, so that every stack whose layers are results of modules can be patched. In a
recurrent stack the layers above read the replaced state; the layer's own recurrence goes on as it was.

Shapes: T pieces, D width, G groups of columns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from polyseme.analysis.findings import Findings, decimal, quoted, signed
from polyseme.analysis.prediction_rows import PredictionRow, prediction_row, row_kind
from polyseme.bundle import Bundle
from polyseme.cost import Tally
from polyseme.errors import InputError, ModelError
from polyseme.plots.figures_table import shaded_table
from polyseme.plots.html_page import escaped
from polyseme.text.documents import make_document, string_to_document
from polyseme.text.marked_word import read_marks
from polyseme.text.piece_texts import find_masks, piece_texts
from polyseme.text.tokenizer import MASK_TEXT
from polyseme.types import Batch, Progress, Tokenizer

SMALLEST = 1e-4
"""Difference between the two sentences, in nats, below which there is nothing to recover."""


class Column(NamedTuple):
    """A word, a mask or a special piece, with its places in the row."""

    name: str
    pieces: list[int]


@dataclass(frozen=True, kw_only=True, repr=False)
class PatchFindings(Findings):
    """How much of the difference of two answers each state of the clean sentence brings back."""

    verb: ClassVar[str] = "patch"

    clean: str
    corrupted: str
    answer: str
    against: str
    clean_difference: float
    corrupted_difference: float
    columns: Sequence[tuple[str, str]]
    """Of each column the clean word and the corrupted one."""
    differences: Sequence[Sequence[float]]
    """By layer, from 0 to the top, and column: log-probability of the answer less that of the other, patched."""

    def recovered(self) -> list[list[float]]:
        """(patched − corrupted) / (clean − corrupted), by layer and column."""
        gap = self.clean_difference - self.corrupted_difference
        return [[(each - self.corrupted_difference) / gap for each in layer] for layer in self.differences]

    def title(self) -> str:
        return f"What restores “{self.answer}” over “{self.against}”"

    def records(self) -> list[dict[str, Any]]:
        """One per layer and word."""
        return [
            {
                "layer": layer,
                "place": place,
                "clean_word": self.columns[place][0],
                "corrupted_word": self.columns[place][1],
                "difference": self.differences[layer][place],
                "recovered": recovered,
            }
            for layer, line in enumerate(self.recovered())
            for place, recovered in enumerate(line)
        ]

    def to_json(self) -> dict[str, Any]:
        own = ("clean", "corrupted", "answer", "against", "clean_difference", "corrupted_difference")
        return {**super().to_json(), **{name: getattr(self, name) for name in own}}

    def header(self) -> Sequence[str]:
        return ["layer", *self._headings()]

    def rows(self) -> Sequence[Sequence[str]]:
        return [[str(layer), *map(_spelled, line)] for layer, line in enumerate(self.recovered())]

    def _headings(self) -> list[str]:
        return [one if one == other else f"{one} / {other}" for one, other in self.columns]

    def page_body(self) -> str:
        rows = [(f"layer {number}", line) for number, line in enumerate(self.recovered())]
        sentences = [
            ("clean", self.clean, self.clean_difference),
            ("corrupted", self.corrupted, self.corrupted_difference),
        ]
        return "\n".join(
            [
                *(
                    f'<p>{name}: <bdi><b>{escaped(text)}</b></bdi> <span class="faint">log p({escaped(self.answer)}) − '
                    f"log p({escaped(self.against)}) = {signed(value, 3)}</span></p>"
                    for name, text, value in sentences
                ),
                shaded_table(["", *self._headings()], rows[::-1], spelled=_spelled, low=0.0, high=1.0),
                '<p class="faint">For each cell, the clean state of this word in this layer was copied into the run of '
                "the corrupted sentence. 0: the difference of the answers is that of the corrupted sentence; 1: that "
                "of the clean one. The columns of a layer need not sum to 1.</p>",
            ]
        )


def _spelled(share: float) -> str:
    return decimal(share, 2)


class Patching:
    """Two rows of one model, and the difference of two answers in the second with states of the first in it."""

    def __init__(self, bundle: Bundle, clean: str, corrupted: str) -> None:
        if bundle.config.direction == "two-way":
            raise ModelError(
                "patch is for masked and causal models; this one predicts in two directions. Use another model, such "
                "as the packaged ones: -m english-encoder, -m english-decoder."
            )
        if row_kind(bundle) not in ("masked", "causal", None):
            raise ModelError(
                "patch is for masked and causal models with one stack; this one has a decoder that reads a source. Use "
                "another model, such as the packaged ones: -m english-encoder, -m english-decoder."
            )
        self.rows = [prediction_row(bundle, text, verb=PatchFindings.verb) for text in (clean, corrupted)]
        self.modules = self.rows[0].stack.layer_modules()
        if not self.modules:
            raise ModelError(
                f"The layers of an encoder of kind {bundle.config.kind!r} cannot be patched one by one. Use a "
                "Transformer, or a recurrent language model without skip connections."
            )
        for row in self.rows:
            if row_kind(bundle) == "masked" and len(row.places) > 1:
                raise InputError(f"A sentence has {len(row.places)} masks, but only one answer. Keep one mask.")
        self.columns = [columns_of(row, text) for row, text in zip(self.rows, (clean, corrupted), strict=True)]
        n_words = [len(each) for each in self.columns]
        if n_words[0] != n_words[1]:
            n_specials = sum(start == end for start, end in self.rows[0].spans.tolist())
            raise InputError(
                f"The sentences must have the same number of words, since states are copied word by word. {clean!r} "
                f"has {n_words[0] - n_specials}, {corrupted!r} has {n_words[1] - n_specials}. Replace words one by one."
            )
        self.answers = (0, 0)
        self.clean_states = self._recorded()

    @property
    def uneven(self) -> list[str]:
        """Words that have other numbers of pieces in the two sentences."""
        pairs = zip(*self.columns, strict=True)
        return [f"{one.name} / {other.name}" for one, other in pairs if len(one.pieces) != len(other.pieces)]

    def top_answers(self) -> tuple[int, int]:
        """What the model predicts of either sentence."""
        clean, corrupted = (int(self._log_probs(row, 1)[0].argmax()) for row in self.rows)
        return clean, corrupted

    def unpatched(self, number: int) -> float:
        """The difference of the answers in the clean sentence (0) or the corrupted one (1)."""
        return float(self._difference(self._log_probs(self.rows[number], 1))[0])

    def differences(self, layer: int, groups: Sequence[Sequence[int]]) -> list[float]:
        """[G]: of the corrupted sentence with the clean states of a layer at each group of columns."""
        source = self.clean_states[layer]

        def replace(states: Tensor) -> Tensor:
            patched = states.clone()
            for row, columns in enumerate(groups):
                for column in columns:
                    for here, there in aligned(*(each[column].pieces for each in self.columns)):
                        patched[row, there] = source[0, here].to(patched.dtype)
            return patched

        with self._hooked({layer: replace}):
            log_probs = self._log_probs(self.rows[1], len(groups))
        values: list[float] = self._difference(log_probs).tolist()
        return values

    def _difference(self, log_probs: Tensor) -> Tensor:
        return log_probs[:, self.answers[0]] - log_probs[:, self.answers[1]]

    @torch.inference_mode()
    def _log_probs(self, row: PredictionRow, n: int) -> Tensor:
        """[n, V]: at the place of the answer, of a row `n` times."""
        batch, segments = row.batch, row.batch.segments
        pieces = batch.pieces.expand(n, -1)
        several = Batch(pieces, segments=None if segments is None else segments.expand(n, -1))
        memory = row.stack.new_memory(n) if row.carries else None
        states = row.stack(several, layers=[-1], memory=memory)[-1]
        dtype = next(row.output.parameters()).dtype
        return row.output.log_probs(states[:, row.answer_place].to(dtype)).double()

    def _recorded(self) -> list[Tensor]:
        """The states of all layers of the clean sentence, each [1, T, D], before a final norm."""
        recorded: list[Tensor] = []

        def record(states: Tensor) -> Tensor:
            recorded.append(states.clone())
            return states

        with self._hooked(dict.fromkeys(range(len(self.modules)), record)):
            self._log_probs(self.rows[0], 1)
        return recorded

    @contextmanager
    def _hooked(self, changes: dict[int, Callable[[Tensor], Tensor]]) -> Iterator[None]:
        """Have states of these layers changed as they are computed."""
        calls = 0

        def on_result(module: nn.Module, arguments: Any, result: Any) -> Any:
            nonlocal calls
            layer, calls = calls, calls + 1
            if layer not in changes:
                return result
            states = result[0] if isinstance(result, tuple) else result
            changed = changes[layer](states)
            return (changed, *result[1:]) if isinstance(result, tuple) else changed

        with ExitStack() as hooks:
            for module in dict.fromkeys(self.modules):
                hooks.callback(module.register_forward_hook(on_result).remove)
            yield


def aligned(clean: Sequence[int], corrupted: Sequence[int]) -> list[tuple[int, int]]:
    """Which piece of a clean word is put at which piece of the corrupted one, counted from the end of the word.

    >>> aligned([4, 5], [4, 5, 6]), aligned([4, 5, 6], [7])
    ([(4, 4), (4, 5), (5, 6)], [(6, 7)])
    """
    spare = len(clean) - len(corrupted)
    return [(clean[max(number + spare, 0)], place) for number, place in enumerate(corrupted)]


def columns_of(row: PredictionRow, text: str) -> list[Column]:
    """The words of a text and the special pieces around them, in the order of the row; every piece is in one.

    A mask is a word, and a piece outside of all words belongs to the one after it.
    """
    whole = text
    for start, end in find_masks(text, (MASK_TEXT,)):
        whole = f"{whole[:start]}{'x' * (end - start)}{whole[end:]}"
    words = make_document(whole).words
    names = row.spelled(row.batch.pieces[0].tolist())
    columns: dict[tuple[str, int], Column] = {}
    for place, (start, end) in enumerate(row.spans.tolist()):
        if start == end:
            columns[("special", place)] = Column(names[place], [place])
            continue
        number = next((n for n, word in enumerate(words) if word.end > start and word.start < end), None)
        if number is None:
            number = next((n for n, word in enumerate(words) if word.start >= end), len(words) - 1)
        word = words[number]
        columns.setdefault(("word", number), Column(text[word.start : word.end], [])).pieces.append(place)
    return list(columns.values())


# --- two sentences and two answers ------------------------------------------------------------------------------------


def patch_sentences(
    bundle: Bundle,
    clean: str,
    corrupted: str,
    *,
    answer: str | None = None,
    against: str | None = None,
    model: str = "",
    progress: Progress | None = None,
) -> PatchFindings:
    """Patch every word in every layer. Sentences may mark the answer's place: `The keys to the cabinet [are] here.`"""
    started = time.perf_counter()
    sentences = [string_to_document(text).text for text in (clean, corrupted)]
    marked = [_marked(text) for text in sentences]
    if sum(each is None for each in marked) == 1:
        raise InputError("One sentence marks an answer in brackets, and the other does not. Mark both, or neither.")
    kind = row_kind(bundle)
    tokenizer = bundle.text_tokenizer
    if kind == "masked" and marked[0] is None and not all(len(tokenizer.encode_with_masks(t).words) for t in sentences):
        raise InputError(
            "A sentence does not mark the place of its answer. Mark the answers in brackets, as in “The keys [are] "
            "here.” and “The key [is] here.”, or write [MASK] in both."
        )
    for number, mark in enumerate(marked):
        if mark is not None:
            before, word, behind = mark
            answer, against = (answer or word, against) if number == 0 else (answer, against or word)
            sentences[number] = before.rstrip() if kind == "causal" else f"{before}{MASK_TEXT}{behind}"
    patching = Patching(bundle, *sentences)
    top = patching.top_answers()
    ids = [
        default if word is None else _piece_of(tokenizer, text, word)
        for word, default, text in zip((answer, against), top, sentences, strict=True)
    ]
    names = tokenizer.pieces(ids)
    if ids[0] == ids[1]:
        raise InputError(
            f"Both answers are {names[0]!r}, so that there is no difference to restore. Name two: --answer WORD "
            "--against WORD (answer=…, against=…)."
        )
    patching.answers = (ids[0], ids[1])
    differences = (patching.unpatched(0), patching.unpatched(1))
    if abs(differences[0] - differences[1]) < SMALLEST:
        raise InputError(
            f"Both sentences give {names[0]!r} and {names[1]!r} the same difference of log-probabilities: there is "
            "nothing to restore. Use other sentences, or other answers."
        )
    n_layers, n_columns = len(patching.modules), len(patching.columns[0])
    patched = []
    for layer in range(n_layers):
        patched.append(patching.differences(layer, [[column] for column in range(n_columns)]))
        if progress is not None:
            progress(layer + 1, n_layers)
    notes = []
    if patching.uneven:
        notes.append(
            f"Words with different numbers of pieces are aligned by their last pieces: {', '.join(patching.uneven)}."
        )
    one = patching.rows[1].tally()
    runs = n_layers * n_columns + 5
    n_words = sum(len(make_document(text.replace(MASK_TEXT, "x")).words) for text in sentences)
    tally = Tally(documents=2, words=n_words, pieces=runs * one.pieces, flops=runs * one.flops)
    return PatchFindings(
        model=model,
        data=f"{quoted(sentences[0])} and {quoted(sentences[1])}",
        notes=notes,
        cost=tally.cost(time.perf_counter() - started, bundle.device),
        clean=sentences[0],
        corrupted=sentences[1],
        answer=names[0],
        against=names[1],
        clean_difference=differences[0],
        corrupted_difference=differences[1],
        columns=[(first.name, second.name) for first, second in zip(*patching.columns, strict=True)],
        differences=patched,
    )


def _marked(text: str) -> tuple[str, str, str] | None:
    """The text before a marked answer, the answer, and the text behind it; None: nothing is marked."""
    if "[" not in text.replace(MASK_TEXT, "") or MASK_TEXT in text:
        return None
    plain, start, end = read_marks(text)
    word = plain[start:end].strip()
    if not word:
        raise InputError(f"The brackets of {text!r} have nothing between them. Write the answer there.")
    return plain[:start], word, plain[end:]


def _piece_of(tokenizer: Tokenizer, text: str, word: str) -> int:
    """The piece of an answer at the mask of a text, or behind the text."""
    masks = find_masks(text)
    before = text[: masks[0][0]] if masks else f"{text.rstrip()} "
    pieces = piece_texts(tokenizer).encode_after(before, word.strip())
    if len(pieces) != 1:
        spelled = ", ".join(tokenizer.pieces(pieces)) or "none"
        raise InputError(
            f"The answer {word!r} must be one piece of the model's vocabulary. It has {len(pieces)} ({spelled}). Use "
            "another word."
        )
    return pieces[0]

"""Activation patching: the state of one word in one layer of a clean sentence, put into a run of a corrupted one.

Both sentences have as many words. The measure is the difference of the log-probabilities of two answers: how much of it
comes back with the state, from the corrupted sentence's (0) to the clean one's (1) (Vig et al. 2020; Meng et al. 2022).
Columns are words, the mask, and special pieces, so that all columns of a layer together are the whole layer.

Hooks replace states on the plain path, so that every stack whose layers are results of modules can be patched. In a
recurrent stack the layers above read the replaced state; the layer's own recurrence goes on as it was. Of a two-way
model one half is patched; of a sequence-to-sequence model the encoder, whose top the decoder then reads, or the
decoder, which goes on reading the corrupted source.

Shapes: R rows, T pieces, t those that a module reads at once, D width, G groups of columns.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from polyseme.analysis.findings import Findings, decimal, quoted, signed
from polyseme.analysis.prediction_rows import Half, Ints, PredictionRow, prediction_row, row_kind
from polyseme.bundle import Bundle
from polyseme.cost import Tally
from polyseme.embedding.decoder_stack import Stack, check_stack
from polyseme.encoders.encoder import Encoder
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.plots.figures_table import shaded_table
from polyseme.plots.html_page import escaped
from polyseme.text.documents import make_document, string_to_document
from polyseme.text.marked_word import read_marks
from polyseme.text.piece_texts import find_masks, piece_texts
from polyseme.text.tokenizer import MASK_TEXT
from polyseme.types import Progress, Tokenizer

Change = Callable[[Tensor, int], Tensor]
"""From states [R, t, D] and the number of pieces before them to the states that take their place."""
AT_MASKS = ("masked", "denoising", "sentinels")
"""Models that predict the answer at a mask, not behind the text."""
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
    prefix: str | None = None
    """Of a translation model: what its decoder wrote before the answer."""

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
        own = ("clean", "corrupted", "prefix", "answer", "against", "clean_difference", "corrupted_difference")
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
                f"<p>prefix of the translation: <bdi><b>{escaped(self.prefix)}</b></bdi></p>" if self.prefix else "",
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

    def __init__(
        self,
        bundle: Bundle,
        clean: str,
        corrupted: str,
        *,
        half: Half | None = None,
        stack: Stack = "encoder",
        prefix: str | None = None,
    ) -> None:
        check_stack(bundle, stack)
        self.rows = [_row(bundle, text, half, prefix) for text in (clean, corrupted)]
        self.texts = [_Patched.of(row, stack) for row in self.rows]
        self.modules = self.texts[0].stack.layer_modules()
        if not self.modules:
            raise ModelError(
                f"The layers of an encoder of kind {self.texts[0].stack.config.kind!r} cannot be patched one by one. "
                "Use a Transformer, or a recurrent language model."
            )
        for row in self.rows:
            if row_kind(bundle) == "masked" and len(row.places) > 1:
                raise InputError(f"A sentence has {len(row.places)} masks, but only one answer. Keep one mask.")
        read = (clean, corrupted) if prefix is None or stack == "encoder" else (prefix, prefix)
        self.columns = [each.columns(text) for each, text in zip(self.texts, read, strict=True)]
        n_words = [len(each) for each in self.columns]
        if n_words[0] != n_words[1]:
            n_specials = sum(start == end for start, end in self.texts[0].spans.tolist())
            raise InputError(
                f"The sentences must have the same number of words, since states are copied word by word. {clean!r} "
                f"has {n_words[0] - n_specials}, {corrupted!r} has {n_words[1] - n_specials}"
                f"{' before the mask, which is what the decoder reads' if stack == 'decoder' else ''}. Replace words "
                "one by one."
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

        def replace(states: Tensor, first: int) -> Tensor:
            patched = states.clone()
            for row, columns in enumerate(groups):
                for column in columns:
                    for here, there in aligned(*(each[column].pieces for each in self.columns)):
                        if 0 <= there - first < states.shape[1]:
                            patched[row, there - first] = source[0, here].to(patched.dtype)
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
        states = row.states(n, layers=[-1])[-1]
        dtype = next(row.output.parameters()).dtype
        return row.output.log_probs(states[:, row.answer_place].to(dtype)).double()

    def _recorded(self) -> list[Tensor]:
        """The states of all layers of the clean sentence, each [1, T, D], before a final norm."""
        recorded: list[list[Tensor]] = [[] for _ in self.modules]

        def record(layer: int) -> Change:
            def keep(states: Tensor, first: int) -> Tensor:
                recorded[layer].append(states.clone())
                return states

            return keep

        with self._hooked({layer: record(layer) for layer in range(len(self.modules))}):
            self._log_probs(self.rows[0], 1)
        return [torch.cat(parts, dim=1) for parts in recorded]

    @contextmanager
    def _hooked(self, changes: dict[int, Change]) -> Iterator[None]:
        """Have states of these layers changed as they are computed.

        Changes get states [R, t, D] and the number of pieces before them: a stack may read piece by piece.
        """
        layers_of: dict[nn.Module, list[int]] = {}
        for layer, module in enumerate(self.modules):
            layers_of.setdefault(module, []).append(layer)
        calls: Counter[nn.Module] = Counter()
        read: Counter[int] = Counter()

        def on_result(module: nn.Module, arguments: Any, result: Any) -> Any:
            own = layers_of[module]
            layer = own[calls[module] % len(own)]
            calls[module] += 1
            states = result[0] if isinstance(result, tuple) else result
            first = read[layer]
            read[layer] += states.shape[1]
            if layer not in changes:
                return result
            changed = changes[layer](states, first)
            return (changed, *result[1:]) if isinstance(result, tuple) else changed

        with ExitStack() as hooks:
            for module in layers_of:
                hooks.callback(module.register_forward_hook(on_result).remove)
            yield


@dataclass(frozen=True)
class _Patched:
    """The stack whose states are replaced, and the pieces that it reads."""

    stack: Encoder
    pieces: Sequence[str]
    spans: Ints

    @classmethod
    def of(cls, row: PredictionRow, stack: Stack) -> _Patched:
        read = row.source if stack == "encoder" and row.source is not None else None
        names = row.tokenizer.pieces((row if read is None else read).batch.pieces[0].tolist())
        return cls(row.stack, names, row.spans) if read is None else cls(read.encoder, names, read.spans)

    def columns(self, text: str) -> list[Column]:
        """Those of a text in the order of the row."""
        return columns_of(self.pieces, self.spans, text)


def _row(bundle: Bundle, text: str, half: Half | None, prefix: str | None) -> PredictionRow:
    """A sentence as the model reads it; of a translation model its source."""
    if prefix is None:
        return prediction_row(bundle, text, verb=PatchFindings.verb, half=half)
    return prediction_row(bundle, prefix, verb=PatchFindings.verb, half=half, source=text)


def aligned(clean: Sequence[int], corrupted: Sequence[int]) -> list[tuple[int, int]]:
    """Which piece of a clean word is put at which piece of the corrupted one, counted from the end of the word.

    >>> aligned([4, 5], [4, 5, 6]), aligned([4, 5, 6], [7])
    ([(4, 4), (4, 5), (5, 6)], [(6, 7)])
    """
    spare = len(clean) - len(corrupted)
    return [(clean[max(number + spare, 0)], place) for number, place in enumerate(corrupted)]


def columns_of(pieces: Sequence[str], spans: Ints, text: str) -> list[Column]:
    """The words of a text and the special pieces around them, in the order of a row; every piece is in one.

    A mask is a word, and a piece outside of all words belongs to the one after it.
    """
    whole = text
    for start, end in find_masks(text, (MASK_TEXT,)):
        whole = f"{whole[:start]}{'x' * (end - start)}{whole[end:]}"
    words = make_document(whole).words
    columns: dict[tuple[str, int], Column] = {}
    for place, (start, end) in enumerate(spans.tolist()):
        if start == end:
            columns[("special", place)] = Column(pieces[place], [place])
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
    half: Half | None = None,
    stack: Stack = "encoder",
    prefix: str | None = None,
    model: str = "",
    progress: Progress | None = None,
) -> PatchFindings:
    """Patch every word in every layer. Sentences may mark the answer's place: `The keys to the cabinet [are] here.`

    Of a translation model the sentences are sources, and the answer is what its decoder writes behind the `prefix`.
    """
    started = time.perf_counter()
    sentences = [string_to_document(text).text for text in (clean, corrupted)]
    kind = row_kind(bundle)
    if kind == "translation":
        prefix = prefix or ""
    elif prefix is not None:
        raise OptionError(
            "The prefix of a translation is for models that translate, and this model reads the sentence "
            "itself. Leave --prefix out (prefix=…)."
        )
    else:
        sentences, answer, against = _unmarked(bundle, sentences, answer, against, backwards=half == "backwards")
    patching = Patching(bundle, *sentences, half=half, stack=stack, prefix=prefix)
    top = patching.top_answers()
    ids = [
        default if word is None else _piece_of(row, text if prefix is None else prefix, word)
        for word, default, text, row in zip((answer, against), top, sentences, patching.rows, strict=True)
    ]
    names = patching.rows[0].spelled(ids)
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
    if half is not None:
        notes.append(f"States of the half that reads {half}.")
    if bundle.decoder is not None:
        notes.append(f"States of the {stack}.")
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
        prefix=prefix,
    )


def _unmarked(
    bundle: Bundle, sentences: Sequence[str], answer: str | None, against: str | None, *, backwards: bool
) -> tuple[list[str], str | None, str | None]:
    """The sentences as the model reads them, and the answers that are marked in them, unless others are named."""
    kind, tokenizer = row_kind(bundle), bundle.text_tokenizer
    marked = [_marked(text) for text in sentences]
    if marked[0] is None and marked[1] is None:
        if kind in AT_MASKS and not all(_has_mask(tokenizer, text) for text in sentences):
            raise InputError(
                "A sentence does not mark the place of its answer. Mark the answers in brackets, as in “The keys [are] "
                "here.” and “The key [is] here.”, or write [MASK] in both."
            )
        return list(sentences), answer, against
    if marked[0] is None or marked[1] is None:
        raise InputError("One sentence marks an answer in brackets, and the other does not. Mark both, or neither.")
    read = []
    for before, _, behind in (marked[0], marked[1]):
        if kind in AT_MASKS:
            read.append(f"{before}{MASK_TEXT}{behind}")
        else:
            part = behind if backwards else before
            read.append(part if _blank_is_piece(tokenizer) else part.strip())
    return read, answer or marked[0][1], against or marked[1][1]


def _has_mask(tokenizer: Tokenizer, text: str) -> bool:
    specials = getattr(tokenizer, "specials", {})
    return bool(find_masks(text) if "mask" not in specials else len(tokenizer.encode_with_masks(text).words))


def _blank_is_piece(tokenizer: Tokenizer) -> bool:
    """Whether a blank is a piece by itself, which the text before an answer then ends with (character models)."""
    return " " in tokenizer.pieces(tokenizer.encode(make_document("a a")).ids.tolist())


def _marked(text: str) -> tuple[str, str, str] | None:
    """The text before a marked answer, the answer, and the text behind it; None: nothing is marked."""
    if "[" not in text.replace(MASK_TEXT, "") or MASK_TEXT in text:
        return None
    plain, start, end = read_marks(text)
    word = plain[start:end].strip()
    if not word:
        raise InputError(f"The brackets of {text!r} have nothing between them. Write the answer there.")
    return plain[:start], word, plain[end:]


def _piece_of(row: PredictionRow, text: str, word: str) -> int:
    """The piece of an answer at the mask of a text, behind the text, or before it if it is read backwards."""
    word = word.strip()
    if row.words is not None:
        if word not in (row.words.tokenizer.vocabulary or ()):
            raise InputError(f"The answer {word!r} is not in the vocabulary of the model's softmax. Use another word.")
        return row.words.number(word)
    tokenizer = row.tokenizer
    if row.backwards or _blank_is_piece(tokenizer):
        pieces = tokenizer.encode(make_document(word)).ids.tolist()
    else:
        masks = find_masks(text)
        before = text[: masks[0][0]] if masks else f"{text.rstrip()} "
        pieces = piece_texts(tokenizer).encode_after(before, word)
    if len(pieces) != 1:
        spelled = ", ".join(tokenizer.pieces(pieces)) or "none"
        raise InputError(
            f"The answer {word!r} must be one piece of the model's vocabulary. It has {len(pieces)} ({spelled}). Use "
            "another word."
        )
    return int(pieces[0])

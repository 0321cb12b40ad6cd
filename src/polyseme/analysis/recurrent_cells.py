"""The cells of a recurrent encoder at every piece, and their correlation with properties of the text.

A layer's recurrence is run again over its inputs, one piece at a time, since a whole run returns only the last cell
states. A long text is read in stretches, each with the memory of the one before, so that a book needs little more room
than a page. A property is one number per character, after that character has been read.

Shapes: n pieces of the text or of a stretch of it, H cells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.encoders.encoder import Encoder
from polyseme.encoders.recurrent import Recurrent, TwoWay
from polyseme.errors import InputError, ModelError, OptionError, nearest
from polyseme.parts.memory_and_cache import Memory
from polyseme.parts.recurrence import Reader
from polyseme.text.documents import to_document
from polyseme.types import Batch, Pieces, Progress

Half = Literal["forwards", "backwards"]
"""The direction in which a layer reads."""
Value = Literal["cell", "output"]
"""The value: tanh of the cell state, as in Karpathy et al. (2015), or the output of the cell."""
STRETCH = 2_048
"""Pieces that are read at once, and then the next ones, by a stack that passes its memory on."""
MOST_AT_ONCE = 100_000
"""Pieces of a text for a stack that must read all of it at once, in both directions."""


class Cell(NamedTuple):
    """The location of a cell."""

    layer: int
    half: Half
    number: int

    def __str__(self) -> str:
        return f"layer {self.layer}, {self.half}, cell {self.number:,}"


class CorrelatedCell(NamedTuple):
    """A cell, and the correlation of its value with a property over a text: from −1 to 1."""

    cell: Cell
    correlation: float


class Stretch(NamedTuple):
    """The values of one layer's cells, in one direction, over some of a text's pieces."""

    layer: int
    half: Half
    pieces: slice
    values: NDArray[Any]
    """[n, H]"""


def correlated_cells(
    bundle: Bundle,
    text: str | Sequence[str],
    property: str | Property,
    *,
    value: Value = "cell",
    top: int = 10,
    progress: Progress | None = None,
) -> list[CorrelatedCell]:
    """The cells most correlated with a property of the text, by Pearson's correlation over its pieces, strongest first.

    Args:
        bundle: a recurrent language model, or ELMo.
        text: a text (or its words).
        property: one of `PROPERTIES`, or a function from a text to one number for each of its characters. A piece
            takes the number of the character that was read last of it.
        value: the `cell` state (its tanh), or the `output`.
        top: how many cells are returned.
        progress: called with how many pieces were read, and how many there are, over all directions.
    """
    if top < 1:
        raise OptionError(f"At least 1 cell must be requested. Got {top} instead.")
    document = to_document(text, 0)
    name, function = find_property(property)
    targets = values_of(name, function, document.text)
    encoded = encoded_text(bundle, text)
    sums: dict[tuple[int, Half], _Sums] = {}
    for layer, half, pieces, values in read_stretches(bundle, encoded, value=value, progress=progress):
        if (layer, half) not in sums:
            sums[layer, half] = _Sums(_deviations(encoded, half, targets, name), values[0])
        sums[layer, half].add(pieces, values)
    correlated: list[CorrelatedCell] = []
    for (layer, half), each in sums.items():
        cells = each.correlations()
        best = np.argsort(-np.abs(np.nan_to_num(cells)), kind="stable")[:top]
        correlated += [
            CorrelatedCell(Cell(layer, half, int(number)), float(cells[number]))
            for number in best
            if np.isfinite(cells[number])
        ]
    return sorted(correlated, key=lambda each: (-abs(each.correlation), each.cell))[:top]


def _deviations(encoded: Pieces, half: Half, targets: Floats, name: str) -> Floats:
    """[n]: the property after each piece, less its mean."""
    last = encoded.spans[:, 1] - 1 if half == "forwards" else encoded.spans[:, 0]
    here: Floats = targets[np.clip(last, 0, len(targets) - 1)]
    here -= here.mean()
    if not here.any():
        raise InputError(
            f"The property {name!r} has the same value everywhere in the text, so that no cell can correlate with it. "
            "Use a text in which it changes."
        )
    return here


class _Sums:
    """Pearson's correlations of a layer's cells with a property, from sums over stretches of the text."""

    def __init__(self, here: Floats, first: NDArray[Any]) -> None:
        self.here = here
        self.first = first.astype(np.float64)
        """Cells are summed as differences from their first value, so that one that never changes sums to exactly 0."""
        self.values, self.squares, self.products = np.zeros((3, len(first)))

    def add(self, pieces: slice, values: NDArray[Any]) -> None:
        cells = values.astype(np.float64) - self.first
        self.values += cells.sum(axis=0)
        self.squares += (cells**2).sum(axis=0)
        self.products += self.here[pieces] @ cells

    def correlations(self) -> Floats:
        """[H]: NaN for a cell that never changes."""
        squares = np.maximum(self.squares - self.values**2 / len(self.here), 0.0)
        sizes = np.sqrt(squares * (self.here**2).sum())
        with np.errstate(invalid="ignore", divide="ignore"):
            correlations: Floats = np.where(sizes > 1e-9, self.products / sizes, np.nan)
        return np.clip(correlations, -1.0, 1.0)


# --- reading ----------------------------------------------------------------------------------------------------------


def encoded_text(bundle: Bundle, text: str | Sequence[str]) -> Pieces:
    """The pieces of a text (or its words)."""
    encoded = bundle.text_tokenizer.encode(to_document(text, 0))
    if not len(encoded):
        raise InputError("The text has no pieces to read. Name a text, or a file with --in.")
    return encoded


def read_stretches(
    bundle: Bundle,
    encoded: Pieces,
    *,
    value: Value = "cell",
    layer: int | None = None,
    half: Half | None = None,
    progress: Progress | None = None,
) -> Iterator[Stretch]:
    """The values of the cells of one layer and half, or of all of them, stretch by stretch in the order of reading."""
    if value not in get_args(Value):
        raise OptionError(f"There is no value {value!r} of a cell. {nearest(str(value), get_args(Value))}")
    chosen = {at: reader for at, reader in _readers(bundle.encoder).items() if (layer or at[0], half or at[1]) == at}
    kinds = sorted({reader.kind for reader in chosen.values()} - {"lstm"})
    if value == "cell" and kinds:
        raise OptionError(f"Cells of kind {kinds[0]!r} have no state besides their output. Use the value 'output'.")
    framed = bundle.text_tokenizer.frame(encoded.ids)
    ids = torch.from_numpy(framed.ids)[None].to(bundle.device)
    stacks = [(stack, _of_stack(stack, chosen)) for stack in bundle.encoder.halves()]
    stacks = [(stack, readers) for stack, readers in stacks if readers]
    done, total = 0, len(stacks) * len(framed.ids)
    for stack, readers in stacks:
        memory = stack.new_memory(1) if stack.config.memory == "state" else None
        if memory is None and len(framed.ids) > MOST_AT_ONCE:
            raise InputError(
                f"The text has {len(encoded):,} pieces, and a model whose layers read in both directions reads all of "
                f"them at once: at most {MOST_AT_ONCE:,}. Shorten the text."
            )
        held = {at: reader.start(1) for at, reader in readers.items()}
        size = len(framed.ids) if memory is None else STRETCH
        starts = range(0, len(framed.ids), size)
        backwards = memory is not None and all(at[1] == "backwards" for at in readers)
        for start in reversed(starts) if backwards else starts:
            inputs, memory = _inputs_of(stack, Batch(ids[:, start : start + size]), readers, memory)
            for at, reader in readers.items():
                values, held[at] = _one_by_one(reader, inputs[at], value, held[at])
                first = max(start, framed.offset)
                last = min(start + len(values), framed.offset + len(encoded))
                if first < last:
                    pieces = slice(first - framed.offset, last - framed.offset)
                    yield Stretch(*at, pieces, values[first - start : last - start])
            done += len(values)
            if progress is not None:
                progress(done, total)


def find_layer(encoder: Encoder, layer: int, half: Half | None, value: Value) -> tuple[int, Half, int]:
    """The requested layer and direction, and the number of values: of cells, or the width after projection."""
    readers = _readers(encoder)
    depth = encoder.config.depth
    if not -depth <= layer <= depth or layer == 0:
        raise OptionError(
            f"Cells are in layers 1 to {depth} (or {-depth} to -1); layer 0 is the token layer and has none. Got "
            f"{layer} instead."
        )
    number = layer if layer > 0 else depth + 1 + layer
    directions = [direction for at, direction in readers if at == number]
    chosen = directions[0] if half is None else half
    if chosen not in directions:
        raise OptionError(f"The model reads {' and '.join(directions)}. Got {chosen!r} for 'half' instead.")
    reader = readers[number, chosen]
    return number, chosen, reader.n_cells if value == "cell" else reader.width


def has_cells(encoder: Encoder) -> bool:
    """Whether an encoder is recurrent."""
    return isinstance(encoder, (Recurrent, TwoWay))


def _readers(encoder: Encoder) -> Mapping[tuple[int, Half], Reader]:
    """The recurrence of each layer and direction."""
    if not has_cells(encoder):
        raise ModelError(
            f"An encoder of kind {encoder.config.kind!r} has no cells. Only recurrent models have them: LSTM "
            "language models, ELMo, and recurrent sequence to sequence. A Transformer has attention heads instead: see "
            "`polyseme attention` and `polyseme heads`."
        )
    readers: dict[tuple[int, Half], Reader] = {}
    for stack in encoder.halves():
        if not isinstance(stack, Recurrent):
            raise TypeError("Halves of a two-way encoder are recurrent.")
        for number, layer in enumerate(stack.layers, start=1):
            for reader in layer.children():
                if isinstance(reader, Reader):
                    readers[number, "backwards" if reader.backwards else "forwards"] = reader
    if not readers:
        raise ModelError("The model has a token layer and nothing above it, so there are no cells.")
    return dict(sorted(readers.items(), key=lambda each: (each[0][0], each[0][1] == "backwards")))


def _of_stack(stack: Encoder, readers: Mapping[tuple[int, Half], Reader]) -> dict[tuple[int, Half], Reader]:
    own = set(stack.modules())
    return {at: reader for at, reader in readers.items() if reader in own}


def _inputs_of(
    stack: Encoder, batch: Batch, readers: Mapping[tuple[int, Half], Reader], memory: Memory | None
) -> tuple[dict[tuple[int, Half], Tensor], Memory | None]:
    """The inputs of each recurrence for the batch, [1, n, D], and the memory after it."""
    inputs: dict[tuple[int, Half], Tensor] = {}
    hooks = [
        reader.register_forward_pre_hook(lambda _, arguments, at=at: inputs.__setitem__(at, arguments[0]))
        for at, reader in readers.items()
    ]
    try:
        with torch.inference_mode():
            states = stack(batch, layers=[max(layer for layer, _ in readers)], memory=memory)
    finally:
        for hook in hooks:
            hook.remove()
    return inputs, states.memory


@torch.inference_mode()
def _one_by_one(
    reader: Reader, read: Tensor, value: Value, held: tuple[Tensor, Tensor]
) -> tuple[NDArray[Any], tuple[Tensor, Tensor]]:
    """[n, H]: the values after each piece, in the order of the text, and what is held after the last that was read."""
    h, c = held
    if value == "output":
        all_outputs, h, c = reader(read, None, held, carried=True)
        outputs = all_outputs[0]
    else:
        cells = []
        for piece in reversed(read.unbind(1)) if reader.backwards else read.unbind(1):
            h, c = reader.step(piece, h, c)
            cells.append(c)
        outputs = torch.tanh(torch.cat(cells[::-1] if reader.backwards else cells))
    values: NDArray[Any] = outputs.to(torch.promote_types(outputs.dtype, torch.float32)).cpu().numpy()
    return values, (h, c)


# --- properties ------------------------------------------------------------------------------------------------------


Property = Callable[[str], Sequence[float]]
"""From a text to one number for each of its characters."""
Floats = NDArray[np.float64]

_IF = re.compile(r"(?<![\w.$])(?:el)?if(?!\w)")
BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


def inside_quotes(text: str) -> list[float]:
    """1 from an opening double quote on, 0 from the closing one on.

    >>> inside_quotes('a "b" c')
    [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    """
    return _running(text, lambda inside, char: {'"': 1 - inside, "“": 1, "”": 0, "«": 1, "»": 0}.get(char, inside))


def inside_brackets(text: str) -> list[float]:
    """How many brackets are open.

    >>> inside_brackets("a(b[c])")
    [0.0, 1.0, 1.0, 2.0, 2.0, 1.0, 0.0]
    """
    return _running(text, lambda depth, char: max(depth + BRACKETS.get(char, 0), 0))


def inside_if(text: str) -> list[float]:
    """1 in the condition of an `if` or `elif` of program code: from the keyword to the bracket that closes the
    condition, or outside of brackets to a colon, an opening brace, a semicolon or the end of the line.

    >>> "".join("01"[int(inside)] for inside in inside_if("if (a) b; if c: d"))
    '01111000000111000'
    """
    values = [0.0] * len(text)
    for match in _IF.finditer(text):
        depth, bracketed = 0, text[match.end() :].lstrip(" ").startswith("(")
        for place in range(match.end() - 1, len(text)):
            depth += BRACKETS.get(text[place], 0) if text[place] != "{" else 0
            closed = bracketed and depth == 0 and text[place] == ")"
            if depth < 0 or closed or (depth == 0 and text[place] in ":{;\n"):
                break
            values[place] = 1.0
    return values


def position_in_line(text: str) -> list[float]:
    """Characters since the line began; the line's end counts as its last.

    >>> position_in_line("ab" + chr(10) + "c")
    [1.0, 2.0, 3.0, 1.0]
    """
    return _running(f"\n{text}"[:-1], lambda place, before: 1 if before == "\n" else place + 1)


def position_in_word(text: str) -> list[float]:
    """Characters since the last blank.

    >>> position_in_word("ab c")
    [1.0, 2.0, 0.0, 1.0]
    """
    return _running(text, lambda place, char: 0 if char.isspace() else place + 1)


def _running(text: str, step: Callable[[int, str], int]) -> list[float]:
    """A number after each character, computed from the number before and the character; 0 before the first."""
    value = 0
    return [float(value := step(value, character)) for character in text]


PROPERTIES: Mapping[str, Property] = {
    "inside quotes": inside_quotes,
    "inside brackets": inside_brackets,
    "inside if": inside_if,
    "position in line": position_in_line,
    "position in word": position_in_word,
}


def find_property(property: str | Property) -> tuple[str, Property]:
    """A property and its name: one of `PROPERTIES`, or a function of the user's own."""
    if isinstance(property, str):
        if property not in PROPERTIES:
            raise OptionError(
                f"There is no property {property!r}. {nearest(property, PROPERTIES)} Or give a function from a text to "
                "a number for each of its characters."
            )
        return property, PROPERTIES[property]
    if not callable(property):
        raise OptionError(f"A property is a name or a function of a text. Got a {type(property).__name__} instead.")
    return getattr(property, "__name__", "property").replace("_", " "), property


def values_of(name: str, property: Property, text: str) -> Floats:
    """The numbers of a property over a text."""
    try:
        values = np.asarray(list(property(text)), dtype=np.float64)
    except (TypeError, ValueError):
        values = np.full(0, np.nan)
    if values.shape != (len(text),) or not np.isfinite(values).all():
        raise InputError(
            f"The property {name!r} must give one finite number for each of the text's {len(text):,} characters."
        )
    return values

r"""ARPA files, the format of SRILM and KenLM: n-grams in text, with logarithms to the base 10, plain or compressed.

    \data\
    ngram 1=4
    \1-grams:
    -99     <s>     -0.30103
    -1.2    <unk>
    …
    \end\

`<s>` begins texts and `</s>` ends them. Here both are the piece that ends texts, where the tokenizer has no other to
begin them with: as the first of an n-gram it is the one, as the last the other, so that nothing is lost.

A file that a model could not be right with is refused with its line: a probability above 1, an n-gram that others
continue without a back-off weight, an n-gram whose beginning is not there, too few lines, or too many.
"""

from __future__ import annotations

import gzip
import math
import re
import warnings
from array import array
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np

from polyseme.corpus.tokenizer_training import tokenizer_of_words
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.files.lines import Line, lines_of
from polyseme.files.source import open_source
from polyseme.ngrams.counting import blocks
from polyseme.ngrams.model_folder import NGramModel
from polyseme.ngrams.tables import Floats, Ints, NGramTables, find

DATA, END = "\\data\\", "\\end\\"
BEGIN_TEXT, END_TEXT, UNKNOWN = "<s>", "</s>", "<unk>"
NEVER = -99.0
"""To the base 10, what stands for a probability of 0."""
NO_UNKNOWN = -100.0
"""To the base 10, the probability of unknown words in a file that has none, as KenLM reads it."""
LOG_10 = math.log(10.0)
_COUNT = re.compile(r"ngram\s+(\d{1,18})\s*=\s*(\d{1,18})")


# --- reading ---------------------------------------------------------------------------------------------------------


class _Section(NamedTuple):
    """The n-grams of an order as the file has them."""

    ids: Ints
    """[N, order]"""
    log_probs: Floats
    backoffs: Floats
    """NaN where there is none."""
    first_line: int


class _Lines:
    """The lines of a file that are not blank, with their numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = cast("Generator[Line]", lines_of(open_source(path)))
        self.number = 0

    def next(self, expected: str, *details: object) -> str:
        """The next line; `expected`, with its details, says what is missing where the file ends."""
        for line in self._lines:
            self.number = line.number
            text = line.text.strip()
            if text:
                return text
        missing = expected.format(*details) if details else expected
        raise ModelError(f"{self.path} is cut short: {missing} is missing after line {self.number:,}. Fetch it again.")

    def close(self) -> None:
        """Let go of the file."""
        self._lines.close()

    def wrong(self, reason: str, number: int | None = None) -> ModelError:
        return ModelError(f"{self.path}, line {self.number if number is None else number:,}: {reason}")


def read_arpa(path: Path) -> NGramModel:
    """The model in an ARPA file; its words are what stands between blanks."""
    with closing(_Lines(path)) as lines:
        return _read(lines, path)


def _read(lines: _Lines, path: Path) -> NGramModel:
    while lines.next(DATA) != DATA:
        pass
    counts: list[int] = []
    while match := _COUNT.fullmatch(text := lines.next("the list of sections")):
        if int(match[1]) != len(counts) + 1:
            raise lines.wrong(f"The number of {len(counts) + 1}-grams should come here. Got {text!r} instead.")
        counts.append(int(match[2]))
    if not counts or not counts[0]:
        raise lines.wrong("The file names no unigrams, so it has no words. It is no model.")
    words, unigrams, starts = _read_unigrams(lines, text, counts[0], top=len(counts) == 1)
    tokenizer = tokenizer_of_words(words)
    n_pieces, end, unknown = tokenizer.n_pieces, tokenizer.specials["end"], tokenizer.specials["unknown"]
    ids = tokenizer.backend.get_vocab()
    log_probs, backoffs = np.full(n_pieces, NEVER), np.zeros(n_pieces)
    log_probs[unknown] = NO_UNKNOWN
    for word, log_prob, backoff in zip(words, unigrams.log_probs, unigrams.backoffs, strict=True):
        log_probs[ids[word]], backoffs[ids[word]] = log_prob, backoff
    backoffs[end] = starts
    if UNKNOWN not in words:
        warnings.warn(
            f"{path} has no {UNKNOWN}: words that it lacks are given the probability 10^{NO_UNKNOWN:.0f}.",
            PolysemeWarning,
            stacklevel=2,
        )
    keys: list[Ints] = []
    tables: list[tuple[Floats, Floats]] = [(log_probs, backoffs)]
    for order in range(2, len(counts) + 1):
        section = _read_section(lines, order, counts[order - 1], ids, end, top=order == len(counts))
        own, sorted_by = _keys_of(section, keys, n_pieces, lines)
        _check_backoffs(own // n_pieces, keys, tables[-1][1], n_pieces, tokenizer.pieces, lines)
        keys.append(own)
        tables.append((section.log_probs[sorted_by], section.backoffs[sorted_by]))
    if lines.next(END) != END:
        raise lines.wrong(f"There are more {len(counts)}-grams than the {counts[-1]:,} that the file names.")
    natural = [np.where(each <= NEVER, -math.inf, each * LOG_10) for each, _ in tables]
    natural[0][unknown] = tables[0][0][unknown] * LOG_10
    weights = [np.nan_to_num(each, nan=0.0) * LOG_10 for _, each in tables[:-1]]
    return NGramModel(NGramTables(n_pieces, keys, natural, weights), tokenizer, {"smoothing": "as in an ARPA file"})


def _header(lines: _Lines, text: str, order: int) -> None:
    if text != f"\\{order}-grams:":
        more = f" There are more {order - 1}-grams than the file names." if order > 1 else ""
        raise lines.wrong(f"\\{order}-grams: should come here. Got {text[:60]!r} instead.{more}")


def _read_unigrams(lines: _Lines, text: str, n: int, *, top: bool) -> tuple[list[str], _Section, float]:
    """The words but for `<s>`, their unigrams, and the back-off weight of `<s>`; NaN: it has none."""
    _header(lines, text, 1)
    first, starts = lines.number + 1, 0.0
    words: dict[str, None] = {}
    log_probs, backoffs = array("d"), array("d")
    for _ in range(n):
        fields = _fields(lines, 1, n, top)
        log_prob, backoff = _numbers(lines, fields, 1)
        if fields[1] == BEGIN_TEXT:
            starts = backoff
            continue
        if fields[1] in words:
            raise lines.wrong(f"The word {fields[1]!r} is listed a second time.")
        words[fields[1]] = None
        log_probs.append(log_prob)
        backoffs.append(backoff)
    return [*words], _Section(np.zeros((0, 1), np.int64), np.array(log_probs), np.array(backoffs), first), starts


def _read_section(lines: _Lines, order: int, n: int, ids: dict[str, int], end: int, *, top: bool) -> _Section:
    _header(lines, lines.next(f"the section of {order}-grams"), order)
    first = lines.number + 1
    begin = len(ids)  # no word's, but that of <s> until all lines are read
    number_of = {**ids, BEGIN_TEXT: begin}.__getitem__
    pieces, log_probs, backoffs = array("q"), array("d"), array("d")
    for _ in range(n):
        fields = _fields(lines, order, n, top)
        log_prob, backoff = _numbers(lines, fields, order)
        try:
            pieces.extend(map(number_of, fields[1 : order + 1]))
        except KeyError as error:
            raise lines.wrong(f"The word {error.args[0]!r} is not among the unigrams.") from None
        log_probs.append(log_prob)
        backoffs.append(backoff)
    rows = np.array(pieces, np.int64).reshape(-1, order)
    misplaced = (rows[:, 1:] == begin).any(axis=1) | (rows[:, :-1] == end).any(axis=1)
    if misplaced.any():
        raise lines.wrong(
            f"The n-gram has {BEGIN_TEXT} behind its first word, or {END_TEXT} before its last: no text goes on after "
            "its end.",
            first + int(misplaced.argmax()),
        )
    return _Section(np.where(rows == begin, end, rows), np.array(log_probs), np.array(backoffs), first)


def _fields(lines: _Lines, order: int, n: int, top: bool) -> list[str]:
    text = lines.next("one of the {:,} {}-grams that the file names", n, order)
    if text.startswith("\\") and re.fullmatch(r"\\(end\\|\d+-grams:)", text):
        raise lines.wrong(f"There are fewer {order}-grams than the {n:,} that the file names. It is cut short.")
    fields = text.split()
    if len(fields) not in ((order + 1,) if top else (order + 1, order + 2)):
        raise lines.wrong(
            f"A line of a {order}-gram has a logarithm, {order} word{'s' * (order > 1)}"
            f"{'' if top else ', and perhaps a back-off weight'}. Got {len(fields)} fields: {text[:80]!r}."
        )
    return fields


def _numbers(lines: _Lines, fields: list[str], order: int) -> tuple[float, float]:
    try:
        log_prob = float(fields[0])
        backoff = float(fields[order + 1]) if len(fields) > order + 1 else math.nan
    except ValueError as error:
        raise lines.wrong(f"A logarithm must be a number ({error}).") from None
    if not log_prob <= 0:
        raise lines.wrong(
            f"The logarithm of the probability of {' '.join(fields[1 : order + 1])!r} is {fields[0]}, so the "
            "probability would be above 1. The file is damaged, or is no ARPA file."
        )
    if backoff == math.inf or (len(fields) > order + 1 and math.isnan(backoff)):
        raise lines.wrong(f"A back-off weight must be a finite number. Got {fields[order + 1]} instead.")
    return log_prob, backoff


def _keys_of(section: _Section, keys: list[Ints], n_pieces: int, lines: _Lines) -> tuple[Ints, Ints]:
    """The sorted keys of an order, and the order of the file's n-grams that sorts them."""
    numbers = section.ids[:, 0]
    for below, column in zip(keys, section.ids.T[1:-1], strict=True):
        numbers = np.where(numbers < 0, -1, find(below, np.where(numbers < 0, -1, numbers * n_pieces + column)))
    if len(numbers) and numbers.min() < 0:
        missing = int(np.argmin(numbers))
        raise lines.wrong(
            f"The {section.ids.shape[1]}-gram begins with words that are no {section.ids.shape[1] - 1}-gram of the "
            "file, so that it would never be reached.",
            section.first_line + missing,
        )
    own = numbers * n_pieces + section.ids[:, -1]
    sorted_by = np.argsort(own, kind="stable")
    repeated = np.flatnonzero(np.diff(own[sorted_by]) == 0)
    if len(repeated):
        raise lines.wrong("This n-gram is listed a second time.", section.first_line + int(sorted_by[repeated[0] + 1]))
    return own[sorted_by], sorted_by


def _check_backoffs(
    contexts: Ints, keys: list[Ints], backoffs: Floats, n_pieces: int, names: object, lines: _Lines
) -> None:
    """Refuse an n-gram that others continue and that has no back-off weight."""
    continued = np.unique(contexts)
    missing = continued[np.isnan(backoffs[continued])]
    if len(missing):
        tables = NGramTables(n_pieces, keys, [], [])
        words = " ".join(names(tables.pieces_of(len(keys) + 1, missing[:1])[0].tolist()))  # type: ignore[operator]
        raise ModelError(
            f"{lines.path}: {len(missing):,} {len(keys) + 1}-gram{'s' * (len(missing) > 1)} that others continue "
            f"have no back-off weight; the first is {words!r}. Probabilities after them would sum to more than 1. "
            "Write the file again with the tool that made it, back-off weights included."
        )


# --- writing ---------------------------------------------------------------------------------------------------------


def write_arpa(model: NGramModel, path: Path) -> None:
    """An ARPA file, compressed if its name ends in .gz. Logarithms have nine digits."""
    names = _names(model)
    with gzip.open(path, "wt", encoding="utf-8") if path.suffix == ".gz" else path.open("w", encoding="utf-8") as file:
        _write(model, names, file)


def _names(model: NGramModel) -> list[str]:
    tokenizer, specials = model.tokenizer, model.tokenizer.specials
    names = tokenizer.pieces(range(tokenizer.n_pieces))
    for role, name in (("unknown", UNKNOWN), ("start", BEGIN_TEXT), ("end", END_TEXT)):
        if role in specials:
            names[specials[role]] = name
    odd = next((name for name in names if not name or name.split() != [name]), None)
    if odd is not None:
        raise ModelError(
            f"The model's pieces cannot be written to an ARPA file: {odd!r} has a blank in it, or is empty."
        )
    taken = {name for id, name in enumerate(names) if id not in specials.values()} & {BEGIN_TEXT, END_TEXT, UNKNOWN}
    if taken or ("end" not in specials):
        reason = f"it has the word {sorted(taken)[0]}" if taken else "no piece of it ends a text"
        raise ModelError(f"The model cannot be written as an ARPA file: {reason}, which means something else there.")
    return names


def _write(model: NGramModel, names: list[str], file: IO[str]) -> None:
    tables, lead, end = model.tables, model.lead, model.tokenizer.specials["end"]
    merged = lead == end
    file.write(f"{DATA}\n")
    for order, n in enumerate(tables.n_ngrams, start=1):
        file.write(f"ngram {order}={n + (merged and order == 1)}\n")
    as_first = [BEGIN_TEXT if id == lead else name for id, name in enumerate(names)]
    for order, n in enumerate(tables.n_ngrams, start=1):
        file.write(f"\n\\{order}-grams:\n")
        top = order == tables.order
        if order == 1 and merged:
            backoff = "" if top else f"\t{_digits(float(tables.backoffs[0][lead]))}"
            file.write(f"{NEVER:g}\t{BEGIN_TEXT}{backoff}\n")
        for block in blocks(n):
            rows = tables.pieces_of(order, np.arange(block.start, block.stop)).tolist()
            log_probs = tables.log_probs[order - 1][block].tolist()
            backoffs = None if top else tables.backoffs[order - 1][block].tolist()
            for place, (row, log_prob) in enumerate(zip(rows, log_probs, strict=True)):
                words = names[row[0]] if order == 1 else f"{as_first[row[0]]} {' '.join([names[id] for id in row[1:]])}"
                weight = (
                    ""
                    if backoffs is None
                    else f"\t{_digits(0.0 if order == 1 and merged and row[0] == end else backoffs[place])}"
                )
                file.write(f"{_digits(log_prob)}\t{words}{weight}\n")
    file.write(f"\n{END}\n")


def _digits(natural: float) -> str:
    """A natural logarithm, to the base 10."""
    return f"{natural / LOG_10:.9g}" if natural > -math.inf else f"{NEVER:g}"

"""Documents to pieces, fast: every stretch between two blanks is spelled once and looked up from then on.

A text has far fewer different stretches between blanks than stretches. For tokenizers of which it can be shown that a
text may be cut before each blank (`text.cut_points`), the pieces of every *type* of stretch are made once, kept in flat
tables, and put together by index arithmetic; for many also before each line's end. Where marks are pieces of their own,
a word with marks around it is put together from word and marks. The result is that of reading the whole text at once,
piece by piece. Documents that cannot be cut at each of their blanks (several in a row, marks that hold on to one), and
all documents where the tokenizer cannot be shown to allow it, are read as a whole.

A piece begins a word if it is the first of a word as `text.words` has it, or is of no word (a line's end that is a
piece by itself); a blank that is a piece goes with what follows. So the pieces of a word are those from one that begins
a word to before the next that does. Blanks and line ends before a sentence go with it.
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.cut_checks import can_be_cut_at_lines, drops_blanks, is_ordinary, parts_marks
from polyseme.corpus.type_tables import Numbers, Tables, distinct_stretches
from polyseme.text.alignment import align
from polyseme.text.cached_encoding import CachedEncoder, batch_by_size
from polyseme.text.sentences import (
    CAPITAL,
    CONTINUES,
    beginning,
    ending,
    inner_starts,
    sentence_starts,
    split_sentences,
)
from polyseme.text.specials import is_unigram
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.text.words import split_words
from polyseme.types import Document

Ints = NDArray[np.int64]
Bits = NDArray[np.bool_]

REMEMBERED = 500_000
"""How many types are remembered; after that all are forgotten."""
REMEMBERED_BYTES = 1 << 25
"""How many bytes of types, likewise."""
AT_ONCE = 1 << 20
"""Bytes of text that are put together at once."""

_BLANK, _LINE, _DOCUMENT = b" ", b"\n", b"\0"
_INSIDE, _GOING_ON = b"\1", b"\2"
"""What goes before a type that is only found inside others; the second before one that continues a word."""
_WORDS_AND_MARKS = re.compile(
    rb"""[\n\0]?([.,;:!?()[\]"-]*)([0-9A-Za-z]+(?:-[0-9A-Za-z]+)*)((?<=[A-Za-z])'s)?([.,;:!?()[\]"-]*)"""
)
"""Words with hyphens between them, and marks around them that are no part of them."""
_MARKS_AND_BLANKS = "\0\1\2 \t\n\r"
_TURNS_BLANK = re.compile("[\u037a\ufc5e-\ufc63\ufe70-\ufe7f]")
"""The letters that normalizing may turn into a blank, so that a blank beside them is one of several."""
_NOTHING = (np.zeros(0, np.int64), np.zeros(0, np.uint32), np.zeros(0, np.bool_), np.zeros(0, np.bool_))


class Spelled(NamedTuple):
    """Documents as pieces, one after another, without separators."""

    pieces: NDArray[np.uint32]
    """[n]"""
    starts: Bits
    """[n]: whether a piece begins a word."""
    sentences: Bits
    """[n]: whether a piece begins a sentence."""
    counts: Ints
    """[documents]: how many pieces each has; some may have none."""


class Speller:
    """Spells documents with a tokenizer; see above."""

    def __init__(self, tokenizer: PieceTokenizer) -> None:
        backend = tokenizer.backend
        self._backend = backend
        self._encoder = CachedEncoder(backend, tokenizer.specials, tokenizer.sentencepiece)
        self._encodes_jointly = tokenizer.sentencepiece is None
        """Whether many types are encoded at once, as one text."""
        self._cuts = self._encoder.can_be_cut and not getattr(backend.model, "dropout", None)
        self._cuts_lines = self._cuts and can_be_cut_at_lines(backend)
        self._blanks_are_nothing = self._cuts and drops_blanks(backend)
        self._parts_marks = self._blanks_are_nothing and parts_marks(backend)
        self._forget()
        added = backend.get_added_tokens_decoder()
        special = {id for id, token in added.items() if token.special} | set(tokenizer.specials.values())
        self._never_in_text = np.array(sorted(special - {tokenizer.specials.get("unknown")}), np.uint32)
        unknown = tokenizer.specials.get("unknown")
        self._literal = backend.id_to_token(unknown) if unknown is not None and is_unigram(backend) else None

    def spell(self, documents: Sequence[bytes]) -> Spelled:
        """The pieces of documents in UTF-8, the ends of whose lines are line feeds."""
        parts = [self._spell(few) for few in batch_by_size(documents, len, AT_ONCE)]
        if not parts:
            return Spelled(np.zeros(0, np.uint32), np.zeros(0, bool), np.zeros(0, bool), np.zeros(0, np.int64))
        return parts[0] if len(parts) == 1 else Spelled(*map(np.concatenate, zip(*parts, strict=True)))

    def spell_whole(self, document: bytes) -> Spelled:
        """The pieces of one document, read as a whole; what `spell` equals."""
        text = document.decode()
        parts, begins = [text], [0]
        if text.isascii() or not _TURNS_BLANK.search(text):
            parts, begins = self._encoder.parts(Document(text=text, words=()))
        ids, spans, counts = self._encoder.encode(parts)
        spans = spans + np.repeat(np.array(begins, np.int64), counts)[:, None]
        ends = [end for _, end in split_sentences(text)][:-1]
        sentences = _at_first_pieces(spans, [0, *ends])
        return Spelled(ids.astype(np.uint32), _word_starts(text, spans), sentences, np.array([len(ids)], np.int64))

    # --- by types ----------------------------------------------------------------------------------------------------

    def _spell(self, documents: Sequence[bytes]) -> Spelled:
        if not self._cuts or any(mark in one for one in documents for mark in (_DOCUMENT, _INSIDE, _GOING_ON)):
            return self._one_by_one(documents)
        types = self._types_in(documents)
        tables = self._tables
        begins = np.flatnonzero(tables.begins_document[types])
        n_types = np.diff(begins, append=len(types))
        odd = np.add.reduceat(tables.is_odd[types], begins)
        if odd.any():
            return self._with_odd_ones(documents, types, begins, n_types, odd)
        return self._put_together(types, begins)

    def _forget(self) -> None:
        self._types, self._tables = Numbers(), Tables()

    def _types_in(self, documents: Sequence[bytes]) -> NDArray[np.int32]:
        """The numbers of the types in all documents, one after another."""
        text = _DOCUMENT + (_BLANK + _DOCUMENT).join(documents)
        if self._cuts_lines:
            text = text.replace(_LINE, _BLANK + _LINE)
        stretches, numbers = distinct_stretches(text)
        known = self._types
        if len(known) > REMEMBERED or known.size > REMEMBERED_BYTES:
            self._forget()
            known = self._types
        types = np.fromiter(map(known.__getitem__, stretches), np.int32, len(stretches))
        if known.new:
            with _paused_garbage_collector():
                self._learn(known.new)
            known.new.clear()
        return types[numbers]

    def _put_together(self, types: NDArray[np.int32], begins: Ints) -> Spelled:
        tables = self._tables
        places, counts = tables.gathered(types)
        firsts = np.cumsum(counts) - counts
        sentences = tables.sentences[places]
        new = sentence_starts(tables.endings[types], tables.beginnings[types], tables.begins_line[types])
        at = firsts[new]
        sentences[at[at < len(places)]] = True  # of a stretch without pieces, the next that has some
        edges = np.append(firsts[begins], len(places))
        return Spelled(tables.pieces[places], tables.starts[places], sentences, np.diff(edges))

    def _with_odd_ones(
        self, documents: Sequence[bytes], types: NDArray[np.int32], begins: Ints, n_types: Ints, odd: Ints
    ) -> Spelled:
        """Documents among which some have to be read as a whole."""
        parts = []
        usual = odd == 0
        edges = np.flatnonzero(np.diff(usual, prepend=not usual[0], append=not usual[-1]))
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if usual[first]:
                here = slice(int(begins[first]), int(begins[last - 1] + n_types[last - 1]))
                parts.append(self._put_together(types[here], begins[first:last] - here.start))
            else:
                parts.append(self._one_by_one(documents[first:last]))
        return Spelled(*map(np.concatenate, zip(*parts, strict=True)))

    def _one_by_one(self, documents: Sequence[bytes]) -> Spelled:
        return Spelled(*map(np.concatenate, zip(*map(self.spell_whole, documents), strict=True)))

    # --- new types ---------------------------------------------------------------------------------------------------

    def _learn(self, new: list[bytes]) -> None:
        """Spell types that were not met before; the list grows where the parts of one have not been met either."""
        words: list[int] = []
        others: list[int] = []
        made_of: dict[int, list[int]] = {}
        first = len(self._types) - len(new)
        for number, raw in enumerate(new):
            if raw.isalnum():  # of ASCII: half of all types, and the simplest
                words.append(number)
            elif self._parts_marks and (parts := self._parts_of(raw)):
                made_of[number] = parts
            else:
                others.append(number)
        features = {
            **{name: np.zeros(len(new), np.bool_) for name in ("is_odd", "begins_document", "begins_line")},
            **{name: np.zeros(len(new), np.uint8) for name in ("endings", "beginnings")},
        }
        keys: dict[int, str] = {number: f" {new[number].decode()}" for number in words}
        for number in words:
            if not new[number][:1].islower():
                features["beginnings"][number] = beginning(keys[number][1:])
        for number in made_of:
            text = new[number].decode()
            features["begins_document"][number] = text[0] == "\0"
            features["begins_line"][number] = text[0] in ("\0", "\n")
            text = text.lstrip("\0\n")
            features["endings"][number], features["beginnings"][number] = ending(text), beginning(text)
        together, alone = self._examine(new, others, keys, features)
        spelled = [
            self._learn_together(few, [keys[number] for number in few], plain=plain)
            for numbers, plain in ((words, True), (together, False))
            for few in batch_by_size(numbers, lambda number: len(keys[number]), AT_ONCE)
        ]
        spelled += [self._learn_alone(number, keys[number][1:]) for number in alone]
        columns = [np.concatenate(column) for column in zip(_NOTHING, *spelled, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        pieces, starts, sentences = (column[order] for column in columns[1:])
        starts[np.isin(columns[0][order], [number for number in others if new[number][:1] == _GOING_ON])] = False
        counts = np.bincount(columns[0], minlength=len(new)).astype(np.int64)
        self._tables.add(pieces=pieces, starts=starts, sentences=sentences, counts=counts, **features)
        self._tables.put_together({first + number: parts for number, parts in made_of.items()})

    def _parts_of(self, raw: bytes) -> list[int] | None:
        """The types that words with marks around them are made of; None if it is something else.

        So *(well-known)* is made of five, and *Lee's,* of three; points and apostrophes elsewhere have rules of their
        own.
        """
        match = _WORDS_AND_MARKS.fullmatch(raw)
        if match is None:
            return None
        before, words, owned, after = match.groups()
        known = self._types
        parts = [known[_INSIDE + before]] if before else []
        if b"-" in words:
            for word in words.split(b"-"):
                parts += [known[word], known[_INSIDE + b"-"]]
            parts.pop()
        else:
            parts.append(known[words])
        if owned:
            parts.append(known[_GOING_ON + owned])
        if after:
            parts.append(known[_INSIDE + after])
        return parts

    def _examine(
        self, new: Sequence[bytes], numbers: Sequence[int], keys: dict[int, str], features: dict[str, NDArray[Any]]
    ) -> tuple[list[int], list[int]]:
        """Find out about types that are not simple; which can be read together, and which have to be alone."""
        together: list[int] = []
        alone: list[int] = []
        for number in numbers:
            text = new[number].decode()
            mark = text[:1]
            features["begins_document"][number] = mark == "\0"
            features["begins_line"][number] = mark in ("\0", "\n")
            core = text.strip(_MARKS_AND_BLANKS)
            features["endings"][number] = ending(core) if core else CONTINUES
            features["beginnings"][number] = beginning(core) if core else CAPITAL
            key = self._key(text)
            if key is None:
                features["is_odd"][number] = True
            elif key:
                keys[number] = key
                (alone if key[0] == "\0" else together).append(number)
        return together, alone

    def _key(self, text: str) -> str | None:
        """A type as it is to be read: after a blank, a line's end, or a NUL for the beginning of a text.

        Empty where there is nothing to read, None where the type is odd.
        """
        mark = text[:1]
        if mark in ("\0", "\1", "\2") or (mark == "\n" and self._cuts_lines):
            core = text[1:]
        else:
            core, mark = text, " "
        if not core:
            return "" if self._blanks_are_nothing else None
        if not is_ordinary(core):
            return None
        return (" " if self._blanks_are_nothing else mark) + core

    def _learn_together(
        self, numbers: Sequence[int], keys: Sequence[str], *, plain: bool
    ) -> tuple[Ints, NDArray[Any], Bits, Bits]:
        """The pieces of many types, read as one text: whose each is, and whether it begins a word or a sentence.

        `plain` is whether each type is one word.
        """
        text = "".join(keys)
        lengths = np.fromiter(map(len, keys), np.int64, len(keys))
        ends = np.cumsum(lengths)
        joint = self._encode_jointly(text) if self._encodes_jointly else None
        if joint is None:
            ids64, spans, counts = self._encoder.encode(keys)
            ids, owners = ids64.astype(np.uint32), np.repeat(np.arange(len(keys)), counts)
            spans = spans + (ends - lengths)[owners][:, None]
        else:
            ids, spans = joint
            owners = np.searchsorted(ends, np.maximum.accumulate(spans[:, 1]), side="left")
        if plain:
            starts, sentences = np.diff(owners, prepend=-1) != 0, np.zeros(len(ids), np.bool_)
        else:
            starts, sentences = _word_starts(text, spans), _inner_sentences(keys, spans)
        return np.array(numbers, np.int64)[owners], ids, starts, sentences

    def _encode_jointly(self, text: str) -> tuple[NDArray[np.uint32], Ints] | None:
        """The pieces of a text of many types, and their spans; None if it spells out a special piece."""
        encoding = self._backend.encode(text, add_special_tokens=False)
        ids = np.array(encoding.ids, np.uint32)
        return None if self._is_literal(ids, text) else (ids, _flat_pairs(encoding.offsets))

    def _learn_alone(self, number: int, text: str) -> tuple[Ints, NDArray[Any], Bits, Bits]:
        """The pieces of a type as they are at the beginning of a text."""
        ids, spans, _ = self._encoder.encode([text])
        starts, sentences = _word_starts(text, spans), _inner_sentences([text], spans)
        return np.full(len(ids), number), ids.astype(np.uint32), starts, sentences

    def _is_literal(self, ids: NDArray[Any], text: str) -> bool:
        """Whether a text spells out a special piece, which it must not come out as."""
        return bool(np.isin(ids, self._never_in_text).any()) or (self._literal is not None and self._literal in text)


@contextlib.contextmanager
def _paused_garbage_collector() -> Iterator[None]:
    """Keep the collector from traversing the small objects of many types again and again; none is part of a cycle."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _word_starts(text: str, spans: Ints) -> Bits:
    """Which pieces are the first of a word, or of none; a blank that is a piece by itself goes with what follows."""
    parts = split_words(text)
    ends = [np.fromiter(map(attrgetter(end), parts), np.int64, len(parts)) for end in ("start", "end")]
    words = align(spans, np.stack(ends, axis=1))
    first, last = words[words[:, 0] <= words[:, 1]].T
    depth = np.zeros(len(spans) + 1, np.int64)
    np.add.at(depth, first, 1)
    np.add.at(depth, last + 1, -1)
    of_none = np.cumsum(depth)[:-1] == 0
    starts: Bits = of_none.copy()
    starts[first] = True
    blanks = [place for place in np.flatnonzero(of_none).tolist() if text[slice(*spans[place].tolist())] == " "]
    after = np.array(blanks, np.int64) + 1
    starts[after[after < len(starts)]] = False
    return starts


def _flat_pairs(pairs: Sequence[tuple[int, int]]) -> Ints:
    """Pairs as an array; several times faster than np.array on a list of tuples."""
    return np.fromiter(chain.from_iterable(pairs), np.int64, 2 * len(pairs)).reshape(-1, 2)


def _at_first_pieces(spans: Ints, places: Sequence[int]) -> Bits:
    """Which pieces are the first to have a character at some places of the text or after them."""
    first = np.searchsorted(np.maximum.accumulate(spans[:, 1]), np.array(places, np.int64), side="right")
    at = np.zeros(len(spans), np.bool_)
    at[first[first < len(spans)]] = True
    return at


def _inner_sentences(parts: Sequence[str], spans: Ints) -> Bits:
    """Which pieces begin a sentence inside one of the parts that make up a text."""
    places: list[int] = []
    begin = 0
    for part in parts:
        if len(part.split()) > 1:
            places += [begin + end for _, end in split_sentences(part)[:-1]]
        elif not part.isascii():
            places += [begin + place for place in inner_starts(part)]
        begin += len(part)
    return _at_first_pieces(spans, places)

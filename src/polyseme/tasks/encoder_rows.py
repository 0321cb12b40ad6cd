"""From items to rows: what an encoder reads of each, and where in the row the task's words stand.

A row is one call's worth of pieces: a text; a pair of texts in one frame; a question with a window of its passage; a
context with one of its choices. An item may take several (choices, windows). Encoders that have no frame for a pair
(ELMo) read the two texts in separate rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyseme.config import EncoderConfig
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.tasks.items import Item
from polyseme.text.alignment import count_unknown
from polyseme.text.documents import make_document
from polyseme.types import Document, FramedRow, Pieces, Tokenizer

Ints = NDArray[np.int64]
DELIMITER = "$"
"""What stands between two texts where the tokenizer has no special for that, as in GPT."""


@dataclass(frozen=True)
class Text:
    """One row of the encoder, and the words in it."""

    ids: Ints
    """[n], or [n, C] in characters"""
    segments: Ints
    whole: int
    """The place of the piece whose state may stand for the whole row: the start special, else the last piece."""
    words: Ints
    """[W, 2]: the first and the last piece of each of the task's words, both counted, as places in the row."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class TaskRow:
    """What the head judges at once: an item, one of its choices, or one of its windows."""

    item: int
    """The number of the item."""
    text: Text
    second: Text | None = None
    """The second text, where it is read in a row of its own."""
    first_word: int = 0
    """Which of the item's words is the row's first."""
    choice: int = 0
    """Which of the item's choices this is."""
    strings: tuple[str, ...] = ()
    """The words themselves, where inputs are learned from them."""
    second_strings: tuple[str, ...] = ()
    marks: tuple[int, ...] = ()
    """The marks of its words, where these are not those of the item's words from `first_word` on."""
    second_marks: tuple[int, ...] = ()

    @property
    def n_words(self) -> int:
        return len(self.text.words)

    def __len__(self) -> int:
        return len(self.text) + (0 if self.second is None else len(self.second))


@dataclass
class RowTally:
    """How many texts and words were read, and how many not as they stand."""

    texts: int = 0
    """Texts that were cut to fit a row."""
    empty: int = 0
    """Texts without any piece, read as one unknown piece."""
    vanished: int = 0
    """Words that the tokenizer made nothing of."""
    words: int = 0
    """All words that were read."""
    unknown: int = 0
    """Words with the unknown piece among theirs, besides those."""
    checked: int = 0
    """Words among which unknown ones were counted: each different text once, where vectors are frozen."""

    def notes(self, max_pieces: int | None) -> list[str]:
        """The numbers that are not 0, in words."""
        notes = []
        if self.texts:
            texts = "1 text was" if self.texts == 1 else f"{self.texts:,} texts were"
            notes.append(f"{texts} cut to {max_pieces:,} pieces (max_pieces)")
        if self.empty:
            notes.append("1 text is empty" if self.empty == 1 else f"{self.empty:,} texts are empty")
        if self.vanished:
            word, was = ("1 word", "was") if self.vanished == 1 else (f"{self.vanished:,} words", "were")
            notes.append(f"{word} came out as nothing and {was} read as the unknown piece")
        if self.unknown:
            share = f"{self.unknown / max(self.checked, 1):.1%} of {self.checked:,}"
            word, was = ("1 word", "was") if self.unknown == 1 else (f"{self.unknown:,} words", "were")
            notes.append(f"{word} ({share}) {was} read as the unknown piece, whole or in part")
        return notes


@dataclass
class RowMaker:
    """Makes rows for one encoder; which rows an item has, its kind of task decides (`tasks.kind.Kind.rows`)."""

    tokenizer: Tokenizer
    config: EncoderConfig
    max_pieces: int
    stride: int = 128
    with_words: bool = True
    """Whether the head reads words; otherwise their places are left out."""
    prompt: tuple[str, ...] = ()
    """What is put before each text of an item, where the answer is written: both then make up one text."""
    tally: RowTally = field(default_factory=RowTally)

    @cached_property
    def frames_pairs(self) -> bool:
        """Whether two texts can be read in one row."""
        try:
            self.tokenizer.frame(self._filler, self._filler)
        except ModelError:
            return False
        return self.config.direction != "none"

    @cached_property
    def starts(self) -> bool:
        """Whether rows have a start special whose state may stand for them."""
        if self.tokenizer.unit == "character" and self._filler.ndim > 1:
            return False
        return self._start_place(self.tokenizer.frame(self._filler)) is not None

    @cached_property
    def ends(self) -> bool:
        """Whether the frame closes a row; where it does not, an end special is put there, if there is one."""
        framed = self.tokenizer.frame(self._filler)
        return len(framed.ids) > framed.offset + len(self._filler)

    # --- items --------------------------------------------------------------------------------------------------------

    def prompted_rows(self, items: Sequence[Item]) -> list[list[TaskRow]]:
        """One row per item: its texts, each behind its prompt, for a model that writes its answers."""
        return [[TaskRow(number, text)] for number, text in enumerate(self._prompt_texts(items))]

    def _prompt_texts(self, items: Sequence[Item]) -> Iterable[Text]:
        """The item's texts, each behind its prompt, as one; where that is too long, texts are cut and prompts kept."""
        texts = [(item.text, item.second or "")[: len(self.prompt)] for item in items]
        self.tally.empty += sum(not text.strip() for pair in texts for text in pair)
        wholes = [_join_texts(self.prompt, pair) for pair in texts]
        encoded = self.encode([item_document(whole, item) for (whole, _), item in zip(wholes, items, strict=True)])
        self.tally.words -= len(items) * len(make_document("".join(self.prompt)).words)
        room = self.room_of_one()
        for (_, places), pieces in zip(wholes, encoded, strict=True):
            fits = np.ones(len(pieces), np.bool_)
            if len(pieces) > room:
                self.tally.texts += 1
                fits = self._fit_pieces(pieces, places, room)
            yield self.text(self.tokenizer.frame(pieces.ids[fits]), np.zeros((0, 2), np.int64), close=True)

    def _fit_pieces(self, pieces: Pieces, places: Sequence[tuple[int, int]], room: int) -> NDArray[np.bool_]:
        """Which pieces fit a row: those of the prompts, and as many as there is room for of the texts."""
        of_texts = _within(pieces, places)
        left = room - len(pieces) + sum(map(len, of_texts))
        if left < len(of_texts):
            raise OptionError(f"Rows of {self.max_pieces} pieces (max_pieces) have no room for any text.")
        counts = shares(len(of_texts[0]), len(of_texts[1]), left) if len(of_texts) > 1 else (left,)
        fits = np.ones(len(pieces), np.bool_)
        for places_of_text, count in zip(of_texts, counts, strict=True):
            fits[places_of_text[count:]] = False
        return fits

    def written(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The pieces of a text that is to be written: its own, and all of them, framed, with the end."""
        own = self.tokenizer.encode(make_document(text)).ids
        whole = self.text(self.tokenizer.frame(own), np.zeros((0, 2), np.int64), close=True).ids
        return tuple(own.tolist()), tuple(whole.tolist())

    # --- rows ---------------------------------------------------------------------------------------------------------

    def single(self, pieces: Pieces) -> Text:
        """A row with one text, truncated to fit."""
        pieces = self.cut(pieces, self.room_of_one())
        framed = self.tokenizer.frame(pieces.ids)
        return self.text(framed, pieces.words + framed.offset, close=True)

    def two(self, first: Pieces, second: Pieces) -> tuple[Text, Text | None]:
        """A row with two texts, truncated to fit; a row for each where the tokenizer has no frame for a pair."""
        if not self.frames_pairs:
            return self.single(first), self.single(second)
        room = self.room_of_pair()
        if len(first) + len(second) > room:
            self.tally.texts += 1
        n_first, n_second = shares(len(first), len(second), room)
        first, second = self.cut(first, n_first, counted=True), self.cut(second, n_second, counted=True)
        framed = self.frame_pair(first.ids, second.ids)
        after = framed.pair_offset or 0
        words = np.concatenate([first.words + framed.offset, second.words + after])
        return self.text(framed, words, close=True), None

    def frame_pair(self, first: Ints, second: Ints) -> FramedRow:
        """Two texts in a row; where the frame puts nothing between them, a delimiter does."""
        if not len(self._between):
            return self.tokenizer.frame(first, second)
        ids = np.concatenate([first, self._between, second])
        framed = self.tokenizer.frame(ids)
        return FramedRow(framed.ids, framed.segments, framed.offset, framed.offset + len(first) + len(self._between))

    def text(self, framed: FramedRow, words: Ints, *, close: bool = False) -> Text:
        """A framed row, with the places of its words; `close`: with an end special where the frame has none."""
        ids, segments = framed.ids, framed.segments
        if close and not self.ends and self._closes:
            ids = np.concatenate([ids, self._end])
            segments = np.concatenate([segments, segments[-1:] if len(segments) else np.zeros(1, np.int64)])
        start = self._start_place(framed) if self.starts else None
        whole = len(ids) - 1 if start is None or self.config.direction == "causal" else start
        return Text(ids, segments, whole, words if self.with_words else words[:0])

    def cut(self, pieces: Pieces, room: int, *, counted: bool = False) -> Pieces:
        """The pieces that fit, with the words that are whole; counted as truncated, unless that was done already."""
        if room < 1:
            raise OptionError(f"Rows of {self.max_pieces} pieces (max_pieces) have no room for any text.")
        if len(pieces) <= room:
            return pieces
        if not counted:
            self.tally.texts += 1
        words = pieces.words[pieces.words[:, 1] < room]
        return Pieces(pieces.ids[:room], pieces.spans[:room], words)

    def room_of_one(self) -> int:
        """Pieces that a text has in a row of its own."""
        return self.max_pieces - self.tokenizer.n_specials - (0 if self.ends or not self._closes else 1)

    def room_of_pair(self) -> int:
        """Pieces that two texts have together in a row."""
        framed = self.frame_pair(self._filler, self._filler)
        closing = 0 if self.ends or not self._closes else 1
        return self.max_pieces - (len(framed.ids) - 2 * len(self._filler)) - closing

    def _start_place(self, framed: FramedRow) -> int | None:
        if "start" not in self.tokenizer.specials:
            return None
        start = self.tokenizer.specials["start"]
        if framed.offset and framed.ids[0] == start:
            return 0
        return len(framed.ids) - 1 if not framed.offset and framed.ids[-1] == start and self._start_is_last else None

    @cached_property
    def _start_is_last(self) -> bool:
        """Whether the start special ends the row, as in XLNet."""
        framed = self.tokenizer.frame(self._filler)
        after = framed.ids[framed.offset + len(self._filler) :]
        return bool(len(after)) and bool((after[-1] == self.tokenizer.specials["start"]).all())

    @cached_property
    def _closes(self) -> bool:
        return "end" in self.tokenizer.specials and self._filler.ndim == 1

    @cached_property
    def _end(self) -> Ints:
        return np.array([self.tokenizer.specials["end"]], dtype=np.int64)

    @cached_property
    def _between(self) -> Ints:
        """What is put between two texts where the frame has nothing for it."""
        framed = self.tokenizer.frame(self._filler, self._filler)
        if framed.pair_offset != framed.offset + len(self._filler):
            return self._filler[:0]
        return self._end if self._closes else self.tokenizer.encode(make_document([DELIMITER])).ids

    @cached_property
    def _filler(self) -> Ints:
        """One piece of any text."""
        return self.tokenizer.encode(make_document(["a"])).ids[:1]

    # --- pieces -------------------------------------------------------------------------------------------------------

    def encode(self, documents: Sequence[Document]) -> list[Pieces]:
        """The pieces of texts, without specials."""
        encoded = self.tokenizer.encode_many(documents)
        self.tally.vanished += sum(pieces.n_unknown for pieces in encoded)
        n_words = sum(len(pieces.words) for pieces in encoded)
        self.tally.words += n_words
        self.tally.checked += n_words
        self.tally.unknown += count_unknown(encoded, self.tokenizer)
        return [pieces if len(pieces) else self._empty_text() for pieces in encoded]

    def encode_once(self, texts: Sequence[str]) -> dict[str, Pieces]:
        """The pieces of texts of which many are the same, each encoded once."""
        different = list(dict.fromkeys(texts))
        return dict(zip(different, self.encode([make_document(text) for text in different]), strict=True))

    def _empty_text(self) -> Pieces:
        """An empty text: nothing between the frame's specials, or where there are none, the unknown piece."""
        self.tally.empty += 1
        empty = np.zeros((0, 2), np.int64)
        if self.tokenizer.n_specials or self._closes:
            return Pieces(self._filler[:0], empty, empty)
        unknown = self.tokenizer.specials.get("unknown")
        ids = self._filler if unknown is None else np.array([unknown], np.int64)
        return Pieces(ids, np.zeros((1, 2), np.int64), empty)


def word_rows(
    items: Sequence[Item], seconds: Callable[[Item], Sequence[Document | None]], *, strings: bool = False
) -> list[list[TaskRow]]:
    """The rows of each item where no encoder reads them: texts as so many words, two of them in separate rows.

    `seconds` gives the texts that are read with the first, one per row (`Kind.seconds`).
    """

    def read(document: Document) -> tuple[Text, tuple[str, ...]]:
        n_words = len(document.words)
        none = np.zeros(n_words, np.int64)
        words = tuple(map(str, document.words)) if strings else ()
        return Text(none, none, 0, np.zeros((n_words, 2), np.int64)), words

    rows_by_item: list[list[TaskRow]] = []
    for number, item in enumerate(items):
        text, words = read(document_of(item))
        rows = []
        for place, other in enumerate(seconds(item)):
            second, second_words = (None, ()) if other is None else read(other)
            rows.append(TaskRow(number, text, second, 0, place, words, second_words))
        rows_by_item.append(rows)
    return rows_by_item


def document_of(item: Item) -> Document:
    """An item's text with its words: given, or found."""
    return item_document(list(item.words) if item.words else item.text, item)


def second_of(item: Item) -> Document:
    """The second text of a pair, the question of a span task."""
    return item_document(item.second or "", item)


def other_documents(item: Item) -> list[Document]:
    """The texts of an item besides the first: its choices, or its second text."""
    if item.choices:
        return [item_document(choice, item) for choice in item.choices]
    return [] if item.second is None else [second_of(item)]


def item_document(content: str | list[str], item: Item) -> Document:
    """A text, or words, as a document; errors name the item's place."""
    try:
        return make_document(content)
    except InputError as error:
        raise InputError(f"{item.place}: {error}" if item.place else str(error)) from None


def shares(first: int, second: int, room: int) -> tuple[int, int]:
    """How many pieces of each of two texts fit: the longer one is cut first.

    >>> shares(3, 20, 10), shares(30, 20, 10), shares(2, 3, 10)
    ((3, 7), (5, 5), (2, 3))
    """
    if first + second <= room:
        return first, second
    half = room // 2
    if first <= half:
        return first, room - first
    if second <= room - half:
        return room - second, second
    return half, room - half


def overlapping_windows(passage: Pieces, room: int, overlap: int) -> list[tuple[int, int]]:
    """Windows of a passage, each beginning `overlap` pieces before the last one's end, or at a word that this cut."""
    windows, start = [], 0
    while True:
        end = min(start + room, len(passage))
        windows.append((start, end))
        if end == len(passage):
            return windows
        cut_words = passage.words[(passage.words[:, 1] >= end) & (passage.words[:, 0] > start)]
        following = min(end - overlap, int(cut_words[0, 0]) if len(cut_words) else end)
        start = max(following, start + 1)


def _join_texts(prompt: Sequence[str], texts: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The whole that is read, and where in it the texts stand.

    >>> _join_texts(("a: ", "b: "), ("Dawn", "broke"))
    ('a: Dawn b: broke', [(3, 7), (11, 16)])
    """
    whole, places = "", []
    for each, text in zip(prompt, texts, strict=True):
        whole += f"{' ' if whole else ''}{each}"
        places.append((len(whole), len(whole) + len(text)))
        whole += text
    return whole, places


def _within(pieces: Pieces, places: Sequence[tuple[int, int]]) -> list[NDArray[np.int64]]:
    """Which pieces of the whole are of each text; the others are the prompts'."""
    ends = pieces.spans[:, 1]
    return [np.flatnonzero((ends > start) & (ends <= end)) for start, end in places]

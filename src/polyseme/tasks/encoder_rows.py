"""From items to rows: what an encoder reads of each, and where in the row the task's words stand.

A row is one call's worth of pieces: a text; a pair of texts in one frame; a question with a window of its passage; a
context with one of its choices. An item may take several (choices, windows). Encoders that have no frame for a pair
(ELMo) read the two texts apart, each in a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.config import EncoderConfig
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.tasks.items import Item
from polyseme.text.documents import make_document
from polyseme.text.windows import cut
from polyseme.types import Document, Framed, Pieces, Tokenizer

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
    """The second text, where the two are read apart."""
    first_word: int = 0
    """Which of the item's words is the row's first."""
    choice: int = 0
    """Which of the item's choices this is."""
    strings: tuple[str, ...] = ()
    """The words themselves, where inputs are learned from them."""
    second_strings: tuple[str, ...] = ()

    @property
    def n_words(self) -> int:
        return len(self.text.words)

    def __len__(self) -> int:
        return len(self.text) + (0 if self.second is None else len(self.second))


@dataclass
class Cut:
    """What was not read as it stands."""

    texts: int = 0
    """Texts that were cut to fit a row."""
    empty: int = 0
    """Texts without any piece, read as one unknown piece."""
    vanished: int = 0
    """Words that the tokenizer made nothing of."""
    words: int = 0
    """All words that were read."""

    def notes(self, max_pieces: int | None) -> list[str]:
        said = []
        if self.texts:
            said.append(f"{self.texts:,} texts were cut to {max_pieces:,} pieces (max_pieces)")
        if self.empty:
            said.append(f"{self.empty:,} texts are empty")
        if self.vanished:
            said.append(f"{self.vanished:,} words came out as nothing and were read as the unknown piece")
        return said


@dataclass
class RowMaker:
    """Makes rows of items for one encoder."""

    tokenizer: Tokenizer
    config: EncoderConfig
    max_pieces: int
    stride: int = 128
    with_words: bool = True
    """Whether the head reads words; otherwise their places are left out."""
    prompt: tuple[str, ...] = ()
    """What is put before each text of an item, where the answer is written: both then make up one text."""
    tally: Cut = field(default_factory=Cut)

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

    def rows(self, kind: str, items: Sequence[Item]) -> list[list[TaskRow]]:
        """The rows of each item."""
        if self.prompt:
            return [[TaskRow(number, text)] for number, text in enumerate(self._prompted(items))]
        makers = {
            "classify": self._classify,
            "pair": self._pair,
            "tag": self._tag,
            "span": self._span,
            "choose": self._choose,
        }
        made = list(makers[kind](items))
        return [[TaskRow(number, *parts) for parts in each] for number, each in enumerate(made)]

    def _classify(self, items: Sequence[Item]) -> Iterable[list[Any]]:
        for pieces in self._encoded([document_of(item) for item in items]):
            yield [(self._single(pieces),)]

    def _pair(self, items: Sequence[Item]) -> Iterable[list[Any]]:
        firsts = self._encoded([document_of(item) for item in items])
        seconds = self._encoded([second_of(item) for item in items])
        for first, second in zip(firsts, seconds, strict=True):
            yield [self._two(first, second)]

    def _choose(self, items: Sequence[Item]) -> Iterable[list[Any]]:
        contexts = self._encoded([document_of(item) for item in items])
        choices = self._encoded([_read(choice, item) for item in items for choice in item.choices])
        taken = 0
        for item, context in zip(items, contexts, strict=True):
            some = choices[taken : taken + len(item.choices)]
            taken += len(some)
            yield [(*self._two(context, choice), 0, number) for number, choice in enumerate(some)]

    def _prompted(self, items: Sequence[Item]) -> Iterable[Text]:
        """The item's texts, each behind its prompt, as one; where that is too long, texts are cut and prompts kept."""
        texts = [(item.text, item.second or "")[: len(self.prompt)] for item in items]
        self.tally.empty += sum(not text.strip() for some in texts for text in some)
        wholes = [_joined(self.prompt, some) for some in texts]
        encoded = self._encoded([_read(whole, item) for (whole, _), item in zip(wholes, items, strict=True)])
        self.tally.words -= len(items) * len(make_document("".join(self.prompt)).words)
        room = self._room_of_one()
        for (_, places), pieces in zip(wholes, encoded, strict=True):
            kept = np.ones(len(pieces), np.bool_)
            if len(pieces) > room:
                self.tally.texts += 1
                kept = self._fitting(pieces, places, room)
            yield self._text(self.tokenizer.frame(pieces.ids[kept]), np.zeros((0, 2), np.int64), close=True)

    def _fitting(self, pieces: Pieces, places: Sequence[tuple[int, int]], room: int) -> NDArray[np.bool_]:
        """Which pieces fit a row: those of the prompts, and as many as there is room for of the texts."""
        of_texts = _within(pieces, places)
        left = room - len(pieces) + sum(map(len, of_texts))
        if left < len(of_texts):
            raise OptionError(f"Rows of {self.max_pieces} pieces (max_pieces) have no room for any text.")
        counts = shares(len(of_texts[0]), len(of_texts[1]), left) if len(of_texts) > 1 else (left,)
        kept = np.ones(len(pieces), np.bool_)
        for its, count in zip(of_texts, counts, strict=True):
            kept[its[count:]] = False
        return kept

    def written(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The pieces of a text that is to be written: its own, and all of them, framed, with the end."""
        own = self.tokenizer.encode(make_document(text)).ids
        whole = self._text(self.tokenizer.frame(own), np.zeros((0, 2), np.int64), close=True).ids
        return tuple(own.tolist()), tuple(whole.tolist())

    def _tag(self, items: Sequence[Item]) -> Iterable[list[Any]]:
        """Sentences longer than a row are read in windows, each of which tags the words it keeps."""
        for item, pieces in zip(items, self._encoded([document_of(item) for item in items]), strict=True):
            room = self.max_pieces - self.tokenizer.n_specials
            made = []
            for window in cut(len(pieces), room, self.config.direction):
                kept = (pieces.words[:, 0] >= window.keep_start) & (pieces.words[:, 0] < window.keep_end)
                words = np.flatnonzero(kept)
                if not len(words):
                    continue
                framed = self.tokenizer.frame(pieces.ids[window.start : window.end])
                places = np.minimum(pieces.words[words], window.end - 1) - window.start + framed.offset
                made.append((self._text(framed, places), None, int(words[0])))
            if sum(len(each[0].words) for each in made) != len(pieces.words):
                raise InputError(f"{item.place or 'A sentence'}: its words cannot be read in windows.")
            yield made

    def _span(self, items: Sequence[Item]) -> Iterable[list[Any]]:
        """The question with one window of the passage after another; they overlap by `stride` pieces."""
        passages = self._encoded_once([item.text for item in items])
        questions = self._encoded([second_of(item) for item in items])
        for item, question in zip(items, questions, strict=True):
            passage = passages[item.text]
            if not self.frames_pairs:
                yield [(self._single(passage), self._single(question), 0)]
                continue
            room = self._room_of_pair()
            asked = self._cut(question, max(room // 2, 1))
            left = room - len(asked)
            made = []
            for start, end in _windows(passage, left, min(self.stride, left // 2)):
                whole = np.flatnonzero((passage.words[:, 0] >= start) & (passage.words[:, 1] < end))
                framed = self._framed_pair(asked.ids, passage.ids[start:end])
                offset = framed.pair_offset
                if offset is None:
                    raise ModelError("The tokenizer's frame of a pair does not say where the second text stands.")
                first = int(whole[0]) if len(whole) else 0
                made.append((self._text(framed, passage.words[whole] - start + offset), None, first))
            yield made

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _single(self, pieces: Pieces) -> Text:
        pieces = self._cut(pieces, self._room_of_one())
        framed = self.tokenizer.frame(pieces.ids)
        return self._text(framed, pieces.words + framed.offset, close=True)

    def _two(self, first: Pieces, second: Pieces) -> tuple[Text, Text | None]:
        if not self.frames_pairs:
            return self._single(first), self._single(second)
        room = self._room_of_pair()
        if len(first) + len(second) > room:
            self.tally.texts += 1
        n_first, n_second = shares(len(first), len(second), room)
        first, second = self._cut(first, n_first, said=True), self._cut(second, n_second, said=True)
        framed = self._framed_pair(first.ids, second.ids)
        after = framed.pair_offset or 0
        words = np.concatenate([first.words + framed.offset, second.words + after])
        return self._text(framed, words, close=True), None

    def _framed_pair(self, first: Ints, second: Ints) -> Framed:
        """Two texts in a row; where the frame puts nothing between them, a delimiter does."""
        if not len(self._between):
            return self.tokenizer.frame(first, second)
        ids = np.concatenate([first, self._between, second])
        framed = self.tokenizer.frame(ids)
        return Framed(framed.ids, framed.segments, framed.offset, framed.offset + len(first) + len(self._between))

    def _text(self, framed: Framed, words: Ints, *, close: bool = False) -> Text:
        ids, segments = framed.ids, framed.segments
        if close and not self.ends and self._closes:
            ids = np.concatenate([ids, self._end])
            segments = np.concatenate([segments, segments[-1:] if len(segments) else np.zeros(1, np.int64)])
        start = self._start_place(framed) if self.starts else None
        whole = len(ids) - 1 if start is None or self.config.direction == "causal" else start
        return Text(ids, segments, whole, words if self.with_words else words[:0])

    def _cut(self, pieces: Pieces, room: int, *, said: bool = False) -> Pieces:
        if room < 1:
            raise OptionError(f"Rows of {self.max_pieces} pieces (max_pieces) have no room for any text.")
        if len(pieces) <= room:
            return pieces
        if not said:
            self.tally.texts += 1
        words = pieces.words[pieces.words[:, 1] < room]
        return Pieces(pieces.ids[:room], pieces.spans[:room], words)

    def _room_of_one(self) -> int:
        return self.max_pieces - self.tokenizer.n_specials - (0 if self.ends or not self._closes else 1)

    def _room_of_pair(self) -> int:
        framed = self._framed_pair(self._filler, self._filler)
        closing = 0 if self.ends or not self._closes else 1
        return self.max_pieces - (len(framed.ids) - 2 * len(self._filler)) - closing

    def _start_place(self, framed: Framed) -> int | None:
        if "start" not in self.tokenizer.specials:
            return None
        start = self.tokenizer.specials["start"]
        if framed.offset and framed.ids[0] == start:
            return 0
        return len(framed.ids) - 1 if not framed.offset and framed.ids[-1] == start and self._start_is_last else None

    @cached_property
    def _start_is_last(self) -> bool:
        """XLNet's way."""
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

    def _encoded(self, documents: Sequence[Document]) -> list[Pieces]:
        found = self.tokenizer.encode_many(documents)
        self.tally.vanished += sum(pieces.n_unknown for pieces in found)
        self.tally.words += sum(len(pieces.words) for pieces in found)
        return [pieces if len(pieces) else self._nothing() for pieces in found]

    def _encoded_once(self, texts: Sequence[str]) -> dict[str, Pieces]:
        """Texts that come again and again, each read once."""
        different = list(dict.fromkeys(texts))
        return dict(zip(different, self._encoded([make_document(text) for text in different]), strict=True))

    def _nothing(self) -> Pieces:
        """An empty text: nothing between the frame's specials, or where there are none, the unknown piece."""
        self.tally.empty += 1
        empty = np.zeros((0, 2), np.int64)
        if self.tokenizer.n_specials or self._closes:
            return Pieces(self._filler[:0], empty, empty)
        unknown = self.tokenizer.specials.get("unknown")
        ids = self._filler if unknown is None else np.array([unknown], np.int64)
        return Pieces(ids, np.zeros((1, 2), np.int64), empty)


def word_rows(kind: str, items: Sequence[Item], *, strings: bool = False) -> list[list[TaskRow]]:
    """The rows of each item where no encoder reads them: texts as so many words, two of them apart."""

    def read(found: Document) -> tuple[Text, tuple[str, ...]]:
        n_words = len(found.words)
        none = np.zeros(n_words, np.int64)
        return Text(none, none, 0, np.zeros((n_words, 2), np.int64)), tuple(map(str, found.words)) if strings else ()

    made: list[list[TaskRow]] = []
    for number, item in enumerate(items):
        text, words = read(document_of(item))
        others: list[Document | None] = [None]
        if kind == "choose":
            others = [_read(choice, item) for choice in item.choices]
        elif kind in ("pair", "span"):
            others = [second_of(item)]
        rows = []
        for place, other in enumerate(others):
            second, second_words = (None, ()) if other is None else read(other)
            rows.append(TaskRow(number, text, second, 0, place, words, second_words))
        made.append(rows)
    return made


def document_of(item: Item) -> Document:
    """An item's text with its words: given, or found."""
    return _read(list(item.words) if item.words else item.text, item)


def second_of(item: Item) -> Document:
    """The second text of a pair, the question of a span task."""
    return _read(item.second or "", item)


def _read(content: str | list[str], item: Item) -> Document:
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


def _windows(passage: Pieces, room: int, overlap: int) -> list[tuple[int, int]]:
    """Windows of a passage, each beginning `overlap` pieces before the last one's end, or at a word that this cut."""
    found, start = [], 0
    while True:
        end = min(start + room, len(passage))
        found.append((start, end))
        if end == len(passage):
            return found
        cut_words = passage.words[(passage.words[:, 1] >= end) & (passage.words[:, 0] > start)]
        following = min(end - overlap, int(cut_words[0, 0]) if len(cut_words) else end)
        start = max(following, start + 1)


def _joined(prompt: Sequence[str], texts: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The whole that is read, and where in it the texts stand.

    >>> _joined(("a: ", "b: "), ("Dawn", "broke"))
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

"""The main job as a flow: documents → pieces → windows → flat rows by length → encoder → word vectors, in order.

Memory is bounded by a chunk's output: layers are combined and pieces pooled batch by batch, and of a document that
takes many windows only the few words that lie across two of them wait for the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.cost import Tally, forward_flops
from polyseme.embedding.decoder_stack import BothSides, Stack, check_stack, decoder_of
from polyseme.embedding.layer_selection import parse_layers
from polyseme.embedding.piece_states import to_numpy
from polyseme.embedding.pooled_uses import PooledUses
from polyseme.embedding.pooling import check_per, parse_pooling, per_text
from polyseme.embedding.text_pooling import PooledRow, TextSums, text_pooling_of
from polyseme.encoders.batch_runner import BATCH_PIECES, MUCH_WORK, Ints, MemoryLimit, run_batches
from polyseme.encoders.inference import CarriesMemory, InferenceEncoder, PackedRows, Precision, build_inference_encoder
from polyseme.errors import Advice, ModelError, OptionError, PolysemeWarning
from polyseme.files.vector_files import Per
from polyseme.parts.memory_and_cache import Memory
from polyseme.text.alignment import count_unknown
from polyseme.text.windows import Window, cut
from polyseme.types import Document, EmbeddedDocument, FramedRow, OnBatch, Pieces

WORDS_AT_ONCE = 8192
"""Words that are pooled together."""
ROWS_CARRIED = 64
"""Texts in a batch where state is carried from batch to batch, as in the original ELMo."""


def warn_unread(tally: Tally, tokenizer: str = "The model's tokenizer") -> None:
    """Report, once, which words were not read as they are: those that make no piece, and unknown ones."""
    if tally.vanished:
        warnings.warn(
            f"{tokenizer} makes nothing of {_words(tally.vanished)} (control or zero-width characters); each "
            "was given the unknown piece, so that it has a vector.",
            PolysemeWarning,
            stacklevel=3,
        )
    if tally.unknown:
        warnings.warn(
            f"{tokenizer} has no pieces for {_words(tally.unknown)}{_share(tally)}, whole or in part; "
            "what it lacks was read as the unknown piece, so that such words have vectors as if they were one.",
            PolysemeWarning,
            stacklevel=3,
        )


def _share(tally: Tally) -> str:
    return f" ({tally.unknown / tally.words:.1%} of {tally.words:,})" if tally.words else ""


def _words(count: int) -> str:
    return f"{count:,} word{'' if count == 1 else 's'}"


def _refuse_no_numbers(vectors: Tensor, batch: Sequence[_Row], documents: Sequence[Document]) -> None:
    """Refuse states with NaN or infinity in them; their sum alone shows that there may be some."""
    if bool(torch.isfinite(vectors.sum())):
        return
    spoilt = (~torch.isfinite(vectors).flatten(1).all(1)).cpu().numpy()
    if not spoilt.any():
        return
    row = batch[int(np.searchsorted(np.cumsum([len(each) for each in batch]), spoilt.argmax(), side="right"))]
    raise ModelError(
        f"The model's vectors of text {documents[row.document].id!r} are no numbers (NaN, or infinite). Its weights "
        "are damaged, or too large for the dtype they are computed in: take another copy of the model.",
        Advice("dtype", "Or compute with {}.", "fp32"),
    )


@dataclass
class CarriedMemory:
    """The state in which each row of the last batch ended, from which the same row of the next one continues."""

    memory: Memory | None = None


@dataclass
class _Row:
    """One window of one document, framed."""

    document: int
    window: Window
    framed: FramedRow

    def __len__(self) -> int:
        return len(self.framed.ids)

    def pooled(self, n_pieces: int) -> PooledRow:
        """The row as one vector per text is pooled from it; its document has so many pieces."""
        return PooledRow(self.document, self.window, n_pieces, self.framed.offset, len(self))


_Pending = list[tuple[NDArray[np.int64], Tensor]]
"""Pieces of words that lie across two windows, with their vectors, until all of them are there."""


class Embedder:
    """Documents in, documents with a vector for every word, or one for each document, out, in their order."""

    def __init__(
        self,
        bundle: Bundle,
        *,
        layer: str | int = -1,
        pool: str | None = None,
        stack: Stack = "encoder",
        per: Per = "word",
        text_pool: str | None = None,
        pool_uses: str | None = None,
        batch_pieces: int | None = None,
        precision: Precision = "own",
        inference: InferenceEncoder | None = None,
        carried: CarriedMemory | None = None,
    ) -> None:
        if batch_pieces is not None and batch_pieces < 1:
            raise OptionError(f"A batch must have room for at least 1 piece. Got {batch_pieces} instead.")
        check_stack(bundle, stack)
        check_per(per)
        if text_pool is not None and per != "text":
            raise OptionError("text_pool (--text-pool) is for one vector per text. Add per='text' (--per text).")
        self.tokenizer = bundle.text_tokenizer
        self.config = decoder_of(bundle).config if stack == "decoder" else bundle.config
        self.below = bundle.config if stack == "decoder" else None
        """What is run beside, where vectors are a decoder's: the encoder that it reads."""
        self.choice = parse_layers(layer, self.config)
        self.pool = self.config.usual_pooling if pool is None else pool
        self.pooling = parse_pooling(self.pool, self.config, self.choice.side_by_side(self.config))
        self.per = per
        at_top = self.choice.layers == (self.config.depth,) and stack == "encoder"
        self.text_pooling = None if per == "word" else text_pooling_of(bundle, text_pool, at_top=at_top)
        """How a text's vector is pooled from all its pieces; None: it is the mean of its words."""
        width = self.choice.width(self.config)
        width = width if self.text_pooling is None else self.text_pooling.width(width)
        self.shape: tuple[int, ...] = (len(self.choice.layers), width) if self.choice.mode == "all" else (width,)
        """Of one vector: (D,), or (layers, D) for all layers."""
        self._computed = self.shape
        self.pooled_uses = None if pool_uses is None else PooledUses(pool_uses)
        if self.pooled_uses is not None:
            if per != "word" or len(self.shape) > 1:
                raise OptionError("Uses of a word are pooled (pool_uses) where each has one vector, per word.")
            self.shape = (2 * width,)
            self.pool += f", with the {pool_uses} of a word's uses"
        self.inference = build_inference_encoder(bundle.encoder, precision) if inference is None else inference
        if stack == "decoder":
            self.inference = BothSides(bundle, self.inference)
        if carried is not None and not (isinstance(self.inference, CarriesMemory) and bundle.config.memory == "state"):
            raise OptionError("This encoder has no state to carry from text to text. Leave carry_state off.")
        self.carried = carried
        self.precision = precision
        self.device = bundle.device
        is_double = any(each.dtype == torch.float64 for each in bundle.encoder.parameters())
        self.dtype = np.dtype(np.float64 if is_double else np.float32)
        """Of the vectors: that of the weights, where it is a NumPy one of enough precision."""
        self.batch_pieces = batch_pieces or BATCH_PIECES.get(precision) or BATCH_PIECES[self.device.type]
        self.memory_limit = MemoryLimit(self.device)
        self.tally = Tally()
        self.n_pieces: list[int] | None = None
        """Where a list is set, it grows by the number of pieces that were read of each document."""

    def __call__(self, documents: Sequence[Document], on_batch: OnBatch | None = None) -> list[EmbeddedDocument]:
        """One chunk; batches never cross it."""
        return self.embed(documents, self.encode(documents), on_batch)

    def encode(self, documents: Sequence[Document]) -> list[Pieces]:
        """Their pieces."""
        return self.tokenizer.encode_many(documents)

    def prepare(self) -> None:
        """Prepare for much work."""
        self.inference.prepare()

    def warn_unread(self) -> None:
        """Report, once, which words were not read as they are."""
        warn_unread(self.tally)

    def embed(
        self, documents: Sequence[Document], encoded: Sequence[Pieces], on_batch: OnBatch | None = None
    ) -> list[EmbeddedDocument]:
        """The same for documents that are in pieces already."""
        twins = _twins(encoded) if self.carried is None else {}
        rows = list(self._rows(encoded, without=twins))
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        self.inference.warm_up([row.framed.ids for row in rows])
        word_vectors = [self._room(pieces) for pieces in encoded]
        pending: dict[int, _Pending] = {}
        texts = None
        if self.text_pooling is not None:
            texts = TextSums(self.text_pooling, len(encoded), self.tokenizer.n_specials)

        def run(numbers: Ints) -> None:
            batch = [rows[number] for number in numbers.tolist()]
            vectors = self.choice.combine(self._states(self._flat(batch)))
            _refuse_no_numbers(vectors, batch, documents)
            if texts is None:
                self._take_words(batch, vectors, encoded, word_vectors, pending)
            else:
                texts.take([row.pooled(len(encoded[row.document])) for row in batch], vectors)

        for _ in self._run_batches(run, lengths, on_batch):
            pass
        for number, parts in pending.items():
            self._finish(encoded[number], parts, word_vectors[number])
        if texts is not None:
            texts.finish(word_vectors)
        for number, first in twins.items():
            word_vectors[number][:] = word_vectors[first]
        self.tally.documents += len(documents)
        self.tally.words += sum(len(pieces.words) for pieces in encoded)
        counts = _pieces_by_document(rows, twins, len(documents))
        self.tally.pieces += sum(counts)
        if self.n_pieces is not None:
            self.n_pieces += counts
        share = self.config.share_up_to(max(self.choice.layers))
        self.tally.flops += share * forward_flops(self.config, lengths.tolist())
        if self.below is not None:
            self.tally.flops += forward_flops(self.below, lengths.tolist())
        self.tally.vanished += sum(pieces.n_unknown for pieces in encoded)
        self.tally.unknown += count_unknown(encoded, self.tokenizer)
        self.tally.wordless += sum(not len(pieces.words) for pieces in encoded)
        embedded = [_embedded(document, vectors) for document, vectors in zip(documents, word_vectors, strict=True)]
        if self.pooled_uses is not None:
            return self.pooled_uses(embedded)
        return embedded if self.per == "word" else per_text(embedded)

    @property
    def depends_on_order(self) -> bool:
        """Whether a vector depends on texts that were read before, so that work cannot be resumed in its middle."""
        return self.carried is not None or self.pooled_uses is not None

    def _run_batches(self, run: Callable[[Ints], None], lengths: Ints, on_batch: OnBatch | None) -> Iterator[None]:
        """Rows by length; where state is carried, as they come, so many at a time."""
        if self.carried is None:
            yield from run_batches(
                run,
                lengths,
                encoder=self.inference,
                limit=self.memory_limit,
                batch_pieces=self.batch_pieces,
                on_batch=on_batch,
            )
            return
        done, total = 0, int(lengths.sum())
        if total >= MUCH_WORK:
            self.inference.prepare()
        for start in range(0, len(lengths), ROWS_CARRIED):
            numbers = np.arange(start, min(start + ROWS_CARRIED, len(lengths)))
            run(numbers)
            yield
            done += int(lengths[numbers].sum())
            if on_batch is not None:
                on_batch(done, total)

    def _states(self, rows: PackedRows) -> dict[int, Tensor]:
        """The requested layers; where state is carried, each row continues the same row of the batch before."""
        if self.carried is None or not isinstance(self.inference, CarriesMemory):
            return self.inference(rows, self.choice.layers)
        states, self.carried.memory = self.inference.carry(rows, self.choice.layers, self.carried.memory)
        return states

    def _rows(self, encoded: Sequence[Pieces], without: Container[int]) -> Iterator[_Row]:
        room = None if self.config.window is None else self.config.window - self.tokenizer.n_specials
        capacity = room if room is None or self.below is None else room - 1  # for what a decoder begins with
        direction = self.config.direction if self.below is None else self.below.direction
        for number, pieces in enumerate(encoded):
            if not len(pieces.words) or number in without:
                continue
            for window in cut(len(pieces), capacity, direction):
                yield _Row(number, window, self.tokenizer.frame(pieces.ids[window.start : window.end]))

    def _room(self, pieces: Pieces) -> NDArray[Any]:
        """Where a document's vectors go."""
        n_vectors = len(pieces.words) if self.text_pooling is None else 1
        return np.empty((n_vectors, *self._computed), dtype=self.dtype)

    def _flat(self, batch: Sequence[_Row]) -> PackedRows:
        ids = torch.from_numpy(np.concatenate([row.framed.ids for row in batch]))
        segments = torch.from_numpy(np.concatenate([row.framed.segments for row in batch]))
        return PackedRows(
            ids.to(self.device), segments.to(self.device) if bool(segments.any()) else None, [len(row) for row in batch]
        )

    def _take_words(
        self,
        batch: Sequence[_Row],
        vectors: Tensor,
        encoded: Sequence[Pieces],
        word_vectors: list[NDArray[Any]],
        pending: dict[int, _Pending],
    ) -> None:
        """Pool the words that lie whole in what a window keeps; set aside pieces of those that do not."""
        spans: list[NDArray[np.int64]] = []
        places: list[tuple[int, int, int]] = []
        parts: list[tuple[int, NDArray[np.int64], Tensor]] = []
        start = 0
        for row in batch:
            words, window = encoded[row.document].words, row.window
            shift = start + row.framed.offset - window.start  # from the document's pieces to the batch's
            begin = int(np.searchsorted(words[:, 0], window.keep_start))
            end = int(np.searchsorted(words[:, 1], window.keep_end))
            if end > begin:
                spans.append(words[begin:end] + shift)
                places.append((row.document, begin, end))
            split = _split_pieces(words, window, begin, max(begin, end))
            if len(split):
                theirs = vectors[torch.from_numpy(split + shift).to(vectors.device)].cpu()
                parts.append((row.document, split, theirs))
            start += len(row)
        if spans:
            self._pool_words(vectors, spans, places, word_vectors)
        for number, split, theirs in parts:  # last, since memory may run out before
            pending.setdefault(number, []).append((split, theirs))

    def _pool_words(
        self,
        vectors: Tensor,
        spans: Sequence[NDArray[np.int64]],
        places: Sequence[tuple[int, int, int]],
        word_vectors: list[NDArray[Any]],
    ) -> None:
        """Pool each of `spans` of pieces. A place is a document, its first word, and the end of its words."""
        bounds = torch.from_numpy(np.concatenate(spans)).to(vectors.device)
        if len(places) == 1:  # perhaps a long document: its vectors are not all held twice
            [(number, begin, end)] = places
            for part in bounds.split(WORDS_AT_ONCE):
                word_vectors[number][begin : begin + len(part)] = to_numpy(
                    self.pooling(vectors, part[:, 0], part[:, 1])
                )
                begin += len(part)
            return
        pooled = to_numpy(self.pooling(vectors, bounds[:, 0], bounds[:, 1]))
        taken = 0
        for number, begin, end in places:
            word_vectors[number][begin:end] = pooled[taken : taken + end - begin]
            taken += end - begin

    def _finish(self, pieces: Pieces, parts: _Pending, room: NDArray[Any]) -> None:
        """Pool the words whose pieces came from several windows."""
        places = np.concatenate([split for split, _ in parts])
        order = np.argsort(places, kind="stable")
        places, vectors = places[order], torch.cat([theirs for _, theirs in parts])[torch.from_numpy(order)]
        begins = np.searchsorted(places, pieces.words[:, 0])
        ends = np.searchsorted(places, pieces.words[:, 1], side="right") - 1
        whole = np.flatnonzero(ends - begins == pieces.words[:, 1] - pieces.words[:, 0])
        pooled = self.pooling(vectors, torch.from_numpy(begins[whole]), torch.from_numpy(ends[whole]))
        room[whole] = to_numpy(pooled)


def _twins(encoded: Sequence[Pieces]) -> dict[int, int]:
    """Documents whose pieces and words are those of an earlier one, with its number: they need not be read again."""
    first: dict[tuple[bytes, bytes], int] = {}
    twins = {}
    for number, pieces in enumerate(encoded):
        earlier = first.setdefault((pieces.ids.tobytes(), pieces.words.tobytes()), number)
        if earlier != number:
            twins[number] = earlier
    return twins


def _pieces_by_document(rows: Sequence[_Row], twins: Mapping[int, int], n_documents: int) -> list[int]:
    """How many pieces the rows of each document have; those of a twin are its twin's."""
    counts = [0] * n_documents
    for row in rows:
        counts[row.document] += len(row)
    for number, first in twins.items():
        counts[number] = counts[first]
    return counts


def _split_pieces(words: NDArray[np.int64], window: Window, begin: int, end: int) -> NDArray[np.int64]:
    """The kept pieces of words that are only partly kept: as far as word `begin - 1` goes, and from word `end` on.

    Words are in order, so that all earlier ones end no later, and all later ones start no earlier, than these two.
    """
    before = min(int(words[begin - 1, 1]) + 1, window.keep_end) if begin > 0 else window.keep_start
    after = max(int(words[end, 0]), window.keep_start) if end < len(words) else window.keep_end
    if before >= after:
        return np.arange(window.keep_start, window.keep_end)
    return np.concatenate([np.arange(window.keep_start, before), np.arange(after, window.keep_end)])


def _embedded(document: Document, vectors: NDArray[Any]) -> EmbeddedDocument:
    document = document.in_original()
    offsets = np.array([(word.start, word.end) for word in document.words], dtype=np.int64).reshape(-1, 2)
    return EmbeddedDocument(
        text=document.text,
        words=document.words,
        id=document.id,
        fields=document.fields,
        pretokenized=document.pretokenized,
        offsets=offsets,
        vectors=vectors,
    )

"""The records and protocols that the packages of polyseme share.

Importing this module loads neither torch nor numpy. The `nn.Module` bases are in their packages:
`encoders.encoder.Encoder`, `outputs.output.Output`, `heads.head.Head`; `Memory`, made of tensors, is in
`parts.memory_and_cache`.

Shapes: R rows, T pieces of a row, S keys, K targets of a row, D width, C characters of a piece, N positions picked out
of a batch, V pieces in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from polyseme.extras import later
from polyseme.result_tables import Table, cell, counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from polyseme.config import Direction
    from polyseme.corpus.layout import Layout
    from polyseme.parts.memory_and_cache import Memory

Unit = Literal["piece", "word", "character"]
Stream = Literal["self", "query"]


# --- text ------------------------------------------------------------------------------------------------------------


class Word(str):
    """The user's unit: a string with its offsets in its text.

    >>> word = Word("broke", 5, 10)
    >>> word, word.start, word.end
    ('broke', 5, 10)
    """

    __slots__ = ("end", "start")
    start: int
    end: int

    def __new__(cls, text: str, start: int, end: int) -> Word:
        word = super().__new__(cls, text)
        word.start = start
        word.end = end
        return word

    def __getnewargs__(self) -> tuple[str, int, int]:  # type: ignore[override]
        return str(self), self.start, self.end


@dataclass(frozen=True)
class Original:
    """The text that given words come from, and where each of them is in it."""

    text: str
    spans: Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True, repr=False)
class Document:
    """A text with its words, an id and other fields: what tokenizers read and results refer to.

    Offsets of words count characters of `text`. Readers of files make documents; from strings or lists of words,
    `Model.embed` and the verbs make them.
    """

    text: str
    words: Sequence[Word]
    id: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    pretokenized: bool = False
    """Whether the user passed a list of words; each then goes through the tokenizer by itself."""
    original: Original | None = field(default=None, repr=False)
    """Of given words whose text is known, that text: results point into it (a treebank's `# text`)."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({cell(self.text)!r}, {', '.join(self._details())})"

    def _details(self) -> list[str]:
        """What is shown of it besides its text."""
        fields = [f"fields {', '.join(self.fields)}"] if self.fields else []
        return [f"id {self.id!r}", counted(len(self.words), "word"), *fields]

    def in_original(self) -> Document:
        """The document with its original text, if it has one, as results show it; tokenizers read the one without."""
        if self.original is None:
            return self
        words = [Word(word, *span) for word, span in zip(self.words, self.original.spans, strict=True)]
        return replace(self, text=self.original.text, words=words, original=None)


@dataclass(frozen=True, kw_only=True, repr=False)
class EmbeddedDocument(Document):
    """A document with one vector for each of its words, as NumPy arrays: what `Model.embed` and `read_vectors` return.

    Row i of `vectors` belongs to `words[i]`, which spans `offsets[i]` of `text`.
    """

    offsets: NDArray[np.int64]
    """[n_words, 2]: where each word starts and ends in the text."""
    vectors: NDArray[Any]
    """[n_words, D], or [n_words, layers, D] for all layers; [1, …] for one vector per text, without words."""

    def _details(self) -> list[str]:
        return [*super()._details(), f"vectors {'×'.join(map(str, self.vectors.shape))} {self.vectors.dtype}"]

    def _repr_html_(self) -> str | None:
        """For notebooks: the words, colored by their similarity to one of them; `polyseme.view` chooses it."""
        html: str | None = later("polyseme.word_senses.similarity_view").html_of(self)
        return html


def documents_table(documents: Sequence[EmbeddedDocument]) -> Table:
    """Documents with vectors, one row each."""
    shape = "×".join(map(str, documents[0].vectors.shape[1:])) if documents else ""
    n_vectors = sum(len(each.vectors) for each in documents)
    kind = f" of {shape} {documents[0].vectors.dtype}" if documents else ""
    title = f"{counted(len(documents), 'document')}, {counted(n_vectors, 'vector')}{kind}"
    return Table.of(title, ("id", "vectors", "text"), documents, lambda each: (each.id, len(each.vectors), each.text))


@dataclass(frozen=True)
class Pieces:
    """A document as an encoder's units, without specials, and which of them make up each word."""

    ids: NDArray[np.int64]
    """[n], or [n, C] where a piece is spelled in characters."""
    spans: NDArray[np.int64]
    """[n, 2], [start, end) in the text; may be empty."""
    words: NDArray[np.int64]
    """[n_words, 2]: first and last piece of each word, both counted; may overlap, may leave gaps."""
    n_unknown: int = 0
    """The number of words without pieces, which have the unknown piece, or the family's placeholder, instead."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class FramedRow:
    """One row as an encoder reads it, with specials."""

    ids: NDArray[np.int64]
    segments: NDArray[np.int64]
    offset: int
    """The index of the first piece in `ids`."""
    pair_offset: int | None = None
    """The index of the first piece of the second part, if there is one."""


class Tokenizer(Protocol):
    """Text to pieces and back. Specials are known by role: start, end, pad, unknown, mask."""

    @property
    def fingerprint(self) -> str:
        """Equal for tokenizers that give equal pieces."""

    @property
    def unit(self) -> Unit: ...

    @property
    def specials(self) -> Mapping[str, int]:
        """The ids of the special pieces, by role."""

    @property
    def n_pieces(self) -> int:
        """One more than the largest id."""

    @property
    def n_specials(self) -> int:
        """How many specials `frame` puts around a single stretch."""

    def encode(self, document: Document) -> Pieces:
        """A document's pieces, without specials."""

    def encode_many(self, documents: Sequence[Document]) -> list[Pieces]:
        """The same for many documents, faster."""

    def encode_with_masks(self, text: str) -> Pieces:
        """Raw text in which masks are written out as `[MASK]`; the words of the result are the masks."""

    def frame(self, ids: NDArray[np.int64], pair: NDArray[np.int64] | None = None) -> FramedRow: ...

    def pieces(self, ids: Sequence[int]) -> list[str]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def save(self, folder: str) -> None:
        """Write the files from which this tokenizer can be loaded again."""


# --- what encoders read and return -----------------------------------------------------------------------------------


class Mask(Protocol):
    """Which keys a query may see, by their places in the row.

    `q` [R or 1, Tq] and `k` [R or 1, S] are indices in the row; pieces of a memory are negative; in a cache both are
    slots. The answer broadcasts to [R, Tq, S]; None means everything. A batch's mask narrows what the encoder lets
    see, never widens it.
    """

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None: ...


@dataclass
class Batch:
    """Windows that run together."""

    pieces: Tensor
    """[R, T], or [R, T, C] in characters."""
    lengths: Tensor | None = None
    """[R]: how many pieces of each row are real; the rest is padding, on the right. None: every row is full."""
    segments: Tensor | None = None
    """[R, T]"""
    positions: Tensor | None = None
    """[R, T], where they are not simply counted."""
    mask: Mask | None = None
    source: States | None = None
    """What cross-attention reads."""
    targets: Tensor | None = None
    """[R, K]: positions that have a query stream (XLNet); -1 pads."""
    source_mask: Mask | None = None
    """Narrows what cross-attention sees of the source: queries are places of the row, keys places of the source's."""


@dataclass
class States:
    """What an encoder returns: the requested layers, numbered as everywhere."""

    layers: Mapping[int, Tensor]
    """Layer number to [R, T, width of the layer]; 0 is the token layer."""
    lengths: Tensor | None
    """[R], as in the batch."""
    depth: int
    """The number of the top layer."""
    queries: Mapping[int, Tensor] = field(default_factory=dict)
    """XLNet's second stream, [R, K, D], where the batch has targets."""
    attentions: Mapping[str, list[Tensor]] = field(default_factory=dict)
    """On request: "self", "cross", "query" to one [R, H, Tq, S] per layer."""
    memory: Memory | None = None
    """The updated memory, if one was passed in."""
    undropped: Tensor | None = None
    """The top layer of a recurrent encoder before dropout, if it was computed: what AWD-LSTM keeps from moving fast."""

    def __getitem__(self, layer: int) -> Tensor:
        """A layer by its number; negative ones count from the top."""
        return self.layers[layer if layer >= 0 else self.depth + 1 + layer]


# --- language modeling ----------------------------------------------------------------------------------------------


class NextPiece(Protocol):
    """The interface for `generating/`: the scores of the next piece, step by step."""

    normalized: bool
    """Whether scores are log-probabilities; otherwise they are that up to a constant per row, as networks score."""

    def start(self, batch: Batch, capacity: int) -> tuple[Tensor, Memory]:
        """Read the prompts: scores [R, V] of the next piece of each, and the memory for the next step."""

    def step(self, batch: Batch, memory: Memory) -> tuple[Tensor, Memory]:
        """Read one more piece per row."""


# --- training --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The requirements of an objective for bundle and corpus; checked before any work."""

    directions: tuple[Direction, ...]
    outputs: tuple[str, ...]
    layout: Layout
    """How rows are taken from the corpus."""
    units: tuple[Unit, ...] = ("piece", "word", "character")
    two_stacks: bool = False
    """Whether a decoder must read the states of the encoder."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of a corpus as an encoder reads them, before anything is done to them: [R, T] each."""

    pieces: NDArray[np.int64]
    starts: NDArray[np.bool_]
    """Whether a piece begins a word."""
    special: NDArray[np.bool_]
    """Whether a piece belongs to the frame or separates documents; such a piece is never a target."""
    keys: NDArray[np.uint64]
    """[R]: the random key of each row, a function of seed, epoch and index (`corpus.random_keys`)."""
    documents: NDArray[np.int64] | None = None
    """The number of each piece's document in its row, if attention is masked between documents."""
    positions: NDArray[np.int64] | None = None
    """The position of each piece in its document, if positions are reset at each document."""
    sentences: NDArray[np.bool_] | None = None
    """Whether a piece begins a sentence, if requested."""
    segments: NDArray[np.int64] | None = None
    """The segment of each piece, if rows have several."""
    lengths: NDArray[np.int64] | None = None
    """[R]: how many pieces are not padding, if rows are padded."""
    next_labels: NDArray[np.int64] | None = None
    """[R, P]: of each pair in a row, 0 where its second segment follows the first, 1 where it does not; -1: no pair."""
    next_places: NDArray[np.int64] | None = None
    """[R, P]: where each pair begins."""
    progress: float = 1.0
    """How much of the run is done, 0 to 1, for what changes in the course of it; held-out rows are those of its end."""
    weights: NDArray[np.float64] | None = None
    """How often each piece is near that of the target, weighted by distance, if rows are of co-occurrences."""
    target: Rows | None = None
    """The other side of rows of pairs: its documents have the numbers of those here that they belong to."""


@dataclass(frozen=True)
class Example:
    """Corrupted rows, in NumPy: what a step reads."""

    arrays: Mapping[str, NDArray[Any]]
    """Rows first, of one shape for all rows of a layout; their meaning is known only to `corrupt` and `nets`."""
    counts: Mapping[str, float]
    """How many targets each part of the loss has, over all rows."""


@dataclass
class Loss:
    """The parts of a loss, each summed over its targets, and the memory for the next step if a stream carries one.

    Sums, not means: rows may be spread over devices and several passes, and are divided by the targets of all.
    """

    parts: Mapping[str, Tensor]
    memory: Memory | None = None


class Objective(Protocol):
    """A corruption of rows and a loss."""

    has_perplexity: ClassVar[bool]
    baseline_name: ClassVar[str]
    least_gain: ClassVar[float]
    fair_share: ClassVar[float]
    updates_in_place: ClassVar[bool]
    judges_models: ClassVar[bool]

    @property
    def needs(self) -> Needs: ...

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of the mean of each part in the loss."""

    @property
    def prediction_parts(self) -> tuple[str, ...]:
        """The parts of the loss that predict pieces, whose mean can be compared with an entropy of pieces."""

    def target_counts(self, nets: nn.Module, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """How often each piece is predicted, if each occurs so often."""

    def label_entropies(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        """For parts that predict labels: the loss, in nats, of knowing how frequent each label is, and nothing else."""

    def rate_factors(self, nets: nn.Module) -> Mapping[nn.Parameter, float]:
        """What the learning rate of single parameters is multiplied by; of the others, by 1."""

    def baseline(self, nets: nn.Module, corpus: Any, most: int) -> float | None:
        """The held-out loss of knowing how frequent pieces are, and nothing else."""

    def nets(self, bundle: Any) -> nn.Module:
        """One root module with everything that is trained inside; its forward pass gives the parts of the loss."""

    def corrupt(self, rows: Rows) -> Example:
        """Pure: the result for a row depends on the row and its key only, not on the rows of the same batch."""

    def loss(self, nets: nn.Module, batch: Mapping[str, Tensor], memory: Memory | None) -> Loss:
        """Calls `nets(…)` itself, once, since DDP and FSDP hook the root's forward."""

    def update(self, nets: nn.Module, batch: Mapping[str, Tensor], rate: float) -> Mapping[str, Tensor]:
        """Where it `updates_in_place`: move the networks by plain SGD; the parts of the loss, as they were before."""

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        """Floating-point operations of one step over so many rows, forwards and backwards, by analysis."""

    def result(self, nets: nn.Module) -> Mapping[str, Any]:
        """The bundles to keep, by name: {"model": …}, and perhaps {"generator": …}."""


# --- tasks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Predictions:
    """The predictions of a head: one label (or number, or span) per item, and probabilities if it has them."""

    labels: Sequence[Any]
    probabilities: NDArray[Any] | None = None


@dataclass(frozen=True)
class Confusion:
    """How often each gold label was predicted as each label."""

    labels: Sequence[str]
    counts: Sequence[Sequence[int]]
    """One row per gold label, one column per predicted label."""


# --- progress --------------------------------------------------------------------------------------------------------


@runtime_checkable
class Progress(Protocol):
    """Called with the progress of a long job; the command line draws it."""

    def __call__(self, done: int, total: int | None) -> None: ...


OnBatch = Callable[[int, int], None]
"""Called after each batch with how many of a chunk's pieces are done, and how many there are."""

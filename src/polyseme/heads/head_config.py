"""The config of a head: which task, over what, computed how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from polyseme.config import Config
from polyseme.errors import ModelError, OptionError, nearest
from polyseme.json_reading import is_count, is_number
from polyseme.parts.crf import SCHEMES

Body = Literal["linear", "mlp", "mlp-batchnorm", "attention", "bilstm", "bilstm-attention", "bcn", "cosine", "text"]
LateAt = Literal["between", "output"]
WordReadout = Literal["mean", "max", "last", "first", "concat"]
TASK_KINDS = ("classify", "pair", "tag", "span", "choose", "edge", "edge-pair")
"""The kinds of task that heads are for; `tasks.kinds.KINDS` has an object for each."""
KIND_OPTIONS = ("regression", "multi", "crf", "scheme", "no_answer", "separate_rows", "n_marks")
"""Fields that only some kinds of task have a use for (`tasks.kind.Kind.head_options`)."""

NAMES: Mapping[str, Mapping[str, Any]] = {
    "linear": {"body": "linear", "dropout_rate": 0.1},
    "mlp": {"body": "mlp", "dropout_rate": 0.1},
    "mlp-batchnorm": {"body": "mlp-batchnorm", "dropout_rate": 0.4},
    "attention": {"body": "attention", "dropout_rate": 0.1},
    "bilstm": {"body": "bilstm", "dropout_rate": 0.5},
    "bilstm-attention": {"body": "bilstm-attention", "dropout_rate": 0.5},
    "bcn": {"body": "bcn", "dropout_rate": 0.3},
    "cosine": {"body": "cosine", "dropout_rate": 0.0},
    "crf": {"body": "linear", "crf": True, "dropout_rate": 0.1},
    "bilstm-crf": {"body": "bilstm", "crf": True, "dropout_rate": 0.5},
    "text": {"body": "text", "dropout_rate": 0.0},
}
"""What each name stands for: fields of `HeadConfig`. BERT's dropout where its head is meant, ELMo's over BiLSTMs."""


@dataclass(frozen=True, kw_only=True)
class HeadConfig(Config):
    """A head, but for its weights. Labels are part of it, so that a head always knows what its numbers mean."""

    kind: str
    """The task: classify a text, a pair of texts, tag words, find a span, choose one of several, judge an edge."""
    labels: tuple[str, ...] = ()
    """The names of classes or tags, in the order of the gold numbers; none for regression, spans and choices."""
    regression: bool = False
    """Whether a number is predicted in place of a label (classify and pair)."""
    multi: bool = False
    """Whether several labels may hold of one text (classify and pair)."""

    width: int
    """Of a word's vector."""
    whole_width: int | None = None
    """Of the vector that stands for the whole row, where the encoder gives one; it is then what linear and mlp bodies
    of whole-text tasks read. None: the words are read out."""

    separate_rows: bool = False
    """Whether two texts were read in separate rows, each without sight of the other (pair, edge-pair; span: the
    question; choose: the choice); the head then combines them."""

    body: Body = "linear"
    """What is computed over words; `cosine`: nothing, two spans are compared as they are (edges); `text`: nothing, the
    label is written by the model's decoder (classify and pair)."""
    readout: WordReadout = "mean"
    """How words become one vector; `concat` is [last; max; mean]."""
    inner_width: int | None = None
    """Of the mlp's layer (None: as wide as its input; with batch normalization, 50), of what attention gives (None: as
    wide as its input), or of the BiLSTM in each direction (None: 200)."""
    n_layers: int = 1
    """Of the BiLSTM."""
    reread_inputs: bool = False
    """Whether the words' vectors are read again, beside the body's output (ELMo at input and output)."""
    late_width: int = 0
    """How many numbers of a word's vector, the first ones, the BiLSTM does not read with the others; 0: none."""
    late_at: LateAt = "between"
    """Where these come in: "between" the first layer of the BiLSTM and the second (TagLM), or beside its "output"."""
    dropout_rate: float = 0.1
    init_std: float = 0.02
    """The standard deviation of new linear layers; their biases begin at 0."""

    crf: bool = False
    """Whether tags are scored as a sequence (tag)."""
    scheme: str | None = None
    """How tags mark spans: BIO, BIOES or IOB1. Sequences that mark none are then never predicted by a CRF. None: any
    tag may follow any."""
    n_marks: int = 0
    """How many values a word's mark has (2: a predicate or none), each with a vector put beside the word's; 0: none."""
    marks_width: int = 100

    no_answer: bool = False
    """Whether a passage may have no answer (span)."""
    no_answer_threshold: float = 0.0
    """How far "no answer" must score above the best span to be the answer; chosen on dev."""
    n_best: int = 20
    """Spans that are kept of each passage."""
    longest_answer: int = 30
    """In words."""

    numbers: tuple[str, ...] = ()
    """The numbers that may be written, in rising order (a regression whose body is `text`)."""
    pieces: tuple[tuple[int, ...], ...] = ()
    """What is written of each label, or of each number: its pieces, the end included (body `text`)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "numbers", tuple(self.numbers))
        object.__setattr__(self, "pieces", tuple(map(tuple, self.pieces)))
        for name, known in (("kind", TASK_KINDS), ("body", get_args(Body)), ("readout", get_args(WordReadout))):
            _one_of(name, getattr(self, name), known)
        if self.scheme is not None:
            _one_of("scheme", self.scheme, SCHEMES)
        for name in ("width", "whole_width", "inner_width", "n_layers", "marks_width", "n_best", "longest_answer"):
            value = getattr(self, name)
            if not (value is None and name in ("whole_width", "inner_width")) and not is_count(value, least=1):
                raise ModelError(f"The '{name}' of a head must be a whole number from 1 on. Got {value!r} instead.")
        if not is_count(self.n_marks, least=0):
            raise ModelError(f"The 'n_marks' of a head must be a whole number from 0 on. Got {self.n_marks!r} instead.")
        if not (is_number(self.dropout_rate) and 0 <= self.dropout_rate < 1):
            raise ModelError(
                f"The 'dropout_rate' of a head must be a number from 0 to below 1. Got {self.dropout_rate!r} instead."
            )
        for name in ("init_std", "no_answer_threshold"):
            if not is_number(getattr(self, name)):
                raise ModelError(f"The '{name}' of a head must be a number. Got {getattr(self, name)!r} instead.")
        if len(set(self.labels)) < len(self.labels):
            twice = next(label for label in self.labels if self.labels.count(label) > 1)
            raise ModelError(f"The labels of a head must differ. {twice!r} is there twice.")
        if self.regression and self.multi:
            raise ModelError("A head predicts numbers ('regression') or several labels ('multi'), not both.")
        if self.reread_inputs and self.body not in ("bilstm", "bilstm-attention", "bcn"):
            raise ModelError(
                f"Words are read again ('reread_inputs') beside a BiLSTM. The body of this head is {self.body!r}."
            )
        self._check_late()
        if self.body != "text" and (self.numbers or self.pieces):
            raise ModelError(f"A head with the body {self.body!r} writes nothing: it has no 'numbers' or 'pieces'.")

    def _check_late(self) -> None:
        _one_of("late_at", self.late_at, get_args(LateAt))
        if not is_count(self.late_width, least=0):
            raise ModelError(f"The 'late_width' of a head must be a whole number from 0 on. Got {self.late_width!r}.")
        if not self.late_width:
            return
        if self.body != "bilstm" or self.late_width >= self.width:
            raise ModelError(
                "Vectors that come in late ('late_width') need a BiLSTM that reads others first. The body of this head "
                f"is {self.body!r}, and {self.late_width} of the {self.width} numbers of a word come in late."
            )
        if self.late_at == "between" and self.n_layers < 2:
            raise ModelError(
                "Vectors come in between the first layer of a BiLSTM and the second ('late_at'), and this head has "
                f"{self.n_layers}. Give it two layers ('n_layers')."
            )

    @property
    def n_labels(self) -> int:
        """Numbers that the head gives for one thing to be judged; a regression gives one."""
        return max(1, len(self.labels))


def named_settings(name: str) -> dict[str, Any]:
    """The fields of `HeadConfig` that a name stands for; an unknown name is an error that says the nearest."""
    if name not in NAMES:
        raise OptionError(f"There is no head {name!r}. {nearest(name, NAMES)}")
    return dict(NAMES[name])


def _one_of(name: str, value: Any, known: Iterable[str]) -> None:
    known = list(known)
    if value not in known:
        raise ModelError(f"There is no {name} {value!r} of a head. {nearest(str(value), known)}")

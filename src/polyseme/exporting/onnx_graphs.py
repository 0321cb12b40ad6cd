"""What an ONNX file computes: word vectors of an encoder, or the scores of a task model.

Rows are padded on the right. `attention_mask` is 1 at pieces and 0 at padding, and `word_ids` are the numbers of the
words that pieces belong to, counted from 0 in each row; -1 at special pieces and at padding.

Shapes: R rows, T pieces, W words of the row that has the most, D width, L labels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.embedding.layer_selection import LayerChoice
from polyseme.errors import ModelError, OptionError
from polyseme.heads.bodies import PLAIN
from polyseme.heads.head import Features
from polyseme.tasks.kinds import KINDS
from polyseme.text.documents import make_document
from polyseme.transfer.task_model import TaskModel
from polyseme.transfer.unit_batches import ReadRows
from polyseme.types import Batch

KINDS_OF_ENCODER = ("transformer", "recurrent", "two-way")
POOLS = ("first", "last", "mean", "max")


class Graph(nn.Module):
    """A forward pass over padded rows, whose inputs and output have names."""

    bundle: Bundle
    output: str
    reads_words = True

    @property
    def inputs(self) -> list[str]:
        """The inputs, in the order of `forward`."""
        segments = getattr(self.bundle.config, "n_segments", 0)
        names = [("word_ids", self.reads_words), ("token_type_ids", bool(segments))]
        return ["input_ids", "attention_mask", *(name for name, there in names if there)]

    def _name_inputs(self, inputs: tuple[Tensor, ...]) -> tuple[dict[str, Tensor], Tensor]:
        """Inputs by name, and the lengths of the rows; padding belongs to no word."""
        named = dict(zip(self.inputs, inputs, strict=True))
        if "word_ids" in named:
            named["word_ids"] = named["word_ids"].masked_fill(named["attention_mask"] == 0, -1)
        return named, named["attention_mask"].sum(1)


class WordVectors(Graph):
    """Rows → one vector per word, [R, W, D]; with all layers [R, W, layers, D]. Zeros where a row has no such word."""

    output = "word_vectors"

    def __init__(self, bundle: Bundle, choice: LayerChoice, pool: str) -> None:
        super().__init__()
        check_encoder(bundle)
        if pool not in POOLS:
            raise OptionError(f"The pooling {pool!r} has no form in ONNX. Take --pool {', '.join(POOLS)}.")
        self.bundle, self.choice, self.pool = bundle, choice, pool

    def forward(self, *inputs: Tensor) -> Tensor:
        named, lengths = self._name_inputs(inputs)
        batch = Batch(named["input_ids"], lengths, named.get("token_type_ids"))
        states = self.bundle.encoder(batch, layers=self.choice.layers)
        combined = self.choice.combine({number: states[number].flatten(0, 1) for number in self.choice.layers})
        by_row = combined.reshape(*batch.pieces.shape, *combined.shape[1:])
        return pooled(by_row, of_words(named["word_ids"]), self.pool)


class TaskScores(Graph):
    """Rows → the scores of the labels: [R, L] of texts, [R] in regression, [R, W, L] of words."""

    output = "logits"

    def __init__(self, model: TaskModel) -> None:
        super().__init__()
        check_task_model(model)
        assert model.bundle is not None
        assert model.row_maker is not None
        self.bundle, self.model = model.bundle, model
        self.reads_words = model.reads_words
        self.first = model.row_maker.single(model.bundle.text_tokenizer.encode(make_document("a"))).whole == 0
        """Whether a row's first piece stands for all of it; otherwise the last does."""

    def forward(self, *inputs: Tensor) -> Tensor:
        model = self.model
        named, lengths = self._name_inputs(inputs)
        pieces = named["input_ids"]
        whole = torch.zeros_like(lengths) if self.first else lengths - 1
        none = lengths[:, None][:, :0]
        rows = ReadRows(pieces, lengths, named.get("token_type_ids"), whole, none, none, none > 0)
        states = model.states(rows)
        words, mask = states[:, :0], rows.mask
        if self.reads_words:
            members = of_words(named["word_ids"])
            words, mask = pooled(states, members, model.config.pool), members.any(-1)
        features = Features(words=words, mask=mask, whole=model.whole_of(states, rows))
        scores: Tensor = model.head(features)
        return scores


def of_words(word_ids: Tensor) -> Tensor:
    """[R, T] → [R, W, T]: which pieces each word has."""
    most: Any = word_ids.max() + 1  # a tensor, so that a trace has it
    numbers = torch.arange(most, device=word_ids.device)
    members: Tensor = word_ids[:, None, :] == numbers[None, :, None]
    return members


def pooled(states: Tensor, members: Tensor, pool: str) -> Tensor:
    """[R, T, …], [R, W, T] → [R, W, …]; zeros where there is no word."""
    flat = states.flatten(2)  # [R, T, D]
    if pool == "max":
        lowest = torch.finfo(states.dtype).min
        one_by_one = flat[:, None].masked_fill(~members[..., None], lowest)  # [R, W, T, D]
        result = one_by_one.amax(2) * members.any(-1)[..., None]
    else:
        weights = members.to(states.dtype)
        if pool == "mean":
            weights = weights / weights.sum(-1, keepdim=True).clamp(min=1)
        elif pool == "first":
            weights = weights * (weights.cumsum(-1) == 1)
        else:
            weights = weights * (weights.cumsum(-1) == weights.sum(-1, keepdim=True))
        result = weights @ flat
    return result.unflatten(-1, states.shape[2:]) if states.dim() > 3 else result


def check_encoder(bundle: Bundle) -> None:
    """Refuse an encoder that has no graph of this form."""
    kind, family = bundle.config.kind, bundle.family.name
    if kind not in KINDS_OF_ENCODER or bundle.text_tokenizer.unit == "character":
        reason = "reads characters, and not pieces by number" if kind in KINDS_OF_ENCODER else f"is of kind {kind!r}"
        raise ModelError(
            f"Models of the family {family} have no form in ONNX here: the encoder {reason}. Transformers over pieces "
            "have one."
        )


def check_task_model(model: TaskModel) -> None:
    """Refuse a task model that has no graph of this form."""
    config, head = model.config, model.head.config
    if model.bundle is None or model.inputs is not None or model.stacked:
        raise ModelError("This task model reads further inputs beside its encoder, which have no form in ONNX here.")
    check_encoder(model.bundle)
    kind = KINDS[config.kind]
    reasons = [
        (not (kind.judges_texts or kind.labels_words), f"its task is {config.kind!r}"),
        (kind.has_choices or kind.has_spans, f"its task is {config.kind!r}"),
        (model.runs_decoder, "its head reads a decoder"),
        (config.chunk_length is not None, "it reads texts in chunks"),
        (config.separate_rows, "it reads two texts in separate rows"),
        (head.body not in PLAIN, f"its head is a {head.body}"),
        (head.crf, "its head is a CRF"),
        (bool(head.n_marks), "its head reads marks"),
        (model.reads_words and config.pool not in POOLS, f"its pooling is {config.pool!r}"),
    ]
    for holds, reason in reasons:
        if holds:
            raise ModelError(
                f"This task model has no form in ONNX here: {reason}. Models for classify, pair and tag with a head of "
                f"kind {', '.join(PLAIN)} have one."
            )

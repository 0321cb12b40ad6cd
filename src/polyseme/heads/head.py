"""What heads read, one vector per word and what belongs to it, and the contract that every head keeps.

Shapes: R rows, W words of the longest row, D width of a word's vector, D' width of the whole row's, V words of the
longest second text.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.errors import ModelError
from polyseme.heads.head_config import HeadConfig, WordReadout
from polyseme.types import Predictions

NO_GOLD = -100
"""The gold number of what is not labeled; it counts for nothing."""


@dataclass
class Features:
    """Rows of word vectors, padded on the right. Which encoder made them, and whether it learns, is not said."""

    words: Tensor
    """[R, W, D]: one vector per word. Where two texts were read together (a pair, a question and its passage), the
    words of both, first text first. For a head that writes, the states of all pieces."""
    mask: Tensor
    """[R, W], true where there is a word."""
    whole: Tensor | None = None
    """[R, D']: what stands for the whole row ([CLS], raw or pooled; the last state …), where the encoder gives one."""
    second: Tensor | None = None
    """[R, V, D]: the words of the second text (of the question, in span tasks), where the two texts were read in
    separate rows."""
    second_mask: Tensor | None = None
    """[R, V], true where there is a word of the second text."""
    marks: Tensor | None = None
    """[R, W], one small whole number per word: 1 at the predicate of semantic roles, 0 elsewhere; of edges, 1 and 2
    (and 3) in the first and the second span (in both)."""
    second_marks: Tensor | None = None
    """[R, V], the same of the second text, where it is a row of its own."""
    passage: Tensor | None = None
    """[R, W], true at words that may be in an answer (span tasks), where `words` has others too; None: at all."""
    groups: Tensor | None = None
    """[R], the number of the item whose choice a row is, counted from 0 (tasks of choosing); an item's rows are
    adjacent and in the order of its choices."""

    @property
    def device(self) -> torch.device:
        return self.words.device

    @property
    def n_rows(self) -> int:
        return self.words.shape[0]

    def to(self, *arguments: Any, **settings: Any) -> Features:
        """As `Tensor.to` moves tensors; only those of floats change their precision."""
        return self._apply(lambda tensor: _move(tensor, arguments, settings))

    def select(self, rows: Tensor) -> Features:
        """The rows at these places, in their order. Groups keep their numbers."""
        return self._apply(lambda tensor: tensor[rows])

    def _apply(self, change: Callable[[Tensor], Tensor]) -> Features:
        tensors = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return dataclasses.replace(self, **{name: change(each) for name, each in tensors.items() if each is not None})


def _move(tensor: Tensor, arguments: tuple[Any, ...], settings: dict[str, Any]) -> Tensor:
    if tensor.is_floating_point():
        return tensor.to(*arguments, **settings)
    arguments = tuple(each for each in arguments if not isinstance(each, torch.dtype))
    settings = {name: each for name, each in settings.items() if name != "dtype"}
    return tensor.to(*arguments, **settings) if arguments or settings else tensor


N_VECTORS: Mapping[str, int] = {"mean": 1, "max": 1, "last": 1, "first": 1, "concat": 3}
"""How many times as wide the result is."""


def read_out(words: Tensor, mask: Tensor, readout: WordReadout, *, two_way: bool = False) -> Tensor:
    """[R, W, D], [R, W] → [R, D], or [R, 3 D] for `concat`; zeros for a row of no words.

    Of states that are [forward; backward] (`two_way`), the last of the backward half is that of the first word: where
    each half has read everything; and the first likewise.
    """
    if readout == "concat":
        parts: tuple[WordReadout, ...] = ("last", "max", "mean")
        return torch.cat([read_out(words, mask, part, two_way=two_way) for part in parts], dim=-1)
    real = mask[:, :, None]
    if not words.shape[1]:
        return words.new_zeros(words.shape[0], words.shape[2])
    if readout == "mean":
        return (words * real).sum(1) / real.sum(1).clamp(min=1)
    if readout == "max":
        return words.masked_fill(~real, torch.finfo(words.dtype).min).amax(1) * mask.any(1)[:, None]
    has_words = mask.any(1)[:, None]
    first, last = words[:, 0] * has_words, _at_end(words, mask) * has_words
    here, there = (last, first) if readout == "last" else (first, last)
    if not two_way:
        return here
    half = words.shape[-1] // 2
    return torch.cat([here[:, :half], there[:, half:]], dim=-1)


def _at_end(words: Tensor, mask: Tensor) -> Tensor:
    last = (mask * torch.arange(mask.shape[1], device=mask.device)).amax(1)
    place = last[:, None, None].expand(-1, -1, words.shape[-1])
    return words.gather(1, place).squeeze(1)


class Head(nn.Module, ABC):
    """A layer over word features, [R, W, D] with W words per row; it does not know which encoder made them."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def forward(self, features: Features) -> Tensor:
        """The scores behind loss and predictions; each head documents its own."""

    @abstractmethod
    def loss(self, features: Features, gold: Tensor) -> Tensor:
        """One loss per row: [R]; per item, where several rows are one."""

    @abstractmethod
    def n_gold(self, gold: Tensor) -> Tensor:
        """What each loss is a sum over, as whole numbers: labeled words in tagging; one elsewhere, or none."""

    def mean_loss(self, features: Features, gold: Tensor) -> Tensor:
        """What is minimized: the loss by labeled word or item, over all rows."""
        return self.loss(features, gold).sum() / self.n_gold(gold).sum().clamp(min=1)

    def teaching_scores(self, features: Features) -> Tensor:
        """The scores that another head of the same task learns from (`soft_loss`)."""
        scores: Tensor = self(features)
        return scores

    def soft_loss(self, features: Features, taught: Tensor, temperature: float) -> Tensor:
        """How far the head's scores are from those of a teacher, by word or item, over all rows."""
        raise ModelError(f"A head for task {self.config.kind!r} that writes its answers cannot learn from another.")

    @abstractmethod
    def predict(self, features: Features) -> Predictions:
        """What the head says; a CRF decodes here."""

    def check(self, features: Features) -> None:
        """Refuse features of another shape than the head was made for."""
        config = self.config
        if features.words.shape[-1] != config.width:
            raise ModelError(
                f"This head for task {config.kind!r} reads words of width {config.width}. Got width "
                f"{features.words.shape[-1]}: it belongs to another encoder or other layers."
            )
        width = None if features.whole is None else features.whole.shape[-1]
        if config.whole_width is not None and width != config.whole_width:
            raise ModelError(
                f"This head for task {config.kind!r} reads a vector of width {config.whole_width} for the whole row. "
                f"Got {'none' if width is None else f'width {width}'}."
            )
        if config.separate_rows != (features.second is not None):
            expected, got = (
                ("in separate rows", "together") if config.separate_rows else ("together", "in separate rows")
            )
            raise ModelError(
                f"This head for task {config.kind!r} was made for texts read {expected}. Got texts read {got}."
            )
        if config.n_marks and features.marks is None:
            raise ModelError(f"This head for task {config.kind!r} reads one mark per word (predicates). Got none.")


def as_array(tensor: Tensor) -> NDArray[Any]:
    """In NumPy; half precision becomes 32-bit floats."""
    tensor = tensor.detach().to("cpu")
    array: NDArray[Any] = (tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor).numpy()
    return array

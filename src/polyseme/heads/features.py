"""What heads read: a vector a word, and what stands beside.

Shapes: R rows, W words of the longest row, D width of a word's vector, D' width of the whole's, V words of the longest
second text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class Features:
    """Rows of word vectors, padded on the right. Which encoder made them, and whether it learns, is not said."""

    words: Tensor
    """[R, W, D]: a vector a word. Where two texts were read together (a pair, a question and its passage), the words of
    both, first text first. For a head that writes, the states of all pieces."""
    mask: Tensor
    """[R, W], true where there is a word."""
    whole: Tensor | None = None
    """[R, D']: what stands for the whole row ([CLS], raw or pooled; the last state …), where the encoder gives one."""
    second: Tensor | None = None
    """[R, V, D]: the words of the second text (of the question, in span tasks), where the two texts were read apart."""
    second_mask: Tensor | None = None
    """[R, V], true where there is a word of the second text."""
    marks: Tensor | None = None
    """[R, W], a small whole number a word: 1 at the predicate of semantic roles, 0 elsewhere."""
    passage: Tensor | None = None
    """[R, W], true at words that may be in an answer (span tasks), where `words` has others too; None: at all."""
    groups: Tensor | None = None
    """[R], the number of the item whose choice a row is, counted from 0 (tasks of choosing); an item's rows stand
    together and in the order of its choices."""

    @property
    def device(self) -> torch.device:
        return self.words.device

    @property
    def n_rows(self) -> int:
        return self.words.shape[0]

    def to(self, *arguments: Any, **settings: Any) -> Features:
        """As `Tensor.to` moves tensors; only those of floats change their precision."""
        return self._each(lambda tensor: _moved(tensor, arguments, settings))

    def select(self, rows: Tensor) -> Features:
        """Some of the rows, in another order perhaps. Groups keep their numbers."""
        return self._each(lambda tensor: tensor[rows])

    def _each(self, change: Callable[[Tensor], Tensor]) -> Features:
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return dataclasses.replace(self, **{name: change(value) for name, value in given.items() if value is not None})


def _moved(tensor: Tensor, arguments: tuple[Any, ...], settings: dict[str, Any]) -> Tensor:
    if tensor.is_floating_point():
        return tensor.to(*arguments, **settings)
    arguments = tuple(given for given in arguments if not isinstance(given, torch.dtype))
    settings = {name: given for name, given in settings.items() if name != "dtype"}
    return tensor.to(*arguments, **settings) if arguments or settings else tensor

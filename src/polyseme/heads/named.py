"""The heads, by the name of their task and by the names that `--head` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyseme.errors import OptionError, nearest
from polyseme.heads.base import Head
from polyseme.heads.choose import ChooseHead
from polyseme.heads.classify import ClassifyHead
from polyseme.heads.config import HeadConfig
from polyseme.heads.span import SpanHead
from polyseme.heads.tag import TagHead
from polyseme.heads.text import TextHead

__all__ = ["HEADS", "NAMES", "HeadConfig", "build_head", "named_settings"]

HEADS: Mapping[str, Callable[[HeadConfig], Head]] = {
    "classify": ClassifyHead,
    "pair": ClassifyHead,
    "tag": TagHead,
    "span": SpanHead,
    "choose": ChooseHead,
}
"""A class a task, each made from a `HeadConfig`; what is written as text has one of its own."""

NAMES: Mapping[str, Mapping[str, Any]] = {
    "linear": {"body": "linear", "dropout_rate": 0.1},
    "mlp": {"body": "mlp", "dropout_rate": 0.1},
    "bilstm": {"body": "bilstm", "dropout_rate": 0.5},
    "bilstm-attention": {"body": "bilstm-attention", "dropout_rate": 0.5},
    "crf": {"body": "linear", "crf": True, "dropout_rate": 0.1},
    "bilstm-crf": {"body": "bilstm", "crf": True, "dropout_rate": 0.5},
    "text": {"body": "text", "dropout_rate": 0.0},
}
"""What each name stands for: fields of `HeadConfig`. BERT's dropout where its head is meant, ELMo's over BiLSTMs."""


def named_settings(name: str) -> dict[str, Any]:
    """The fields of `HeadConfig` that a name stands for; an unknown name is an error that says the nearest."""
    if name not in NAMES:
        raise OptionError(f"There is no head {name!r}. {nearest(name, NAMES)}")
    return dict(NAMES[name])


def build_head(config: HeadConfig) -> Head:
    """A new head, its weights drawn as the papers did."""
    return TextHead(config) if config.body == "text" else HEADS[config.kind](config)

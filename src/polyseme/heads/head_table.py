"""The heads, by the name of their task and by the names that `--head` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from polyseme.errors import ModelError, OptionError, nearest
from polyseme.heads.head import Head
from polyseme.heads.head_config import HeadConfig
from polyseme.heads.span_head import SpanHead
from polyseme.heads.tag_head import TagHead
from polyseme.heads.text_head import TextHead
from polyseme.heads.whole_text import ChooseHead, ClassifyHead
from polyseme.tasks.items import Kind

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


# MERGED: Heads to and from what is saved of them: a config as JSON, and a plain state_dict.


def load_head(
    settings: Mapping[str, Any], weights: Mapping[str, Tensor], *, kind: Kind | None = None, where: str = "The head"
) -> Head:
    """The head of `HeadConfig.to_json` and `state_dict`. One of another task than `kind` is refused.

    `where` says whose head it is, in messages.
    """
    config: HeadConfig = HeadConfig.from_json(settings)
    if kind is not None:
        check_kind(config, kind, where=where)
    head = build_head(config)
    wanted = {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if wanted != given:
        missing = sorted(wanted.keys() - given.keys())
        unknown = sorted(given.keys() - wanted.keys())
        other = sorted(name for name in wanted.keys() & given.keys() if wanted[name] != given[name])
        parts = [
            f"{what}: {', '.join(names)}"
            for what, names in (("missing", missing), ("not known", unknown), ("of another shape", other))
            if names
        ]
        raise ModelError(f"{where} does not fit its config. Weights {'; '.join(parts)}.")
    head.load_state_dict(dict(weights))
    return head


def check_kind(config: HeadConfig, kind: Kind, *, where: str = "The head") -> None:
    """Refuse a head that was made for another task."""
    if config.kind != kind:
        raise ModelError(
            f"{where} was made for task {config.kind!r}, and cannot do {kind!r}. Use it for {config.kind!r}, or "
            f"finetune a head for {kind!r}."
        )

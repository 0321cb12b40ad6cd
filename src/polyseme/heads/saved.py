"""Heads to and from what is saved of them: a config as JSON, and a plain state_dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from polyseme.errors import ModelError
from polyseme.heads.base import Head
from polyseme.heads.config import HeadConfig
from polyseme.heads.named import build_head
from polyseme.tasks.items import Kind


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

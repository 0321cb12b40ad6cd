"""The kinds of task, by name, with the heads that judge them and what knowing nothing scores."""

from __future__ import annotations

from collections.abc import Mapping

from polyseme.errors import ModelError
from polyseme.heads.head import Head
from polyseme.heads.head_config import KIND_OPTIONS, HeadConfig
from polyseme.heads.text_head import TextHead
from polyseme.metrics.task_metrics import measure
from polyseme.tasks.choose import Choose
from polyseme.tasks.classify import Classify
from polyseme.tasks.edge import Edge, EdgePair
from polyseme.tasks.items import TaskData
from polyseme.tasks.kind import Kind
from polyseme.tasks.pair import Pair
from polyseme.tasks.span import Span
from polyseme.tasks.tag import Tag

KINDS: Mapping[str, Kind] = {
    kind.name: kind for kind in (Classify(), Pair(), Tag(), Span(), Choose(), Edge(), EdgePair())
}
"""A new kind is one more object here, and a name in `heads.head_config.TASK_KINDS`."""


def build_head(config: HeadConfig) -> Head:
    """A new head, its weights drawn as in the papers; one that its kind of task has no use for is refused."""
    check_head(config)
    return TextHead(config) if config.body == "text" else KINDS[config.kind].head(config)


def check_head(config: HeadConfig) -> None:
    """Refuse a head that does not fit its kind of task."""
    kind = KINDS[config.kind]
    for name in KIND_OPTIONS:
        if getattr(config, name) and name not in kind.head_options:
            kinds = ", ".join(each.name for each in KINDS.values() if name in each.head_options)
            raise ModelError(f"A head for task {config.kind!r} has no {name!r}: that is for {kinds}.")
    has_labels = kind.has_labels and not config.regression
    if has_labels and not config.labels:
        raise ModelError(f"A head for task {config.kind!r} needs the names of its labels. Got none.")
    if not has_labels and config.labels:
        noun = "regression" if config.regression else f"task {config.kind!r}"
        listed = ", ".join(config.labels[:5])
        raise ModelError(f"A head for {noun} has no labels. Got {len(config.labels)}: {listed} …")
    if config.body == "cosine" and not kind.has_spans:
        kinds = ", ".join(each.name for each in KINDS.values() if each.has_spans)
        raise ModelError(f"The head 'cosine' compares two spans: it is for {kinds}, not for task {config.kind!r}.")
    if config.body == "mlp-batchnorm" and not kind.judges_texts:
        raise ModelError(
            f"The head 'mlp-batchnorm' scores whole texts, and {config.kind} is a task of words. Take mlp."
        )
    if config.body == "text":
        _check_text_head(config)


def _check_text_head(config: HeadConfig) -> None:
    if not KINDS[config.kind].writable or config.multi:
        noun = "several labels of one text" if config.multi else f"task {config.kind!r}"
        raise ModelError(
            f"A head that writes ('text') is for one label or number of {', '.join(writable_kinds())}: not {noun}."
        )
    texts = config.numbers if config.regression else config.labels
    if len(config.pieces) != len(texts) or not all(config.pieces) or not texts:
        raise ModelError(
            f"A head that writes needs the pieces of each of its {len(texts)} texts. Got {len(config.pieces)}."
        )


def writable_kinds() -> list[str]:
    """The kinds of task whose answers can be written as a text."""
    return [kind.name for kind in KINDS.values() if kind.writable]


def check_kind(config: HeadConfig, kind: str, *, where: str = "The head") -> None:
    """Refuse a head that was made for another task."""
    if config.kind != kind:
        raise ModelError(
            f"{where} was made for task {config.kind!r}, and cannot do {kind!r}. Use it for {config.kind!r}, or "
            f"finetune a head for {kind!r}."
        )


def baseline_scores(data: TaskData, split: str = "dev") -> dict[str, float]:
    """What a model that knows no text scores on a split: a result must beat that to mean anything.

    It answers by the gold of train or, if there is no train, of the split itself (`Kind.baseline`).
    """
    items = [item for item in data.splits[split] if item.gold is not None]
    learned = [item for item in data.splits.get("train", ()) if item.gold is not None] or items
    answers = KINDS[data.kind].baseline(data, learned, items)
    return measure(data.metrics, [item.gold for item in items], answers, labels=data.labels)

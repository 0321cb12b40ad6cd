"""What a task model says of an item: the judgment, and the prediction that is returned and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from polyseme.result_tables import Table, cell, counted


@dataclass(frozen=True)
class Judgment:
    """What the model says of one item."""

    answer: Any
    """As `Item.gold` has it; of a span, the text of the answer (empty: none)."""
    probabilities: Any = None
    """Of the labels, of each word's tags, or of the choices, in their order; of spans, those of the best ones."""
    spans: tuple[tuple[int, int, str, float], ...] = ()
    """The best answers of a passage: start and end in its text, the text, its probability."""
    none_margin: float = 0.0
    """By how much "no answer" scores above the best one."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction:
    """What a model says of one text, as it is returned and written."""

    id: str
    text: str
    second: str | None = None
    label: Any = None
    """A label, a number, a list of labels, one tag per word, an answer (empty: none), or a choice's number from 0."""
    probability: Any = None
    """Of the label; of each word's tag; of the answer. None of numbers."""
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """Of every label, or of every choice."""
    words: tuple[str, ...] | None = None
    """The words that have a tag each; None: the task has none."""
    answers: tuple[Mapping[str, Any], ...] | None = None
    """The best answers, with their places in the text; None: the task has none."""
    spans: tuple[str, ...] | None = None
    """The two spans that have the label together; None: the task has none."""
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        share = f", probability {cell(self.probability)}" if isinstance(self.probability, float) else ""
        return f"Prediction({self.answer!r}{share}: {cell(self.text)!r})"

    @property
    def answer(self) -> str:
        """The label in one line: words with their tags, several labels with commas."""
        if self.words is not None:
            return cell(" ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.label, strict=True)))
        return ", ".join(map(str, self.label)) if isinstance(self.label, list | tuple) else str(self.label)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Prediction:
        lists = {name: tuple(content[name]) for name in ("words", "answers", "spans") if content[name] is not None}
        return cls(**{**content, **lists})

    def record(self) -> dict[str, Any]:
        """What is written of it: nothing that its task does not have."""
        content: dict[str, Any] = {"id": self.id}
        if self.words is not None:
            content |= {"words": list(self.words), "tags": list(self.label), "probabilities": self.probability}
        else:
            content |= {"text": self.text}
            if self.second is not None:
                content["second"] = self.second
            if self.spans is not None:
                content["spans"] = list(self.spans)
            content["label"] = list(self.label) if isinstance(self.label, tuple) else self.label
            if self.probability is not None:
                content["probability"] = self.probability
            if self.probabilities:
                content["probabilities"] = dict(self.probabilities)
        if self.answers is not None:
            content["answers"] = [dict(each) for each in self.answers]
        if self.fields:
            content["fields"] = dict(self.fields)
        return content


def predictions_table(predictions: Sequence[Prediction]) -> Table:
    """Predictions, one row each."""

    def row(each: Prediction) -> tuple[Any, ...]:
        share = each.probability if isinstance(each.probability, float) else None
        return each.id, each.answer, share, each.text if each.second is None else f"{each.text} | {each.second}"

    title = counted(len(predictions), "prediction")
    return Table.of(title, ("id", "label", "probability", "text"), predictions, row)

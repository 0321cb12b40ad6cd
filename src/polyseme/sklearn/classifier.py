"""`ContextualClassifier`: one label per text, by a head over any encoder, frozen or tuned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.extras import require
from polyseme.options import flat_method
from polyseme.sklearn.inputs import GivenError, Texts, documents
from polyseme.sklearn.task_estimator import TaskEstimator, TaskEstimatorOptions
from polyseme.tasks.items import Item, TaskData
from polyseme.types import Document
from polyseme.verb_options.task_options import ReadoutOption

_base: Any = require("sklearn.base", extra="sklearn")
_validation: Any = require("sklearn.utils.validation", extra="sklearn")
_multiclass: Any = require("sklearn.utils.multiclass", extra="sklearn")


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions(TaskEstimatorOptions, ReadoutOption):
    """What `ContextualClassifier` takes."""


class ContextualClassifier(_base.ClassifierMixin, TaskEstimator):
    """Texts in, labels out: what `polyseme finetune classify` does, as an estimator.

    A text is a string, which is split into words, or a list of words, which are kept as they are. Labels are what
    scikit-learn takes for classes: strings, whole numbers, truth values. Settings have the names, meanings and defaults
    of `polyseme.finetune`; None is what suits the encoder and the size of the data.

    Fitted, it has `classes_` and `report_`, what `finetune` returns.

        >>> ContextualClassifier(tune=True).fit(texts, labels).predict_proba(others)         # doctest: +SKIP
    """

    @flat_method(ClassifierOptions)
    def __init__(self, options: ClassifierOptions) -> None:
        """Set the parameters; nothing is checked before `fit`."""
        self.__dict__.update(options.values())

    def fit(self, X: Texts, y: Any) -> ContextualClassifier:
        """Learn from texts and their labels."""
        targets = _validation.column_or_1d(y, warn=True)
        _multiclass.check_classification_targets(targets)
        texts = list(documents(X))
        _validation.check_consistent_length(texts, targets)
        classes, numbers = np.unique(targets, return_inverse=True)
        if len(classes) < 2:
            raise GivenError(
                f"There must be two classes or more to tell apart. Got {len(classes)} class on {len(texts)} texts."
            )
        labels = tuple(map(str, classes))
        items = [_item(text, gold=labels[number]) for text, number in zip(texts, numbers, strict=True)]
        data = TaskData(
            name="texts",
            kind="classify",
            labels=labels,
            splits={"train": items},
            metrics=("accuracy", "f1" if len(labels) == 2 else "macro_f1"),
        )
        self._learn(data, classes)
        return self

    def predict(self, X: Texts) -> NDArray[Any]:
        """The likeliest class of each text."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likeliest]  # type: ignore[no-any-return]

    def predict_proba(self, X: Texts) -> NDArray[np.float64]:
        """[texts, classes]: how likely each class is, in the order of `classes_`."""
        _validation.check_is_fitted(self, "classes_")
        judged = self._fitted.judge([_item(text) for text in documents(X)])
        shares = np.array([each.probabilities for each in judged], dtype=np.float64).reshape(-1, len(self.classes_))
        return shares / shares.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]


def _item(text: Document, gold: str | None = None) -> Item:
    place = f"Text {text.id}"
    if text.pretokenized:
        return Item.of_words(list(map(str, text.words)), gold=gold, place=place)
    return Item(text=text.text, gold=gold, place=place)

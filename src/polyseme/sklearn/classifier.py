"""`ContextualClassifier`: a label a text, by a head over any encoder, frozen or tuned."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.api import AnyPath, Model
from polyseme.extras import require
from polyseme.sklearn.inputs import GivenError, Texts, documents, refuse_to_pickle
from polyseme.sklearn.task_estimator import FittedTask, fit_task
from polyseme.tasks.items import Item, TaskData
from polyseme.transfer.finetune_report import FinetuneReport
from polyseme.types import Document

_base: Any = require("sklearn.base", extra="sklearn")
_validation: Any = require("sklearn.utils.validation", extra="sklearn")
_multiclass: Any = require("sklearn.utils.multiclass", extra="sklearn")


class ContextualClassifier(_base.ClassifierMixin, _base.BaseEstimator):
    """Texts in, labels out: what `polyseme finetune classify` does, as an estimator.

    A text is a string, which is split into words, or a list of words, which are kept as they are. Labels are what
    scikit-learn takes for classes: strings, whole numbers, truth values. Settings have the names, meanings and defaults
    of `polyseme.finetune`; None is what suits the encoder and the size of the data.

    - `model`: a folder, a name or `hub:owner/name`, as in `polyseme.load`; None is the default model. A loaded `Model`
      stays as it is and is shared by clones; an estimator with one cannot be pickled.
    - `tune`: whether the encoder learns, too. Otherwise it is frozen: vectors are computed once, and a head learns.
    - `layer`, `stack`, `pool`, `readout`, `head`, `inner_width`, `dropout`: what the head reads, and what it is.
    - `epochs`, `batch_size`, `learning_rate`, `seed`: how it learns.
    - `max_pieces`: of a text that a tuned encoder reads; what is longer is cut, and that is said. A frozen one reads
      long texts in windows.
    - `dev`: the share of the texts that is set aside and chooses the best epoch; 0: those that are learned from do.
    - `device`, `dtype`: as in `finetune`. `cache`: a folder for frozen vectors, so that a search computes them once.

    Fitted, it has `classes_` and `report_`, what `finetune` returns.

        >>> ContextualClassifier(tune=True).fit(texts, labels).predict_proba(others)         # doctest: +SKIP
    """

    classes_: NDArray[Any]
    report_: FinetuneReport

    def __init__(
        self,
        model: AnyPath | Model | None = None,
        *,
        tune: bool = False,
        layer: str | int | None = None,
        stack: str | None = None,
        pool: str | None = None,
        readout: str | None = None,
        head: str | None = None,
        inner_width: int | None = None,
        dropout: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        seed: int = 0,
        max_pieces: int | None = None,
        dev: float = 0.1,
        device: str = "auto",
        dtype: str = "auto",
        cache: AnyPath | None = None,
    ) -> None:
        self.model = model
        self.tune = tune
        self.layer = layer
        self.stack = stack
        self.pool = pool
        self.readout = readout
        self.head = head
        self.inner_width = inner_width
        self.dropout = dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed
        self.max_pieces = max_pieces
        self.dev = dev
        self.device = device
        self.dtype = dtype
        self.cache = cache

    def fit(self, X: Texts, y: Any) -> ContextualClassifier:
        """Learn from texts and a label each."""
        given = _validation.column_or_1d(y, warn=True)
        _multiclass.check_classification_targets(given)
        texts = list(documents(X))
        _validation.check_consistent_length(texts, given)
        classes, numbers = np.unique(given, return_inverse=True)
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
        self._fitted: FittedTask = fit_task(data, **self.get_params(deep=False))
        self.classes_, self.report_ = classes, self._fitted.report
        return self

    def predict(self, X: Texts) -> NDArray[Any]:
        """The likeliest class of each text."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        found: NDArray[Any] = self.classes_[likeliest]
        return found

    def predict_proba(self, X: Texts) -> NDArray[np.float64]:
        """[texts, classes]: how likely each class is, in the order of `classes_`."""
        _validation.check_is_fitted(self, "classes_")
        judged = self._fitted.judge([_item(text) for text in documents(X)])
        shares = np.array([each.probabilities for each in judged], dtype=np.float64).reshape(-1, len(self.classes_))
        found: NDArray[np.float64] = shares / shares.sum(axis=1, keepdims=True)
        return found

    def __getstate__(self) -> Any:
        refuse_to_pickle(self.model)
        return super().__getstate__()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


def _item(text: Document, gold: str | None = None) -> Item:
    place = f"Text {text.id}"
    if text.pretokenized:
        return Item.of_words(list(map(str, text.words)), gold=gold, place=place)
    return Item(text=text.text, gold=gold, place=place)

"""`ContextualTagger`: one tag per word, by a head over any encoder, frozen or tuned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import InputError, OptionError, nearest
from polyseme.extras import require
from polyseme.metrics.task_metrics import measure
from polyseme.options import flat_method, option
from polyseme.parts.crf import SCHEMES
from polyseme.sklearn.inputs import GivenError, documents
from polyseme.sklearn.task_estimator import TaskEstimator, TaskEstimatorOptions
from polyseme.tasks.items import Item, TaskData
from polyseme.tasks.tag import in_scheme
from polyseme.text.tag_schemes import detect_scheme

_validation: Any = require("sklearn.utils.validation", extra="sklearn")

METRICS = ("word_accuracy", "span_f1")

Sentences = Iterable[Sequence[str]]
Tags = Iterable[Sequence[Any]]


@dataclass(frozen=True, kw_only=True)
class TaggerOptions(TaskEstimatorOptions):
    """What `ContextualTagger` takes."""

    repair: bool = option(False, "Repair tags that their scheme does not allow, instead of refusing them.")
    metric: str = option("word_accuracy", "What `score` returns and what chooses the best epoch: or span_f1.")


class ContextualTagger(TaskEstimator):
    """Lists of words in, lists of tags out: what `polyseme finetune tag` does, as an estimator.

    Tags are strings (or whole numbers), one per word. Where they mark spans (B-PER, I-PER, O …), a sequence that its
    scheme does not allow is refused, or with `repair` repaired, and a head with a CRF predicts only what is allowed.
    Settings have the names, meanings and defaults of `polyseme.finetune`; None is what suits the encoder and the data.

    Fitted, it has `classes_`, the tags, and `report_`, what `finetune` returns.

        >>> ContextualTagger(head="bilstm-crf").fit(sentences, tags).predict([["Dawn", "broke"]])   # doctest: +SKIP
        [['NOUN', 'VERB']]
    """

    @flat_method(TaggerOptions)
    def __init__(self, options: TaggerOptions) -> None:
        """Set the parameters; nothing is checked before `fit`."""
        self.__dict__.update(options.values())

    def fit(self, X: Sentences, y: Tags) -> ContextualTagger:
        """Learn from sentences, as lists of words, and their lists of tags."""
        self._check_metric()
        items = _tag_items(_items(X), y)
        plain = np.unique(np.array([tag for item in items for tag in item.gold]))
        if len(plain) < 2:
            raise GivenError(f"There must be two tags or more to tell apart. Got {len(plain)} on {len(items)} texts.")
        items = [_as_strings(item) for item in items]
        scheme = detect_scheme(item.gold for item in items)
        notes: tuple[str, ...] = ()
        if scheme in SCHEMES:
            try:
                read = in_scheme({"train": items}, scheme=scheme, repair=self.repair, by_line=False)
            except InputError as error:
                raise GivenError(str(error)) from None
            items, notes = list(read.splits["train"]), tuple(read.notes)
        elif scheme is not None:
            scheme, notes = None, (f"Tags in {scheme} are learned as they are: their order is not held to the scheme.",)
        used = {tag for item in items for tag in item.gold}
        classes = plain if used <= set(map(str, plain)) else np.array(sorted(used))
        data = TaskData(
            name="sentences",
            kind="tag",
            labels=tuple(map(str, classes)),
            splits={"train": items},
            metrics=tuple(dict.fromkeys([self.metric, *(METRICS if scheme else METRICS[:1])])),
            scheme=scheme,
            notes=notes,
        )
        self._learn(data, classes)
        return self

    def predict(self, X: Sentences) -> list[list[Any]]:
        """One list of tags per sentence, one tag per word."""
        _validation.check_is_fitted(self, "classes_")
        tags = dict(zip(map(str, self.classes_), self.classes_.tolist(), strict=True))
        return [[tags[tag] for tag in each.answer] for each in self._fitted.judge(_items(X))]

    def predict_proba(self, X: Sentences) -> list[NDArray[np.float64]]:
        """Of each sentence [words, tags]: how likely each tag is, in the order of `classes_`.

        Of a CRF these are the marginals; the tags that it predicts are the likeliest sequence.
        """
        _validation.check_is_fitted(self, "classes_")
        known = self._fitted.model.head.config.labels
        order = [known.index(label) for label in map(str, self.classes_)]
        return [_shares(each.probabilities, order) for each in self._fitted.judge(_items(X))]

    def score(self, X: Sentences, y: Tags) -> float:
        """The share of words whose tag is right, or with `metric="span_f1"` the F1 of spans, as conlleval counts."""
        self._check_metric()
        items = _tag_items(_items(X), y)
        gold = [list(map(str, item.gold)) for item in items]
        predicted = [list(map(str, tags)) for tags in self.predict([item.words for item in items])]
        return measure([self.metric], gold, predicted)[self.metric]

    def _check_metric(self) -> None:
        if self.metric not in METRICS:
            raise OptionError(f"There is no metric {self.metric!r} here. {nearest(str(self.metric), METRICS)}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _items(sentences: Any) -> list[Item]:
    """Sentences as items; a string has no words of its own, to which tags could belong, and is refused."""
    if isinstance(sentences, Iterable) and not isinstance(sentences, str):
        sentences = list(sentences)
        for number, sentence in enumerate(sentences):
            if isinstance(sentence, str):
                raise GivenError(
                    f"Text {number} must be a list of words, each of which gets a tag. Got the string "
                    f"{sentence[:40]!r} instead."
                )
    return [Item.of_words(list(map(str, each.words)), place=f"Text {each.id}") for each in documents(sentences)]


def _tag_items(items: Sequence[Item], y: Any) -> list[Item]:
    """The items with their tags, as many as words."""
    if y is None or isinstance(y, str) or not isinstance(y, Iterable):
        raise GivenError(f"The tags must come as one list of tags per sentence. Got a {type(y).__name__} instead.")
    tags = [_tags_of(each, number) for number, each in enumerate(y)]
    if len(tags) != len(items):
        raise GivenError(f"There are {len(items)} sentences and {len(tags)} lists of tags.")
    for item, gold in zip(items, tags, strict=True):
        if len(gold) != len(item.words):
            raise GivenError(f"{item.place}: there are {len(item.words)} words and {len(gold)} tags.")
    return [Item.of_words(item.words, gold=gold, place=item.place) for item, gold in zip(items, tags, strict=True)]


def _tags_of(tags: Any, number: int) -> tuple[Any, ...]:
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise GivenError(f"Text {number}: its tags must be a list, one per word. Got {tags!r} instead.")
    for tag in (own := tuple(tags)):
        if not isinstance(tag, str) and not hasattr(tag, "__index__"):
            raise GivenError(f"Text {number}: a tag must be a string or a whole number. Got {tag!r} instead.")
    return own


def _as_strings(item: Item) -> Item:
    return Item.of_words(item.words, gold=tuple(map(str, item.gold)), place=item.place)


def _shares(rows: Sequence[Any], order: Sequence[int]) -> NDArray[np.float64]:
    shares = np.array([np.asarray(row, dtype=np.float64) for row in rows]).reshape(-1, len(order))[:, order]
    return shares / shares.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]

"""Attributions of several texts: which score is followed back, and the record, table and page of what words add."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from polyseme.analysis.attributions import Attributor, Baseline, ItemAttribution, Method
from polyseme.analysis.findings import Findings, signed
from polyseme.cost import Tally
from polyseme.errors import InputError, OptionError, nearest
from polyseme.plots.charts import BARS_STYLE, signed_bars_table
from polyseme.plots.html_page import escaped
from polyseme.plots.shaded_text import shaded_spans, signed_shade, signed_shades
from polyseme.result_tables import cell
from polyseme.tasks.items import Item
from polyseme.tasks.kind import given_words
from polyseme.tasks.predictions import Prediction
from polyseme.text.word_forms import times
from polyseme.transfer.predict_files import Predictor
from polyseme.transfer.task_model import TaskModel
from polyseme.types import Progress

MOST_ERROR = 0.05
"""Of the difference of the scores; a larger error is reported."""
MOST_BARS = 60
"""Words that have a bar; of a longer text those with the largest attributions."""
_STYLE = """
.attributed .text { white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.9; font-size: 1.05rem;
  margin: .4rem 0; max-width: 60rem }
.attributed .text span { border-radius: 3px; padding: .12em .05em }
.attributed .scale { display: flex; align-items: center; gap: .6em; font-size: .85rem; color: var(--faint) }
.attributed .scale i { display: inline-block; width: 15em; height: .8em; border-radius: 3px }
""".strip()


@dataclass(frozen=True, kw_only=True)
class AttributedText:
    """One text with what its words add."""

    prediction: Prediction
    label: str
    """Whose score was attributed; of regression, `number`."""
    probability: float | None
    """Of the label."""
    tagged: int | None
    """The number of the word whose tag it is, from 0."""
    attributed: ItemAttribution


@dataclass(frozen=True, kw_only=True, repr=False)
class AttributionFindings(Findings):
    """What each word adds to a task model's score."""

    verb: ClassVar[str] = "attribute"
    page_style: ClassVar[str] = f"{BARS_STYLE}\n{_STYLE}\n{signed_shades('attributed')}"

    method: Method
    baseline: Baseline
    steps: int
    texts: Sequence[AttributedText] = field(repr=False)

    def title(self) -> str:
        return "What each word adds to the score"

    def records(self) -> list[dict[str, Any]]:
        """One per word."""
        return [
            {
                "text": number,
                "id": each.prediction.id,
                "label": each.label,
                "probability": each.probability,
                "side": 1 if place < each.attributed.n_first else 2,
                "word": word,
                "start": start,
                "end": end,
                "attribution": None if math.isnan(value) else value,
            }
            for number, each in enumerate(self.texts, start=1)
            for place, (word, (start, end), value) in enumerate(
                zip(each.attributed.words, each.attributed.spans, each.attributed.values.tolist(), strict=True)
            )
        ]

    def to_json(self) -> dict[str, Any]:
        texts = [
            {
                "text": each.prediction.text,
                "second": each.prediction.second,
                "label": each.label,
                "probability": each.probability,
                "score": each.attributed.score,
                "baseline_score": each.attributed.baseline_score,
                "sum": each.attributed.total,
                "error": each.attributed.error if self.complete else None,
            }
            for each in self.texts
        ]
        return {**super().to_json(), **self._settings(), "texts": texts}

    @property
    def complete(self) -> bool:
        """Whether attributions should sum to the difference of the scores."""
        return self.method == "integrated-gradients"

    def _settings(self) -> dict[str, Any]:
        steps = {"steps": self.steps} if self.complete else {}
        return {"method": self.method, "baseline": self.baseline, **steps}

    def _method(self) -> str:
        words = {"pad": "the padding piece", "mask": "the mask", "zero": "zero"}[self.baseline]
        if not self.complete:
            return "gradient × input"
        return f"integrated gradients from a baseline ({words} in place of every piece of a word), {self.steps} steps"

    def header(self) -> Sequence[str]:
        return ["text", "label", "word", "attribution"]

    def rows(self) -> Sequence[Sequence[str]]:
        rows = []
        for record in self.records():
            value = record["attribution"]
            spelled = "not read" if value is None else signed(value, 4)
            rows.append([str(record["text"]), record["label"], cell(record["word"]), spelled])
        for number, each in enumerate(self.texts, start=1):
            rows.append([str(number), each.label, *self._closing(each)])
        return rows

    def _closing(self, each: AttributedText) -> list[str]:
        result = each.attributed
        score, base = (f"{each:.4f}".replace("-", "−") for each in (result.score, result.baseline_score))
        baseline = base if result.baseline_score >= 0 else f"({base})"
        gap = f"{score} − {baseline} = {signed(result.score - result.baseline_score, 4)}"
        if not self.complete:
            return ["sum of all", signed(result.total, 4)]
        return ["sum of all", f"{signed(result.total, 4)} (scores: {gap}; error {100 * result.error:.2g}%)"]

    def page_body(self) -> str:
        return "\n".join(
            [
                '<div class="attributed">',
                '<p class="scale">against the label<i class="both"></i>for it</p>',
                *(self._section(each) for each in self.texts),
                "</div>",
                f'<p class="faint">Method: {escaped(self._method())}. '
                "The largest attribution of each text has the darkest shade. The score is the output of the head "
                "before the softmax.</p>",
            ]
        )

    def _section(self, each: AttributedText) -> str:
        result, prediction = each.attributed, each.prediction
        values = result.values.tolist()
        largest = max((abs(value) for value in values if not math.isnan(value)), default=1.0) or 1.0
        spans = [
            (start, end, "" if math.isnan(value) else signed_shade(value / largest), f"{word}: {signed(value, 4)}")
            for word, (start, end), value in zip(result.words, result.spans, values, strict=True)
        ]
        texts = [shaded_spans(prediction.text, spans[: result.n_first])]
        if prediction.second is not None:
            texts.append(shaded_spans(prediction.second, spans[result.n_first :]))
        shown = sorted(range(len(values)), key=lambda place: -abs(0 if math.isnan(values[place]) else values[place]))
        places = sorted(shown[:MOST_BARS])
        named = f"{each.label}" if each.probability is None else f"{each.label} ({100 * each.probability:.1f}%)"
        of_word = "" if each.tagged is None else f" at {result.words[each.tagged]}"
        others = "; ".join(f"{label} {100 * p:.1f}%" for label, p in prediction.probabilities.items())
        return "\n".join(
            [
                f"<section><h2>{escaped(named + of_word)}</h2>",
                *([f'<p class="faint">{escaped(others)}</p>'] if others else []),
                *(f'<div class="text" dir="auto">{text}</div>' for text in texts),
                signed_bars_table([(result.words[place], values[place]) for place in places]),
                f'<p class="faint">{escaped(": ".join(self._closing(each)))}</p></section>',
            ]
        )


def attribute_items(
    model: TaskModel,
    items: Sequence[Item],
    *,
    name: str,
    data: str,
    label: str | None,
    word: str | None,
    method: Method,
    steps: int,
    baseline: Baseline | None,
    occurrence: int = 1,
    progress: Progress | None = None,
) -> AttributionFindings:
    """What each word of each item adds to the score of a label: the predicted one, unless one is named."""
    started = time.perf_counter()
    attributor = Attributor(model, baseline)
    labels = model.head.config.labels
    if label is not None and label not in labels:
        known = nearest(label, labels) if labels else "It predicts numbers: leave the label out."
        raise OptionError(f"The model has no label {label!r}. {known}")
    predictor = Predictor(model)
    predictions = predictor(items)
    notes: list[str] = []
    texts = []
    tally = Tally()
    for number, (item, prediction) in enumerate(zip(items, predictions, strict=True)):
        tagged = _tagged_word(attributor, item, word, occurrence, notes)
        read = attributor.read(item, tagged)
        chosen, probability, pick = _target(model, prediction, label, tagged, read.first_word)
        attributed = attributor.attribute(read, pick, method=method, steps=steps)
        notes += attributed.notes
        texts.append(
            AttributedText(
                prediction=prediction, label=chosen, probability=probability, tagged=tagged, attributed=attributed
            )
        )
        runs = 3 if method == "gradient-x-input" else steps + 2
        pieces = runs * read.n_pieces
        flops = runs * model.forward_flops([read.n_pieces])
        tally.add(Tally(documents=1, words=len(read.words), pieces=pieces, flops=flops))
        if progress is not None:
            progress(number + 1, len(items))
    inexact = [n for n, each in enumerate(texts, start=1) if each.attributed.error > MOST_ERROR]
    if inexact and method == "integrated-gradients":
        worst = max(texts[n - 1].attributed.error for n in inexact)
        notes.append(
            f"The sum of attributions differs from the difference of the scores by more than {100 * MOST_ERROR:.0f}% "
            f"in {len(inexact)} of {len(texts)} texts (by {100 * worst:.0f}% at most). Use more steps: --steps "
            f"{4 * steps}."
        )
    if getattr(model.head, "chain", None) is not None:
        notes.append("The score is the word's own, without the CRF's scores of adjacent tags.")
    return AttributionFindings(
        model=name,
        data=data,
        notes=list(dict.fromkeys(notes)),
        cost=tally.cost(time.perf_counter() - started, model.device),
        method=method,
        baseline=attributor.baseline,
        steps=steps,
        texts=texts,
    )


def _tagged_word(attributor: Attributor, item: Item, word: str | None, occurrence: int, notes: list[str]) -> int | None:
    """The number of the word whose tag is attributed; None: the whole text is labeled."""
    if not attributor.kind.labels_words:
        if word is not None:
            raise OptionError(
                f"The model labels whole texts (task {attributor.kind.name!r}) and does not tag words. Leave --word "
                "out (word=…)."
            )
        return None
    words = list(given_words(item))
    if word is None:
        raise OptionError("The model tags words. Name the word whose tag is attributed: --word WORD (word=…).")
    if word not in words:
        raise InputError(
            f"The word {word!r} does not occur in {cell(item.text)!r}. {nearest(word, dict.fromkeys(words))}"
        )
    places = [place for place, each in enumerate(words) if each == word]
    if occurrence > len(places):
        raise InputError(
            f"The word {word!r} occurs {times(len(places))} in {cell(item.text)!r}. Got occurrence {occurrence}."
        )
    if len(places) > 1 and occurrence == 1:
        notes.append(
            f"The word {word!r} occurs {times(len(places))} in {cell(item.text)!r}; the tag of the first is "
            "attributed, unless --occurrence (occurrence=…) names another."
        )
    return places[occurrence - 1]


def _target(
    model: TaskModel, prediction: Prediction, label: str | None, tagged: int | None, first_word: int
) -> tuple[str, float | None, Callable[[Tensor], Tensor]]:
    """The label, its probability, and what takes its score from those of the head, [N, …] → [N]."""
    labels = list(model.head.config.labels)
    if model.head.config.regression:
        return f"number {prediction.label:.4g}", None, lambda scores: scores
    if tagged is not None:
        chosen = label or str(prediction.label[tagged])
        number = labels.index(chosen)
        probability = float(prediction.probability[tagged]) if chosen == prediction.label[tagged] else None
        return chosen, probability, lambda scores: scores[:, tagged - first_word, number]
    chosen = label or max(prediction.probabilities, key=lambda each: prediction.probabilities[each])
    number = labels.index(chosen)
    return chosen, float(prediction.probabilities[chosen]), lambda scores: scores[:, number]

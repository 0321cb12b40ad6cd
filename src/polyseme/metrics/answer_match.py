"""Exact match and F1 of answers, as SQuAD's official scripts of v1.1 and v2.0 count them.

An answer is normalized (small letters, no punctuation, no articles, single blanks) and compared with every gold answer;
the best counts. The two versions differ in what is empty: in v2.0 a question may have no answer, a gold answer that
normalizes to nothing is none, and where one side is empty the figures say whether both are. v1.1 knows nothing of that.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from polyseme.errors import InputError

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class AnswerScore(NamedTuple):
    """What one answer is worth: whether it is a gold one, and the overlap in words with the nearest one."""

    exact: float
    f1: float


def normalize_answer(answer: str) -> str:
    """An answer as it is compared.

    >>> normalize_answer("The  Broncos, of an 'NFL'.")
    'broncos of nfl'
    """
    return " ".join(_ARTICLE.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def score_answer(gold: Sequence[Any], predicted: str, *, version: str = "v1.1") -> AnswerScore:
    """The score of one answer, empty for none, against the gold ones: strings, or records with a `text`."""
    golds = [str(getattr(each, "text", each)) for each in gold]
    if version == "v2.0":
        golds = [each for each in golds if normalize_answer(each)] or [""]
    if not golds:
        raise InputError("A question has no gold answer. In v1.1 each has one; where some have none, count as v2.0.")
    ours = normalize_answer(predicted)
    exact = max(float(normalize_answer(each) == ours) for each in golds)
    return AnswerScore(exact, max(_f1(normalize_answer(each), ours, version) for each in golds))


def _f1(gold: str, predicted: str, version: str) -> float:
    ours, theirs = gold.split(), predicted.split()
    if version == "v2.0" and not (ours and theirs):
        return float(ours == theirs)
    shared = (Counter(ours) & Counter(theirs)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(theirs), shared / len(ours)
    return 2 * precision * recall / (precision + recall)


def answer_scores(
    gold: Sequence[Sequence[Any]], predicted: Sequence[str], *, version: str | None = None
) -> list[AnswerScore]:
    """The score of each answer; v2.0 is scored where some question has no answer, unless a version is named."""
    version = version or ("v1.1" if all(gold) else "v2.0")
    return [score_answer(golds, each, version=version) for golds, each in zip(gold, predicted, strict=True)]


class Threshold(NamedTuple):
    """The score of "no answer" above which none is given, and the mean score of the answers with it."""

    value: float
    score: float


def best_threshold(scores: Sequence[float], has_answer: Sequence[bool], no_answer: Sequence[float]) -> Threshold:
    """The threshold on the score of "no answer" at which the mean score is best, as v2.0's script seeks it.

    Args:
        scores: of each question, that of the best answer that is not empty.
        has_answer: whether there is one.
        no_answer: the score of "no answer", a probability or a margin; above the threshold the answer becomes empty.
    """
    if not scores:
        raise InputError("There are no questions to find a threshold on.")
    current = best = float(sum(not each for each in has_answer))
    lowest = min(no_answer)
    threshold = 0.0 if lowest > 0 else lowest - 1.0  # no question is answered
    for at in sorted(range(len(scores)), key=lambda number: no_answer[number]):
        # the script takes one point for an answer, however good, where there is none
        current += scores[at] if has_answer[at] else -1.0
        if current > best:
            best, threshold = current, no_answer[at]
    return Threshold(threshold, best / len(scores))

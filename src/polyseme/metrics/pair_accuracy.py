"""How often the good side of a pair won, in all and by group, and how far such a figure can be trusted.

A tie is wrong. Beside each share stands Wilson's interval of 95%, the mean margin (log-probability of the good side
less that of the best bad one, natural) with its spread over items, and the spread of the share over the groups one
level down, where there are any: standard deviations, of the sample. BabyLM's convention (`babylm_figures`) gives each
paradigm the same weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyseme.metrics.evaluation_report import Figures, Line
from polyseme.metrics.sampling_error import Z95, wilson_interval

if TYPE_CHECKING:
    from polyseme.datasets.lambada import LastWord
    from polyseme.datasets.minimal_pairs import PairSet

COLUMNS: Mapping[str, str] = {
    "accuracy": "share of items in which the good side has the higher score; a tie is wrong",
    "low": "Wilson's interval of 95%, its lower end",
    "high": "its upper end",
    "spread": "standard deviation of accuracy over the groups one level down",
    "margin": "log-probability of the good side less that of the best bad one, natural: the mean over items",
    "margin_spread": "its standard deviation over items",
    "ties": "how many items were ties",
}
BABYLM_COLUMNS: Mapping[str, str] = {
    **COLUMNS,
    "accuracy": "share of pairs in which the good side has the higher score (a tie is wrong); of blimp and of the "
    "supplement the mean over their paradigms, as BabyLM reports it",
    "low": "interval of 95%, its lower end: Wilson's; of a mean over paradigms, by the variances of these",
}
LAST_WORD_COLUMNS: Mapping[str, str] = {
    "accuracy": "share of passages in which every piece of the last word is the likeliest one; a tie is wrong",
    "low": "Wilson's interval of 95%, its lower end",
    "high": "its upper end",
    "perplexity": "of the last word: exp of minus its mean log-probability",
    "log_prob": "of the last word, natural: the mean over passages",
    "log_prob_spread": "its standard deviation over passages",
}
Floats = NDArray[np.float64]


def pair_figures(sets: Sequence[PairSet], scores: Sequence[Sequence[tuple[float, ...]]]) -> Figures:
    """The metric of minimal pairs, from the score of the good side of each and those of its bad ones."""
    lines = pair_lines(sets, [_margins(each) for each in scores])
    return Figures(columns=COLUMNS, lines=lines, baseline=0.5, items=pair_items(sets, scores))


def set_figures(sets: Sequence[PairSet], scores: Sequence[Sequence[tuple[float, ...]]]) -> Figures:
    """The same where sets are the same items, scored differently: each has its figures, and there is none for all."""
    lines: list[Line] = []
    for each, theirs in zip(sets, scores, strict=True):
        margins = _margins(theirs)
        groups = _group_lines(each.levels, [pair.groups for pair in each.pairs], margins, parent=each.name)
        direct = [line for line in groups if line.depth == 1]
        lines += [Line("set", each.name, len(margins), _figures(margins, direct)), *groups]
    return Figures(columns=COLUMNS, lines=lines, baseline=0.5, items=pair_items(sets, scores))


def _margins(scores: Sequence[tuple[float, ...]]) -> Floats:
    return np.array([good - max(bad) for good, *bad in scores], dtype=np.float64)


def babylm_figures(sets: Sequence[PairSet], scores: Sequence[Sequence[tuple[float, ...]]]) -> Figures:
    """The same by BabyLM's convention: each set counts as the mean over its paradigms, however many pairs these have.

    There is no line for all sets together, since BabyLM reports each by itself.
    """
    lines: list[Line] = []
    for each, theirs in zip(sets, scores, strict=True):
        margins = _margins(theirs)
        groups = _group_lines(each.levels, [pair.groups for pair in each.pairs], margins, parent=each.name)
        paradigms = [line for line in groups if line.depth == len(each.levels)]
        direct = [line for line in groups if line.depth == 1]
        figures = {**_figures(margins, direct), **_mean_over(paradigms)}
        lines += [Line("set", each.name, len(margins), figures), *groups]
    return Figures(columns=BABYLM_COLUMNS, lines=lines, baseline=0.5, items=pair_items(sets, scores))


def _mean_over(paradigms: Sequence[Line]) -> dict[str, float | None]:
    """The mean of the accuracies of paradigms, with an interval by their variances, which are independent."""
    shares = np.array([line.figures["accuracy"] for line in paradigms], dtype=np.float64)
    variances = shares * (1 - shares) / np.array([line.n for line in paradigms])
    mean, reach = float(shares.mean()), Z95 * math.sqrt(float(variances.sum())) / len(shares)
    return {"accuracy": mean, "low": max(mean - reach, 0.0), "high": min(mean + reach, 1.0)}


def last_word_figures(items: Sequence[LastWord], answers: tuple[Floats, NDArray[np.bool_]]) -> Figures:
    """The metric of last words, from the log-probability of each and whether it was predicted."""
    return Figures(columns=LAST_WORD_COLUMNS, lines=last_word_lines(*answers), items=last_word_items(items, *answers))


def pair_lines(sets: Sequence[PairSet], margins: Sequence[Floats]) -> list[Line]:
    """The figures of all pairs, of each set, where there are several, and of each group of each level."""
    lines: list[Line] = []
    several = len(sets) > 1
    for each, theirs in zip(sets, margins, strict=True):
        prefix = (each.name,) if several else ()
        levels = (("set",) if several else ()) + each.levels
        paths = [prefix + pair.groups for pair in each.pairs]
        lines += _group_lines(levels, paths, theirs)
    below = [line for line in lines if line.depth == 1]
    every = np.concatenate(list(margins)) if margins else np.zeros(0)
    return [Line("all", "all", len(every), _figures(every, below)), *lines]


def _group_lines(
    levels: Sequence[str], paths: Sequence[tuple[str, ...]], margins: Floats, depth: int = 1, parent: str = ""
) -> list[Line]:
    """A line for each group, wide ones first, each followed by those within it."""
    if not levels:
        return []
    lines: list[Line] = []
    names = np.array([path[0] for path in paths], dtype=object)
    for name in dict.fromkeys(names.tolist()):
        of_it = np.flatnonzero(names == name)
        shorter = [paths[place][1:] for place in of_it.tolist()]
        within = _group_lines(levels[1:], shorter, margins[of_it], depth + 1, name)
        direct = [line for line in within if line.depth == depth + 1]
        lines += [Line(levels[0], name, len(of_it), _figures(margins[of_it], direct), parent, depth), *within]
    return lines


def _figures(margins: Floats, below: Sequence[Line]) -> dict[str, float | None]:
    right = margins > 0
    n = len(margins)
    low, high = wilson_interval(int(right.sum()), n)
    shares = [line.figures["accuracy"] for line in below]
    return {
        "accuracy": float(right.mean()) if n else None,
        "low": low,
        "high": high,
        "spread": _spread([share for share in shares if share is not None]),
        "margin": float(margins.mean()) if n else None,
        "margin_spread": _spread(margins.tolist()),
        "ties": float((margins == 0).sum()),
    }


def pair_items(sets: Sequence[PairSet], scores: Sequence[Sequence[tuple[float, ...]]]) -> list[dict[str, Any]]:
    """One record per pair: its groups, its scores, and whether it was right."""
    return [
        {
            "place": pair.place,
            "set": each.name,
            **dict(zip(each.levels, pair.groups, strict=True)),
            "good": good,
            "bad": bad[0] if len(bad) == 1 else bad,
            "margin": good - max(bad),
            "right": good > max(bad),
        }
        for each, theirs in zip(sets, scores, strict=True)
        for pair, (good, *bad) in zip(each.pairs, theirs, strict=True)
    ]


def last_word_lines(log_probs: Floats, right: NDArray[np.bool_]) -> list[Line]:
    """The one line of LAMBADA."""
    low, high = wilson_interval(int(right.sum()), len(right))
    figures = {
        "accuracy": float(right.mean()),
        "low": low,
        "high": high,
        "perplexity": math.exp(min(-float(log_probs.mean()), 700.0)),
        "log_prob": float(log_probs.mean()),
        "log_prob_spread": _spread(log_probs.tolist()),
    }
    return [Line("all", "all", len(right), figures)]


def last_word_items(items: Sequence[LastWord], log_probs: Floats, right: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """One record per passage."""
    return [
        {"id": item.document.id, "word": str(item.document.words[-1]), "log_prob": log_prob, "right": is_right}
        for item, log_prob, is_right in zip(items, log_probs.tolist(), right.tolist(), strict=True)
    ]


def _spread(values: Iterable[float]) -> float | None:
    sample = np.array(list(values), dtype=np.float64)
    return float(sample.std(ddof=1)) if len(sample) > 1 else None

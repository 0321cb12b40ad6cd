"""Two corpora compared, as files: JSON, CSV or a page, by the extension of the file name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from polyseme.files.result_formats import Formats, json_text, table_text
from polyseme.plots.comparison_pages import ComparedWord, NamedNumbers, SharedSense, word_page
from polyseme.plots.word_differences_page import ListedWord, words_page
from polyseme.two_corpora.compare_word import ComparedUse, Comparison, SenseChange
from polyseme.two_corpora.compare_words import Differences, WordDifference
from polyseme.word_senses.projection import NAMES


def measures_of(result: Comparison) -> list[NamedNumbers]:
    """The measures of a word with their names."""
    named = {"difference": result.difference, "APD": result.apd, "PRT": result.prt, "JSD": result.jsd}
    return [NamedNumbers(name, each.value, each.expected, each.p, each.low, each.high) for name, each in named.items()]


def notes_of(result: Comparison) -> list[str]:
    """Notes about the measures, the test and the senses."""
    drawn = [
        f"Of {count:,} uses in {source}, {n_uses:,} were drawn."
        for count, n_uses, source in zip(result.counts, result.n_uses, result.sources, strict=True)
        if n_uses < count
    ]
    return [
        *drawn,
        result.explanation,
        f"Senses of both corpora together: {result.senses_explanation}",
        "APD: the mean cosine distance between a use in one corpus and a use in the other. Difference: APD minus the "
        "mean distance between uses of different texts within the corpora. PRT: the cosine distance between the mean "
        "vectors. JSD: the Jensen–Shannon divergence of the senses, in bits.",
    ]


def notes_of_words(result: Differences) -> list[str]:
    """Notes about the words that were compared, the test and the measures."""
    return [
        result.explanation,
        "Effect: the difference between APD and the mean distance between uses of different texts within the corpora, "
        "as a share of APD.",
    ]


def verdict(sense: SenseChange) -> str:
    """Whether a sense grew or shrank, with the interval, in points of percent."""
    change = f"{100 * sense.change:+.0f} points".replace("-", "−")
    if sense.low is None or sense.high is None:
        return change
    reach = f"{100 * sense.low:+.0f} to {100 * sense.high:+.0f}".replace("-", "−")
    return f"{sense.direction or 'no clear change'}: {change} ({reach})"


def _word_page(result: Comparison) -> str:
    lines = [(use.id, use) for use in result.uses]
    return word_page(
        ComparedWord(
            word=result.word,
            headline=result.headline[0].upper() + result.headline[1:],
            corpora=result.sources,
            n_uses=result.n_uses,
            measures=measures_of(result),
            notes=notes_of(result),
            uses=lines,
            corpus=[use.corpus for use in result.uses],
            senses=[use.sense for use in result.uses],
            points=np.array([(use.x, use.y) for use in result.uses]),
            map=NAMES[result.map],
            shared_senses=[
                SharedSense(
                    sense=each.sense,
                    neighbors=each.neighbors,
                    shares=each.shares,
                    n_uses=each.n_uses,
                    verdict=verdict(each) if len(result.senses) > 1 else "",
                    lines=([lines[at] for at in each.examples[0]], [lines[at] for at in each.examples[1]]),
                )
                for each in sorted(result.senses, key=lambda sense: -abs(sense.change))
            ],
            difference=result.difference.value,
            draws=result.draws,
        )
    )


def _words_page(result: Differences) -> str:
    return words_page(
        corpora=result.sources,
        headline=result.headline,
        notes=notes_of_words(result),
        words=[_listed_word(each) for each in result.words],
        top=result.top,
    )


def _listed_word(word: WordDifference) -> ListedWord:
    low, high = word.effect_interval or (None, None)
    return ListedWord(
        word=word.word,
        counts=word.counts,
        measures=[word.apd, word.prt, word.jsd],
        effect=word.effect,
        p=word.p,
        p_adjusted=word.p_adjusted,
        differs=word.differs,
        low=low,
        high=high,
        lines=([(use.id, use) for use in word.lines[0]], [(use.id, use) for use in word.lines[1]]),
    )


def _csv(items: Sequence[Any], first: Callable[[Any], Mapping[str, Any]], fields: Sequence[str]) -> str:
    """A row per item: the columns of `first`, then fields of the item."""
    return table_text([{**first(item), **{name: getattr(item, name) for name in fields}} for item in items])


def _json(result: Comparison | Differences) -> str:
    return json_text(asdict(result))


def _word_csv(result: Comparison) -> str:
    def corpus(use: ComparedUse) -> dict[str, Any]:
        return {"corpus": use.corpus, "source": result.sources[use.corpus - 1]}

    return _csv(result.uses, corpus, ("id", "sense", "x", "y", "start", "end", "text"))


def _words_csv(result: Differences) -> str:
    def counts(word: WordDifference) -> dict[str, Any]:
        return {"word": word.word, "uses_1": word.counts[0], "uses_2": word.counts[1]}

    return _csv(result.words, counts, ("effect", "difference", "apd", "prt", "jsd", "p", "p_adjusted"))


WORD_FORMATS: Formats = {".html": _word_page, ".json": _json, ".csv": _word_csv}
"""Of one word; the CSV has a row per use."""
WORDS_FORMATS: Formats = {".html": _words_page, ".json": _json, ".csv": _words_csv}
"""Of all words; the CSV has a row per word."""

"""The page of all frequent words in two corpora: a chart, and a list of those that differ most, with lines of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from polyseme.plots.charts import CHART_STYLE, Scale, log_ticks, reach_of, round_ticks
from polyseme.plots.colors import ramp, to_hex
from polyseme.plots.comparison_pages import (
    CORPORA_STYLE,
    Lines,
    chip,
    format_number,
    lines_of,
    short_p,
)
from polyseme.plots.html_page import escaped, page

N_LABELED = 40
"""Words that are written beside their points, if there is room."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM = 900, 380, 52, 70, 40
_LETTER = 6.6
"""The width of a letter, about."""
_STYLE = """
.words { max-width: 62rem } .words circle { opacity: .75 } .words .name { fill: var(--ink); font-size: 12.5px }
summary { cursor: pointer } .row { display: grid;
  grid-template-columns: 3rem 9rem minmax(6rem, 1fr) repeat(3, 4rem) 5rem 5rem 9rem; gap: 0 .6rem;
  padding: .2rem 0; border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums;
  text-align: right; align-items: center } .row > :nth-child(2) { text-align: left; overflow-wrap: anywhere }
.row div { background: var(--soft); height: .75rem; position: relative } .row div i { position: absolute;
  inset: 0 auto 0 0; border-radius: 0 2px 2px 0 } .row div u { position: absolute; top: 50%; height: 1px;
  background: var(--ink) } .head { color: var(--faint); font-size: .87rem }
.head > :nth-child(3) { background: none; height: auto; text-align: left } .two { display: grid; gap: 0 2rem;
  grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); padding: .3rem 0 1rem 3.6rem }
""".strip()


@dataclass(frozen=True, kw_only=True)
class ListedWord:
    """A word in the list."""

    word: str
    counts: tuple[int, int]
    effect: float
    """What is drawn and ranked by, with its interval."""
    measures: Sequence[float | None]
    """APD, PRT, JSD."""
    p: float | None
    p_adjusted: float | None
    differs: bool
    low: float | None = None
    high: float | None = None
    lines: tuple[Lines, Lines] = ((), ())


def words_page(
    *, corpora: tuple[str, str], headline: str, notes: Sequence[str], words: Sequence[ListedWord], top: int
) -> str:
    """All words as points by frequency and effect, and a list of those that differ most, each with lines on request."""
    longest = max((max(each.effect, each.high or 0) for each in words[:top]), default=0) or 1.0
    head = (
        '<div class="row head"><span></span><span>word</span><div>effect</div><span>APD</span><span>PRT</span>'
        "<span>JSD</span><span>p</span><span>adjusted</span><span>uses</span></div>"
    )
    names = " &emsp; ".join(f"{chip(number)}{escaped(corpora[number])}" for number in (0, 1))
    body = "\n".join(
        [
            "<h1>Two corpora</h1>",
            f"<p>{names}</p>",
            f"<p><b>{escaped(headline)}</b></p>",
            *(f'<p class="faint">{escaped(note)}</p>' for note in notes),
            _chart(words),
            f"<h2>The {min(top, len(words)):,} words that differ most</h2>",
            '<p class="faint">Open a word to read its most telling uses in each corpus.</p>',
            head,
            "".join(_row(number, each, longest) for number, each in enumerate(words[:top], start=1)),
        ]
    )
    return page(f"{corpora[0]} and {corpora[1]}", body, style=f"{CHART_STYLE}\n{CORPORA_STYLE}\n{_STYLE}")


def _color(word: ListedWord) -> str:
    return to_hex(ramp(0.55)) if word.differs else "var(--faint)"


def _row(number: int, word: ListedWord, longest: float) -> str:
    error = ""
    if word.low is not None and word.high is not None:
        low, high = (min(max(end / longest, 0), 1) for end in (word.low, word.high))
        error = f'<u style="left:{100 * low:.1f}%;width:{100 * (high - low):.1f}%"></u>'
    width = 100 * min(max(word.effect / longest, 0), 1)
    cells = "".join(f"<span>{format_number(value)}</span>" for value in word.measures)
    lines = "".join(f"<div>{lines_of(each, at)}</div>" for at, each in enumerate(word.lines) if each)
    return (
        f'<details><summary class="row"><span class="faint">{number}</span><b>{escaped(word.word)}</b>'
        f'<div title="{format_number(word.effect)}"><i style="width:{width:.1f}%;background:{_color(word)}"></i>'
        f"{error}</div>{cells}<span>{escaped(short_p(word.p))}</span><span>{escaped(short_p(word.p_adjusted))}</span>"
        f'<span class="faint">{word.counts[0]:,} + {word.counts[1]:,}</span></summary><div class="two">{lines}</div>'
        "</details>"
    )


def _chart(words: Sequence[ListedWord]) -> str:
    """The words by their frequency, where they are rarer, and their effect."""
    if len(words) < 2:
        return ""
    rarer = [min(each.counts) for each in words]
    low, high = min(rarer) * 0.9, max(rarer) * 1.1
    across = Scale(math.log10(low), math.log10(high), _LEFT, _WIDTH - _RIGHT)
    up = Scale(*reach_of([0.0, *(each.effect for each in words)]), _HEIGHT - _BOTTOM, 22)
    ticks = "".join(
        f'<text x="{across(math.log10(tick)):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{label}</text>'
        for tick, label in log_ticks(low, high)
    )
    ticks += "".join(
        f'<line class="rule" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"></line>'
        f'<text x="{_LEFT - 8}" y="{up(tick) + 4:.1f}" text-anchor="end">{label}</text>'
        for tick, label in round_ticks(up)
    )
    places = [(across(math.log10(count)), up(each.effect)) for each, count in zip(words, rarer, strict=True)]
    points = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3.6 if each.differs else 2.4}" fill="{_color(each)}">'
        f"<title>{escaped(each.word)}</title></circle>"
        for each, (x, y) in reversed([*zip(words, places, strict=True)])
    )
    return (
        f'<svg class="chart words" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Words by frequency and '
        f'effect">{ticks}{points}{_labels(words, places)}<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" '
        f'text-anchor="end">uses in the corpus where the word is rarer</text><text x="{_LEFT - 40}" y="12">effect'
        "</text></svg>"
    )


def _labels(words: Sequence[ListedWord], places: Sequence[tuple[float, float]]) -> str:
    """The names of the first words, those left out that would cover another."""
    taken: list[tuple[float, float, float]] = []
    parts = []
    for each, (x, y) in list(zip(words, places, strict=True))[:N_LABELED]:
        name = each.word[:24]
        start, end = x + 6, x + 6 + _LETTER * len(name)
        if any(abs(y - other) < 12 and start < stop and begin < end for begin, stop, other in taken):
            continue
        taken.append((start, end, y))
        parts.append(f'<text class="name" x="{start:.1f}" y="{y + 4:.1f}">{escaped(name)}</text>')
    return "".join(parts)

"""The page of a word in two corpora: a map of its uses, measures, and the senses that grew and shrank, with lines.

On the map each point is a use, in the color of its corpus or of its sense. The page of all words is
`word_differences_page`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.plots.charts import CHART_STYLE, Scale, reach_of, round_ticks
from polyseme.plots.colors import CONTRAST, group_color
from polyseme.plots.html_page import concordance, data, escaped, page
from polyseme.plots.sense_plots import CONTEXT, MOST_POINTS, on_page
from polyseme.plots.word_uses import Use

WHOLE = 240
"""Characters on each side of the word when a point is selected."""
N_BINS = 40
CORPUS_COLORS = (group_color(0), CONTRAST)

_SIDE = 640
CORPORA_STYLE = """
.chip { display: inline-block; width: .75em; height: .75em; border-radius: 50%; margin-right: .4em }
.lines { border-left: 4px solid var(--line); padding-left: .6rem; margin: .5rem 0 }
.lines td.number { width: 5.2rem; font-size: .8rem }
""".strip()
_STYLE = """
.layout { display: grid; grid-template-columns: minmax(0, 34rem) minmax(0, 1fr); gap: 1rem 2.5rem; margin-top: 1rem }
.layout > :first-child > div { position: sticky; top: 1rem }
@media (max-width: 60rem) { .layout { grid-template-columns: minmax(0, 1fr) } .layout > :first-child > div {
  position: static } }
.map svg { width: 100%; height: auto; background: var(--soft); border: 1px solid var(--line); border-radius: 6px;
  display: block } .map circle { stroke: var(--paper); stroke-width: .8; opacity: .8; fill: var(--corpus) }
.by-sense circle { fill: var(--sense) } .map circle.at { stroke: var(--ink); stroke-width: 2.5; opacity: 1 }
.dim circle { opacity: .08 } .dim circle.shown { opacity: .95 }
#sentence { min-height: 4.6em; padding: .4rem .7rem; border-left: 4px solid var(--line); background: var(--soft);
  margin: .5rem 0 } fieldset { border: 0; padding: 0; margin: .5rem 0 } fieldset label { margin-right: 1.2em }
table.numbers { table-layout: auto; width: auto; font-variant-numeric: tabular-nums } .numbers td, .numbers th {
  padding: .15rem .9rem .15rem 0; text-align: right; white-space: nowrap } .numbers td:first-child,
  .numbers th:first-child { text-align: left } th { font-weight: 500; color: var(--faint); font-size: .87rem;
  border-bottom: 1px solid var(--line) } section { margin-bottom: 1.3rem } h2 i { display: inline-block; width: .8em;
  height: .8em; border-radius: 2px; margin-right: .5em }
.shares { display: grid; grid-template-columns: max-content minmax(0, 1fr) max-content; gap: .15rem .6rem;
  align-items: center; font-size: .87rem; max-width: 34rem } .shares div { background: var(--soft); height: .8rem }
.shares > span { max-width: 12rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.shares div i { display: block; height: 100%; border-radius: 0 2px 2px 0 }
""".strip()
_SCRIPT = """
"use strict";
const shown = JSON.parse(document.getElementById("data").textContent);
const sentence = document.getElementById("sentence"), map = document.getElementById("map");
const points = Array.from(map.querySelectorAll("circle"));
function show(point) {
  points.forEach(each => each.classList.toggle("at", each === point));
  const [corpus, sense, before, word, after, id] = shown.uses[Number(point.dataset.use)];
  const bold = document.createElement("b");
  bold.textContent = word;
  const foot = document.createElement("div");
  foot.className = "faint";
  foot.textContent = shown.names[corpus - 1] + ", text " + id + ", sense " + sense;
  sentence.replaceChildren(before, bold, after, foot);
  sentence.style.borderColor = shown.colors[corpus - 1];
}
points.forEach(point => {
  for (const kind of ["mouseenter", "click"]) point.addEventListener(kind, () => show(point));
});
document.querySelectorAll("[data-only]").forEach(head => {
  head.addEventListener("mouseenter", () => {
    map.classList.add("dim");
    points.forEach(each => each.classList.toggle("shown", each.dataset[head.dataset.kind] === head.dataset.only));
  });
  head.addEventListener("mouseleave", () => map.classList.remove("dim"));
});
document.querySelectorAll("input[name=color]").forEach(choice => {
  choice.addEventListener("change", () => map.classList.toggle("by-sense", choice.value === "sense"));
});
""".strip()


class NamedNumbers(NamedTuple):
    """A measure: its value, that without a difference, p, and the ends of its interval, where there are any."""

    name: str
    value: float | None
    expected: float | None = None
    p: float | None = None
    low: float | None = None
    high: float | None = None


Lines = Sequence[tuple[str, Use]]
"""Uses with the ids of their texts."""


@dataclass(frozen=True, kw_only=True)
class SharedSense:
    """A sense in both corpora."""

    sense: int
    neighbors: Sequence[str]
    """Words that tell it from the other senses."""
    shares: tuple[float, float]
    n_uses: tuple[int, int]
    verdict: str
    """Whether it grew or shrank, in words."""
    lines: tuple[Lines, Lines]


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedWord:
    """The content of the page of one word."""

    word: str
    headline: str
    corpora: tuple[str, str]
    n_uses: tuple[int, int]
    measures: Sequence[NamedNumbers]
    notes: Sequence[str]
    uses: Lines
    corpus: Sequence[int]
    """Of each use, 1 or 2."""
    senses: Sequence[int]
    """Of each use, counted from 1."""
    points: NDArray[Any]
    """[n, 2]"""
    map: str
    """The name of the projection."""
    shared_senses: Sequence[SharedSense]
    difference: float | None
    draws: Sequence[float]
    """Differences after exchanges of texts."""


def word_page(shown: ComparedWord) -> str:
    """One word in two corpora: the map, the measures, the exchanges, the senses with lines of each corpus."""
    body = "\n".join(
        [
            f"<h1>{escaped(shown.word)}</h1>",
            f"<p><b>{escaped(shown.headline)}</b></p>",
            f"<p>{_legend(shown)}</p>",
            '<div class="layout"><div><div>',
            _map(shown),
            "</div></div><div>",
            f"<section>{_measures(shown.measures)}</section>",
            _exchanges(shown.difference, shown.draws),
            "".join(_sense(each, shown.corpora) for each in shown.shared_senses),
            "</div></div>",
            *(f'<p class="faint">{escaped(note)}</p>' for note in shown.notes),
            data(_details(shown)),
        ]
    )
    title = f"{shown.word} in {shown.corpora[0]} and {shown.corpora[1]}"
    return page(title, body, style=f"{CHART_STYLE}\n{CORPORA_STYLE}\n{_STYLE}", script=_SCRIPT)


def chip(number: int) -> str:
    """A dot in the color of a corpus, 0 or 1."""
    return f'<span class="chip" style="background:{CORPUS_COLORS[number]}"></span>'


def _legend(shown: ComparedWord) -> str:
    return " &emsp; ".join(
        f'<span data-kind="corpus" data-only="{number + 1}">{chip(number)}{escaped(shown.corpora[number])} '
        f'<span class="faint">{shown.n_uses[number]:,} use{"" if shown.n_uses[number] == 1 else "s"}</span></span>'
        for number in (0, 1)
    )


def _drawing_order(shown: ComparedWord) -> list[int]:
    """The uses whose points are drawn, in random order, so that neither corpus covers the other."""
    step = -(-len(shown.uses) // MOST_POINTS)
    drawn: list[int] = np.random.default_rng(0).permutation(len(shown.uses))[::step].tolist()
    return drawn


def _map(shown: ComparedWord) -> str:
    drawn = _drawing_order(shown)
    places = on_page(np.asarray(shown.points)[drawn])
    radius = float(np.clip(120 / np.sqrt(len(drawn)), 3.0, 7.0))
    circles = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" data-use="{number}" data-sense="{shown.senses[use]}" '
        f'data-corpus="{shown.corpus[use]}" style="--corpus:{CORPUS_COLORS[shown.corpus[use] - 1]};'
        f'--sense:{group_color(shown.senses[use] - 1)}"></circle>'
        for number, (use, (x, y)) in enumerate(zip(drawn, places, strict=True))
    )
    left_out = "" if len(drawn) == len(shown.uses) else f"; {len(drawn):,} of {len(shown.uses):,} are drawn"
    return (
        f'<div class="map" id="map"><svg viewBox="0 0 {_SIDE} {_SIDE}" role="img" aria-label="Map of the uses">'
        f"{circles}</svg></div>"
        '<fieldset>Color by <label><input type="radio" name="color" value="corpus" checked> corpus</label>'
        '<label><input type="radio" name="color" value="sense"> sense</label></fieldset>'
        '<div id="sentence" dir="auto" aria-live="polite"><span class="faint">Point at a use to read it, at a corpus '
        "or a sense to see its uses.</span></div>"
        f'<p class="faint">{escaped(shown.map)} of the vectors{left_out}.</p>'
    )


def _details(shown: ComparedWord) -> dict[str, Any]:
    """What the script shows of each point."""
    uses = [
        [shown.corpus[at], shown.senses[at], *shown.uses[at][1].keyword(WHOLE), shown.uses[at][0]]
        for at in _drawing_order(shown)
    ]
    return {"names": shown.corpora, "colors": CORPUS_COLORS, "uses": uses}


def format_number(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals, without a minus sign if it rounds to zero; empty if there is none."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def short_p(p: float | None) -> str:
    """A p-value in a table: three decimals, or `<.001`; empty if there is none.

    >>> short_p(0.0316), short_p(0.0004), short_p(None)
    ('0.032', '<.001', '')
    """
    return "" if p is None else "<.001" if p < 0.001 else f"{p:.3f}"


def _measures(measures: Sequence[NamedNumbers]) -> str:
    rows = [
        f"<tr><td>{escaped(each.name)}</td><td><b>{format_number(each.value)}</b></td><td>{format_number(each.expected)}</td>"
        f"<td>{'' if each.low is None else f'{format_number(each.low)} – {format_number(each.high)}'}</td>"
        f"<td>{escaped(short_p(each.p))}</td></tr>"
        for each in measures
    ]
    head = "<tr><th></th><th>value</th><th>without a difference</th><th>95% interval</th><th>p</th></tr>"
    return f'<table class="numbers">{head}{"".join(rows)}</table>'


def _exchanges(difference: float | None, draws: Sequence[float]) -> str:
    """A histogram of the differences after exchanges, and the observed one."""
    if difference is None or not len(draws):
        return ""
    width, height, ground = 520, 150, 112
    place = Scale(*reach_of([*draws, difference]), 20, width - 20)
    counts, edges = np.histogram(draws, bins=N_BINS)
    bars = "".join(
        f'<rect x="{place(low):.1f}" y="{ground - 84 * count / counts.max():.1f}" fill="var(--faint)" opacity=".55" '
        f'width="{max(place(high) - place(low) - 0.6, 0.8):.1f}" height="{84 * count / counts.max():.1f}"></rect>'
        for count, low, high in zip(counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    )
    ticks = "".join(
        f'<text x="{place(tick):.1f}" y="{ground + 16}" text-anchor="middle">{label}</text>'
        for tick, label in round_ticks(place)
    )
    at = place(difference)
    anchor = "end" if at > width / 2 else "start"
    return (
        f'<section><svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="The observed difference '
        f'among those after exchanges of texts">{bars}<line class="axis" x1="20" x2="{width - 20}" y1="{ground}" '
        f'y2="{ground}"></line>{ticks}<line class="median" x1="{at:.1f}" x2="{at:.1f}" y1="14" y2="{ground}"></line>'
        f'<text x="{at + (-6 if anchor == "end" else 6):.1f}" y="22" text-anchor="{anchor}">these corpora</text>'
        f'<text x="{width - 20}" y="{height - 3}" text-anchor="end">difference; gray: after {len(draws):,} '
        "exchanges of texts</text></svg></section>"
    )


def _around(neighbors: Sequence[str]) -> str:
    return f": {escaped(', '.join(neighbors[:3]))}" if neighbors else ""


def _sense(sense: SharedSense, corpora: tuple[str, str]) -> str:
    bars = "".join(
        f"<span>{chip(number)}{escaped(corpora[number])}</span>"
        f'<div><i style="width:{100 * sense.shares[number]:.1f}%;background:{CORPUS_COLORS[number]}"></i></div>'
        f"<span>{100 * sense.shares[number]:.0f}%, {sense.n_uses[number]:,}</span>"
        for number in (0, 1)
    )
    lines = "".join(lines_of(sense.lines[number], number) for number in (0, 1) if sense.lines[number])
    return (
        f'<section><h2 data-kind="sense" data-only="{sense.sense}"><i style="background:'
        f'{group_color(sense.sense - 1)}"></i>Sense {sense.sense}{_around(sense.neighbors)} <span class="faint">'
        f"{escaped(sense.verdict)}</span>"
        f'</h2><div class="shares">{bars}</div>{lines}</section>'
    )


def lines_of(lines: Lines, number: int) -> str:
    """Uses in a corpus, 0 or 1, beside a bar in its color."""
    table = concordance([(id, use.keyword(CONTEXT)) for id, use in lines])
    return f'<div class="lines" style="border-color:{CORPUS_COLORS[number]}">{table}</div>'

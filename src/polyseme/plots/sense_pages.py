"""The senses of a word as a page of its own: each point of the map says its sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.plots.colors import group_color
from polyseme.plots.html_page import concordance, data, escaped, page
from polyseme.plots.sense_figure import CONTEXT, SenseMap
from polyseme.plots.word_uses import Use, spelled

WHOLE = 240
"""Characters on each side of the word that a point says."""

_SIDE = 640
_STYLE = """
.map { position: relative; margin: 1rem 0 } .map svg { width: 100%; max-width: 44rem; height: auto;
  background: var(--soft); border: 1px solid var(--line); border-radius: 6px; display: block }
.map circle { stroke: var(--paper); stroke-width: .8; opacity: .8 } .map circle.at { stroke: var(--ink);
  stroke-width: 2.5; opacity: 1 } .dim circle { opacity: .1 } .dim circle.shown { opacity: .9 }
#said { min-height: 3.2em; padding: .4rem .7rem; border-left: 4px solid var(--line); background: var(--soft);
  max-width: 44rem } .layout { display: grid; grid-template-columns: minmax(0, 44rem) minmax(0, 1fr); gap: 2rem }
@media (max-width: 60rem) { .layout { grid-template-columns: minmax(0, 1fr) } }
h2 { cursor: default } h2 i { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .5em }
""".strip()
_SCRIPT = """
"use strict";
const shown = JSON.parse(document.getElementById("data").textContent);
const said = document.getElementById("said"), map = document.getElementById("map");
const points = Array.from(map.querySelectorAll("circle"));
function say(point) {
  points.forEach(each => each.classList.toggle("at", each === point));
  const [sense, before, word, after, id] = shown[Number(point.dataset.use)];
  const bold = document.createElement("b");
  bold.textContent = word;
  const foot = document.createElement("div");
  foot.className = "faint";
  foot.textContent = "sense " + sense + ", text " + id;
  said.replaceChildren(before, bold, after, foot);
  said.style.borderColor = point.getAttribute("fill");
}
points.forEach(point => {
  for (const kind of ["mouseenter", "click"]) point.addEventListener(kind, () => say(point));
});
document.querySelectorAll("h2[data-sense]").forEach(head => {
  head.addEventListener("mouseenter", () => {
    map.classList.add("dim");
    points.forEach(each => each.classList.toggle("shown", each.dataset.sense === head.dataset.sense));
  });
  head.addEventListener("mouseleave", () => map.classList.remove("dim"));
});
""".strip()


def senses_page(shown: SenseMap, ids: Sequence[str], *, n_examples: int = 5) -> str:
    """The map as a page: a point says its sentence when it is pointed at, a sense's heading shows its points."""
    drawn = shown.drawn()
    places = _on_page(np.asarray(shown.points)[drawn])
    radius = float(np.clip(120 / np.sqrt(len(drawn)), 3.0, 7.0))
    circles = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{group_color(shown.senses[use] - 1)}" '
        f'data-use="{number}" data-sense="{shown.senses[use]}"></circle>'
        for number, (use, (x, y)) in enumerate(zip(drawn, places, strict=True))
    ]
    spoken = [[shown.senses[use], *shown.uses[use].keyword(WHOLE), ids[use]] for use in drawn]
    sections = [
        f'<h2 data-sense="{sense}"><i style="background:{group_color(sense - 1)}"></i>Sense {sense} '
        f'<span class="faint">{shown.share(sense)}</span></h2>'
        + concordance([(ids[use], shown.uses[use].keyword(CONTEXT)) for use in examples[:n_examples]])
        for sense, examples in enumerate(shown.examples, start=1)
    ]
    body = "\n".join(
        [
            f"<h1>{escaped(shown.word)}</h1>",
            f"<p><b>{escaped(shown.headline)}</b> of {escaped(shown.source)}</p>",
            f'<p class="faint">{escaped(shown.how)}</p>',
            '<div class="layout"><div>',
            f'<div class="map"><svg id="map" viewBox="0 0 {_SIDE} {_SIDE}" role="img" '
            f'aria-label="Map of the uses">{"".join(circles)}</svg></div>',
            '<div id="said" dir="auto" aria-live="polite"><span class="faint">Point at a use to read it.</span></div>',
            f'<p class="faint">{escaped(shown.map)} of the vectors{escaped(shown.left_out())}.</p>',
            f"</div><div>{''.join(sections)}</div></div>",
            data(spoken),
        ]
    )
    return page(f"{shown.word}: {shown.headline}", body, style=_STYLE, script=_SCRIPT)


def _on_page(points: NDArray[Any]) -> NDArray[Any]:
    """Points in the page's square, with a margin, both directions on one scale."""
    low, high = points.min(axis=0), points.max(axis=0)
    size = float((high - low).max()) or 1.0
    scaled: NDArray[Any] = (points - (low + high) / 2) / size * (_SIDE - 60) * np.array([1, -1]) + _SIDE / 2
    return scaled


# MERGED: The nearest uses of a use as a page: one list beside the other.


NEIGHBOR_CONTEXT = 60
"""Characters on each side of a word."""
_LISTS_STYLE = """
.lists { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 0 2.5rem }
.use { font-size: 1.2rem }
""".strip()


class UseList(NamedTuple):
    """Uses with their cosines, the nearest first, and what they are."""

    heading: str
    uses: Sequence[tuple[float, Use]]


def similar_page(use: Use, lists: Sequence[UseList], notes: Sequence[str]) -> str:
    """A use, lists of its neighbors, and what is to be said of them."""
    before, word, after = use.keyword(NEIGHBOR_CONTEXT * 4)
    sections = [
        f"<section><h2>{escaped(each.heading)}</h2>"
        + (
            concordance([(spelled(cosine), near.keyword(NEIGHBOR_CONTEXT)) for cosine, near in each.uses])
            if each.uses
            else '<p class="faint">None.</p>'
        )
        + "</section>"
        for each in lists
    ]
    body = "\n".join(
        [
            f"<h1>{escaped(word)}</h1>",
            f'<p class="use" dir="auto">{escaped(before)}<b>{escaped(word)}</b>{escaped(after)}</p>',
            *(f'<p class="faint">{escaped(note)}</p>' for note in notes),
            f'<div class="lists">{"".join(sections)}</div>',
        ]
    )
    return page(f"Uses near {word}", body, style=_LISTS_STYLE)

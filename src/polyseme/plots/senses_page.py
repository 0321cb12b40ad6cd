"""The senses of a word as a page: a map whose points show their sentences, and all uses of each sense, page by page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyseme.plots.colors import group_color
from polyseme.plots.html_page import concordance, data, escaped, page
from polyseme.plots.sense_plots import CONTEXT, MOST_POINTS, SIDE, SenseMap, on_page

WHOLE = 240
"""Characters on each side of the word when a use is selected; of very many uses, fewer."""
ROWS = 8
"""Uses of a sense that are shown at once."""

_STYLE = """
.map svg { width: 100%; height: auto; background: var(--soft); border: 1px solid var(--line); border-radius: 6px;
  display: block }
.map circle { stroke: var(--paper); stroke-width: .8; opacity: .8; cursor: pointer }
.map circle.at { stroke: var(--ink); stroke-width: 2.5; opacity: 1 }
.dim circle { opacity: .1 } .dim circle.shown { opacity: .9 }
#sentence { min-height: 4.2em; margin-top: .6rem; padding: .4rem .7rem; border-left: 4px solid var(--line);
  background: var(--soft) }
.layout { display: grid; grid-template-columns: minmax(0, 30rem) minmax(0, 1fr); gap: 2rem; margin-top: 1rem }
.side { position: sticky; top: 1rem; align-self: start }
@media (max-width: 60rem) { .layout { grid-template-columns: minmax(0, 1fr) } .side { position: static } }
section { margin-bottom: 2rem } section h2 { margin: 0 0 .2rem; cursor: default }
section h2 i { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .5em }
section table { margin-top: .4rem } tbody tr { cursor: pointer } tbody tr:hover { background: var(--soft) }
.pager { margin-top: .4rem; color: var(--faint); font-size: .87rem }
.pager button { font: inherit; color: var(--ink); background: var(--soft); border: 1px solid var(--line);
  border-radius: 4px; padding: 0 .6rem; margin-right: .4rem; cursor: pointer } .pager button:disabled { opacity: .4 }
""".strip()
_SCRIPT = """
"use strict";
const { uses, members, rows } = JSON.parse(document.getElementById("data").textContent);
const sentence = document.getElementById("sentence"), map = document.getElementById("map");
const points = new Map(Array.from(map.querySelectorAll("circle"), each => [Number(each.dataset.use), each]));
function element(tag, text, name) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}
function end(text) {
  if (text.length <= rows.context) return text;
  const part = text.slice(-rows.context);
  return "…" + part.slice(Math.max(part.indexOf(" "), 0));
}
function start(text) {
  if (text.length <= rows.context) return text;
  const part = text.slice(0, rows.context);
  return part.slice(0, part.lastIndexOf(" ") + 1 || rows.context) + "…";
}
function show(number) {
  points.forEach((point, use) => point.classList.toggle("at", use === number));
  const [sense, before, word, after, id] = uses[number];
  const foot = element("div", "sense " + sense + ", text " + id, "faint");
  sentence.replaceChildren(before, element("b", word), after, foot);
  const point = points.get(number);
  sentence.style.borderColor = point ? point.getAttribute("fill") : "";
}
points.forEach((point, number) => {
  for (const kind of ["mouseenter", "click"]) point.addEventListener(kind, () => show(number));
});
document.querySelectorAll("section[data-sense]").forEach(section => {
  const its = members[Number(section.dataset.sense) - 1], body = section.querySelector("tbody");
  const shown = section.querySelector(".pager span"), [back, on] = section.querySelectorAll(".pager button");
  let first = 0;
  function turn(to) {
    first = to;
    const last = Math.min(first + rows.n, its.length);
    body.replaceChildren(...its.slice(first, last).map(number => {
      const [, before, word, after, id] = uses[number], row = document.createElement("tr");
      const label = element("td", id, "number"), cell = document.createElement("td");
      label.title = id;
      cell.dir = "auto";
      cell.append(end(before), element("b", word), start(after));
      row.append(label, cell);
      for (const kind of ["mouseenter", "click"]) row.addEventListener(kind, () => show(number));
      return row;
    }));
    if (shown) {
      shown.textContent = (first + 1) + "–" + last + " of " + its.length;
      back.disabled = first === 0;
      on.disabled = last === its.length;
    }
  }
  if (body) turn(0);
  if (shown) {
    back.addEventListener("click", () => turn(Math.max(first - rows.n, 0)));
    on.addEventListener("click", () => turn(first + rows.n));
  }
  section.querySelector("h2").addEventListener("mouseenter", () => {
    map.classList.add("dim");
    points.forEach(each => each.classList.toggle("shown", each.dataset.sense === section.dataset.sense));
  });
  section.querySelector("h2").addEventListener("mouseleave", () => map.classList.remove("dim"));
});
""".strip()


def senses_page(shown: SenseMap, ids: Sequence[str]) -> str:
    """The map as a page: pointing at a point shows its sentence, at the heading of a sense its points."""
    drawn = shown.drawn()
    places = on_page(np.asarray(shown.points)[drawn])
    radius = float(np.clip(120 / np.sqrt(len(drawn)), 3.0, 7.0))
    circles = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{group_color(shown.senses[use] - 1)}" '
        f'data-use="{use}" data-sense="{shown.senses[use]}"></circle>'
        for use, (x, y) in zip(drawn, places, strict=True)
    ]
    context = WHOLE if len(shown.uses) <= MOST_POINTS else 2 * CONTEXT
    uses = [[shown.senses[number], *use.keyword(context), ids[number]] for number, use in enumerate(shown.uses)]
    members = shown.members or shown.examples
    body = "\n".join(
        [
            f"<h1>{escaped(shown.word)}</h1>",
            f"<p><b>{escaped(shown.headline)}</b> of {escaped(shown.source)}</p>",
            *(f'<p class="faint">{escaped(text)}</p>' for text in (shown.explanation, *shown.notes)),
            '<div class="layout"><div class="side">',
            f'<div class="map"><svg id="map" viewBox="0 0 {SIDE} {SIDE}" role="img" '
            f'aria-label="Map of the uses">{"".join(circles)}</svg></div>',
            '<div id="sentence" dir="auto" aria-live="polite"><span class="faint">Point at a use to read it.'
            "</span></div>",
            f'<p class="faint">{escaped(shown.map)} of the vectors{escaped(shown.left_out())}.</p>',
            "</div><div>",
            *(_section(shown, sense, numbers, ids) for sense, numbers in enumerate(members, start=1)),
            "</div></div>",
            data({"uses": uses, "members": [list(each) for each in members], "rows": {"n": ROWS, "context": CONTEXT}}),
        ]
    )
    return page(f"{shown.word}: {shown.headline}", body, style=_STYLE, script=_SCRIPT)


def _section(shown: SenseMap, sense: int, numbers: Sequence[int], ids: Sequence[str]) -> str:
    """A sense: what it is called, what describes it, and its first uses; the script turns the pages."""
    label = shown.label(sense)
    name = f": {escaped(label.name)} " if label.name else " "
    id = f" · {escaped(label.id)}" if label.id else ""
    lines = "".join(f'<p class="faint">{escaped(line)}</p>' for line in label.lines)
    pager = '<div class="pager"><button>‹</button><button>›</button><span></span></div>'
    return (
        f'<section data-sense="{sense}"><h2><i style="background:{group_color(sense - 1)}"></i>Sense {sense}{name}'
        f'<span class="faint">{shown.share(sense)}{id}</span></h2>{lines}'
        + concordance([(ids[use], shown.uses[use].keyword(CONTEXT)) for use in numbers[:ROWS]])
        + (pager if len(numbers) > ROWS else "")
        + "</section>"
    )

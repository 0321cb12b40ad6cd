"""The page of a concordance: lines with their matches in one column, sorted and filtered on the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polyseme.plots.colors import group_color
from polyseme.plots.html_page import escaped, page
from polyseme.plots.word_uses import Keyword, format_cosine

MOST_LINES = 5000
"""Lines on a page at most; the page states how many are left out."""
_STYLE = """
body { max-width: 100rem } .tools { display: flex; flex-wrap: wrap; gap: .4rem 1.4rem; align-items: center;
  margin: .8rem 0; position: sticky; top: 0; background: var(--paper); padding: .4rem 0;
  border-bottom: 1px solid var(--line) } .tools input { font: inherit; padding: .15rem .5rem; width: 16rem }
.tools button { margin-left: .3rem; font: inherit; font-size: .87rem; padding: .1rem .6rem; border-radius: 4px;
  border: 1px solid var(--line); background: var(--soft); color: inherit; cursor: pointer }
.tools button[aria-pressed=true] { border-color: var(--ink) }
table.lines { table-layout: auto } .lines td { white-space: nowrap; border: 0; padding: .08rem .35rem }
.lines td:nth-child(1) { color: var(--faint); font-size: .8rem; max-width: 10rem; overflow: hidden;
  text-overflow: ellipsis } .lines td:nth-child(2) { width: 50%; max-width: 1px; direction: rtl; overflow: hidden;
  text-align: right } .lines td:nth-child(2) bdi { unicode-bidi: isolate } .lines td:nth-child(3) { font-weight: 650;
  text-align: center } .lines td:nth-child(4) { width: 50%; max-width: 1px; overflow: hidden; text-overflow: ellipsis }
.lines td:nth-child(5) { font-variant-numeric: tabular-nums; color: var(--faint) }
.lines tr:hover td { background: var(--soft) } .lines i { display: inline-block; width: .7em; height: .7em;
  border-radius: 50%; margin-right: .35em }
""".strip()
_SCRIPT = """
"use strict";
const body = document.querySelector(".lines tbody"), rows = Array.from(body.rows);
const words = text => text.toLowerCase().match(/[\\p{L}\\p{N}]+/gu) || [];
const keys = new Map(rows.map((row, number) => [row, {
  start: number,
  left: words(row.cells[1].textContent).reverse().join(" "),
  match: row.cells[2].textContent.toLowerCase(),
  right: words(row.cells[3].textContent).join(" "),
}]));
document.querySelectorAll("button[data-by]").forEach(button => button.addEventListener("click", () => {
  const by = button.dataset.by;
  rows.sort((one, other) => {
    const first = keys.get(one)[by], second = keys.get(other)[by];
    return (typeof first === "number" ? first - second : first.localeCompare(second))
      || keys.get(one).start - keys.get(other).start;
  });
  body.replaceChildren(...rows);
  document.querySelectorAll("button[data-by]").forEach(each => each.setAttribute("aria-pressed", each === button));
}));
const count = document.getElementById("count");
document.getElementById("filter").addEventListener("input", event => {
  const sought = event.target.value.toLowerCase();
  let shown = 0;
  rows.forEach(row => {
    row.hidden = !row.textContent.toLowerCase().includes(sought);
    shown += !row.hidden;
  });
  count.textContent = shown + " lines";
});
""".strip()


class PageLine(NamedTuple):
    """A line of the page."""

    id: str
    keyword: Keyword
    cosine: float | None = None
    sense: int | None = None


def concordance_page(query: str, headline: str, lines: Sequence[PageLine], *, order: str, notes: Sequence[str]) -> str:
    """Lines with their matches in one column, in an order that has a name; others are on buttons."""
    left_out = f"The first {MOST_LINES:,} lines are on this page." if len(lines) > MOST_LINES else ""
    buttons = "".join(
        f'<button data-by="{name}" aria-pressed="{"true" if name == "start" else "false"}">{escaped(label)}</button>'
        for name, label in (("start", order), ("left", "left"), ("match", "match"), ("right", "right"))
    )
    body = "\n".join(
        [
            f"<h1>{escaped(query)}</h1>",
            f"<p><b>{escaped(headline)}</b></p>",
            *(f'<p class="faint">{escaped(note)}</p>' for note in (*notes, left_out) if note),
            f'<div class="tools"><span>Sort by {buttons}</span><input id="filter" type="search" '
            'placeholder="Show lines with …" aria-label="Show lines with">'
            f'<span class="faint" id="count">{len(lines[:MOST_LINES]):,} lines</span></div>',
            f'<table class="lines"><tbody>{"".join(map(_row, lines[:MOST_LINES]))}</tbody></table>',
        ]
    )
    return page(f"Concordance of {query}", body, style=_STYLE, script=_SCRIPT)


def _row(line: PageLine) -> str:
    before, word, after = map(escaped, line.keyword)
    last = ""
    if line.cosine is not None:
        last = f"<td>{format_cosine(line.cosine)}</td>"
    elif line.sense is not None:
        last = f'<td><i style="background:{group_color(line.sense - 1)}"></i>{line.sense}</td>'
    return (
        f"<tr><td>{escaped(line.id)}</td><td><bdi>{before}</bdi></td><td><bdi>{word}</bdi></td>"
        f"<td><bdi>{after}</bdi></td>{last}</tr>"
    )

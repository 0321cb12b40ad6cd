"""Attention in a page: every head as a small picture, one of them large, and where a word looks that is pointed at.

Weights go into the page as one byte each, 255 times their square root, which is also their shade: a weight read off the
page is at most 0.004 off. Means over heads and over layers are computed by the page's script.

Shapes: n rows (what looks), m columns (what is looked at).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.plots.colors import ink, ramp, to_rgb
from polyseme.plots.html_page import data, escaped

ATTENTION_STYLE = """
.attention { display: grid; grid-template-columns: minmax(0, 11fr) minmax(0, 9fr); gap: 1.5rem; align-items: start }
@media (max-width: 50rem) { .attention { grid-template-columns: minmax(0, 1fr) } }
.attention h3 { font-size: 1rem; margin: 0 0 .3rem } .attention .scrolls { overflow-x: auto }
.heads { width: auto; table-layout: auto } .heads td, .heads th { border: 0; padding: 1px; text-align: center;
  vertical-align: middle; font-weight: 400; font-size: .75rem; color: var(--faint) } .heads th { padding: 0 .15rem }
.heads button { display: block; padding: 0; border: 2px solid var(--line); background: none; cursor: pointer;
  border-radius: 2px; line-height: 0 } .heads button[aria-pressed=true] { border-color: #e07b00 }
.heads canvas { image-rendering: pixelated; width: var(--wide); height: var(--high) }
.attention button:focus-visible { outline: 2px solid #e07b00; outline-offset: 1px }
.links { display: grid; grid-template-columns: minmax(0, 1fr) 9rem minmax(0, 1fr); line-height: 20px;
  font-size: .85rem }
.links > div { display: flex; flex-direction: column } .links canvas { width: 100% }
.links button { font: inherit; height: 20px; padding: 0 .4rem; border: 0; background: none; color: inherit;
  cursor: pointer; border-radius: 3px; overflow: hidden; text-overflow: ellipsis; white-space: pre; text-align: left }
.links .from button { text-align: right } .links .special { color: var(--faint) }
.links [aria-pressed=true] { box-shadow: inset 0 0 0 2px #e07b00 }
.attention .told { min-height: 3em; padding: .3rem .6rem; background: var(--soft); border-left: 4px solid #e07b00 }
.matrix { cursor: crosshair; margin-top: 1rem }
""".strip()

ATTENTION_SCRIPT = """
"use strict";
const { palette: colors, dark, maps } = JSON.parse(document.getElementById("data").textContent);
function bytes(text) {
  const plain = atob(text), made = new Uint8Array(plain.length);
  for (let at = 0; at < plain.length; at++) made[at] = plain.charCodeAt(at);
  return made;
}
const palette = bytes(colors), weight = Float32Array.from({ length: 256 }, (_, q) => (q / 255) ** 2);
const rgba = new Uint8Array(1024).map((_, at) => at % 4 < 3 ? palette[3 * (at >> 2) + at % 4] : 255);
const pixels = new Uint32Array(rgba.buffer);
const rgb = q => "rgb(" + palette.subarray(3 * q, 3 * q + 3).join() + ")";
function element(tag, text = "", name = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = name;
  return made;
}
function mean(pictures) {
  const sum = new Float32Array(pictures[0].length);
  for (const each of pictures) for (let at = 0; at < sum.length; at++) sum[at] += weight[each[at]];
  const made = new Uint8Array(sum.length);
  for (let at = 0; at < sum.length; at++) made[at] = Math.round(255 * Math.sqrt(sum[at] / pictures.length));
  return made;
}
function draw(canvas, picture, n, m, most) {
  const high = canvas.height = Math.min(n, most), wide = canvas.width = Math.min(m, most);
  const image = new ImageData(wide, high), shown = new Uint32Array(image.data.buffer);
  const shade = high === n && wide === m ? picture : new Uint8Array(high * wide);
  if (shade !== picture) for (let row = 0, at = 0; row < n; row++) {
    const line = Math.floor(row * high / n) * wide;
    for (let column = 0; column < m; column++, at++) {
      const to = line + Math.floor(column * wide / m);
      if (picture[at] > shade[to]) shade[to] = picture[at];
    }
  }
  for (let at = 0; at < shown.length; at++) shown[at] = pixels[shade[at]];
  canvas.getContext("2d").putImageData(image, 0, 0);
}
function sharp(canvas, wide, high) {
  const scale = window.devicePixelRatio || 1, context = canvas.getContext("2d");
  canvas.width = wide * scale;
  canvas.height = high * scale;
  canvas.style.width = wide + "px";
  canvas.style.height = high + "px";
  context.scale(scale, scale);
  return context;
}
function moved(event, at, wide, most) {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -wide, ArrowDown: wide }[event.key];
  if (event.key === "Home" || event.key === "End") return event.key === "Home" ? 0 : most - 1;
  return step === undefined || at + step < 0 || at + step >= most ? null : at + step;
}
function show(section, map) {
  const n = map.rows.length, m = map.columns.length, size = n * m, all = bytes(map.weights), pictures = new Map();
  let place = 0;
  const names = [], numbers = map.layers.map(each => String(each.layer));
  for (const { layer, heads } of map.layers) {
    for (const head of heads) {
      pictures.set(layer + " " + head, all.subarray(place, place += size));
      if (!names.includes(head)) names.push(head);
    }
    const own = heads.filter(head => head !== "rollout").map(head => pictures.get(layer + " " + head));
    if (own.length) pictures.set(layer + " mean", mean(own));
  }
  names.sort((one, other) => (one === "rollout") - (other === "rollout") || one - other);
  names.splice(names.includes("rollout") ? -1 : names.length, 0, "mean");
  for (const head of names) {
    const over = numbers.map(layer => pictures.get(layer + " " + head)).filter(Boolean);
    if (over.length && head !== "rollout") pictures.set("mean " + head, mean(over));
  }
  // --- small pictures
  const table = section.querySelector(".heads"), buttons = [], lines = [...numbers, "mean"];
  function fit() {
    const room = Math.min((table.parentElement.clientWidth - 90) / names.length, 600 / lines.length);
    const wide = Math.max(16, Math.min(64, Math.floor(room) - 6));
    table.style.setProperty("--wide", wide + "px");
    table.style.setProperty("--high", Math.max(12, Math.round(wide * Math.min(n / m, 1.6))) + "px");
  }
  fit();
  const top = table.insertRow();
  for (const name of ["layer", ...names]) top.append(element("th", name));
  lines.forEach((layer, line) => {
    const row = table.insertRow();
    row.append(element("th", layer));
    names.forEach((head, column) => {
      const cell = row.insertCell(), picture = pictures.get(layer + " " + head);
      if (!picture) return;
      const button = element("button"), canvas = element("canvas");
      draw(canvas, picture, n, m, 96);
      button.type = "button";
      button.setAttribute("aria-label", told(layer, head));
      button.title = told(layer, head);
      button.append(canvas);
      button.addEventListener("click", () => choose(layer, head));
      button.addEventListener("keydown", event => {
        let to = moved(event, line * names.length + column, names.length, lines.length * names.length), next;
        if (event.key === "Home" || event.key === "End") next = buttons.at(event.key === "Home" ? 0 : -1);
        else while (to !== null && !(next = buttons.find(each => each.at === to)))
          to = moved(event, to, names.length, lines.length * names.length);
        if (!next) return;
        event.preventDefault();
        next.button.focus();
        choose(next.layer, next.head);
      });
      buttons.push({ button, layer, head, at: line * names.length + column });
      cell.append(button);
    });
  });
  function told(layer, head) {
    const where = layer === "mean" ? "mean of all layers" : "layer " + layer;
    return where + ", " + (head === "mean" ? "mean of all heads" : head === "rollout" ? head : "head " + head);
  }
  // --- words on two sides
  const links = section.querySelector(".links"), canvas = links.querySelector("canvas");
  const answer = section.querySelector(".told"), heading = section.querySelector("h3");
  const sides = { from: map.rows, to: map.columns }, words = { from: [], to: [] };
  let picture, chosen = null, pinned = null;
  for (const [side, units] of Object.entries(sides)) {
    const box = links.querySelector("." + side);
    units.forEach(([text, special], at) => {
      const button = element("button", text, special ? "special" : "");
      button.type = "button";
      button.dir = "auto";
      button.title = text;
      button.tabIndex = side === "from" && at === 0 ? 0 : -1;
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("pointerenter", () => point({ side, at }));
      button.addEventListener("focus", () => point({ side, at }));
      button.addEventListener("click", () => {
        pinned = pinned && pinned.side === side && pinned.at === at ? null : { side, at };
        point({ side, at });
      });
      button.addEventListener("keydown", event => {
        const over = { ArrowLeft: "from", ArrowRight: "to" }[event.key];
        if (event.key === "Escape") pinned = null, point(null);
        const to = over ? Math.min(at, sides[over].length - 1) : moved(event, at, 1, units.length);
        if (to === null || event.key === "Escape") return;
        event.preventDefault();
        button.tabIndex = -1;
        words[over || side][to].tabIndex = 0;
        words[over || side][to].focus();
      });
      box.append(button);
      words[side].push(button);
    });
  }
  links.addEventListener("pointerleave", () => point(null));
  const seen = (row, column) => picture[row * m + column];
  const of = ({ side, at }, other) => side === "from" ? seen(at, other) : seen(other, at);
  function point(to) {
    chosen = to || pinned;
    for (const side of ["from", "to"]) words[side].forEach((button, at) => {
      const q = chosen && chosen.side !== side ? of(chosen, at) : null;
      button.style.background = q === null ? "" : rgb(q);
      button.style.color = q === null ? "" : q >= dark ? "#fff" : "#101820";
      button.setAttribute("aria-pressed", String(Boolean(chosen && chosen.side === side && chosen.at === at)));
    });
    connect();
    matrix();
    answer.replaceChildren(...(chosen ? sentence() : ["Point at a word to see where it looks, and which words look ",
      "at it. Click to keep it selected. Keys: arrows, Escape."]));
  }
  function sentence() {
    const other = chosen.side === "from" ? "to" : "from";
    const order = sides[other].map((_, at) => at).sort((one, two) => of(chosen, two) - of(chosen, one)).slice(0, 5);
    const listed = order.flatMap((at, number) => [number ? ", " : "", element("bdi", sides[other][at][0]),
      " " + weight[of(chosen, at)].toFixed(2)]);
    const word = element("b");
    word.append(element("bdi", sides[chosen.side][chosen.at][0]));
    return [word, chosen.side === "from" ? " looks at: " : " is looked at by: ", ...listed];
  }
  function connect() {
    const room = canvas.parentElement.clientWidth || 140, context = sharp(canvas, room, 20 * Math.max(n, m));
    context.strokeStyle = rgb(170);
    for (let row = 0; row < n; row++) for (let column = 0; column < m; column++) {
      const share = weight[seen(row, column)];
      if (chosen ? (chosen.side === "from" ? row : column) !== chosen.at || share < .005 : share < .04) continue;
      context.globalAlpha = chosen ? Math.max(.12, Math.sqrt(share)) : share;
      context.lineWidth = chosen ? 1 + 3 * share : 1.2;
      context.beginPath();
      context.moveTo(0, 20 * row + 10);
      context.bezierCurveTo(room / 2, 20 * row + 10, room / 2, 20 * column + 10, room, 20 * column + 10);
      context.stroke();
    }
  }
  // --- the large picture, below the small ones or below the words, where there is more room
  const large = section.querySelector(".matrix"), most = Math.max(n, m);
  if (table.offsetHeight > links.offsetHeight) links.after(large.parentElement);
  const small = document.createElement("canvas"), pen = small.getContext("2d"), labels = {};
  let side, edge, labeled, letters;
  function size_matrix() {
    pen.font = "12px system-ui, sans-serif";
    const widths = [...map.rows, ...map.columns].map(([text]) => pen.measureText(text).width);
    edge = Math.min(92, Math.ceil(widths.reduce((one, other) => Math.max(one, other))) + 6);
    const room = Math.floor((large.parentElement.clientWidth - edge) / m);
    side = most > 90 ? Math.max(1, Math.min(4, room)) : Math.max(8, Math.min(22, Math.floor(500 / most), room));
    labeled = side >= 8;
    letters = Math.min(12, side) + "px system-ui, sans-serif";
    pen.font = letters;
    if (!labeled) edge = 0;
    else for (const name of ["rows", "columns"]) labels[name] = map[name].map(([text]) => fitted(text, edge - 6));
  }
  function fitted(text, room) {
    if (pen.measureText(text).width <= room) return text;
    let letters = [...text].slice(0, 40);
    while (letters.length && pen.measureText(letters.join("") + "…").width > room) letters = letters.slice(0, -1);
    return letters.join("") + "…";
  }
  size_matrix();
  function matrix() {
    const context = sharp(large, edge + side * m, edge + side * n), style = getComputedStyle(section);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, edge, edge, side * m, side * n);
    context.fillStyle = style.color;
    context.font = letters;
    context.textBaseline = "middle";
    if (labeled) {
      context.textAlign = "right";
      labels.rows.forEach((text, row) => context.fillText(text, edge - 4, edge + side * (row + .5), edge - 4));
      context.textAlign = "left";
      labels.columns.forEach((text, column) => {
        context.save();
        context.translate(edge + side * (column + .5), edge - 4);
        context.rotate(-Math.PI / 2);
        context.fillText(text, 0, 0, edge - 4);
        context.restore();
      });
    }
    if (!chosen) return;
    context.strokeStyle = "#e07b00";
    context.lineWidth = 2;
    if (chosen.side === "from") context.strokeRect(edge, edge + side * chosen.at, side * m, side);
    else context.strokeRect(edge + side * chosen.at, edge, side, side * n);
  }
  large.addEventListener("pointermove", event => {
    const row = Math.floor((event.offsetY - edge) / side), column = Math.floor((event.offsetX - edge) / side);
    if (row < 0 && column < 0) return;
    if (row >= 0 && row < n) point({ side: "from", at: row });
    if (row < 0 && column < m) point({ side: "to", at: column });
    if (row >= 0 && row < n && column >= 0 && column < m)
      large.title = map.rows[row][0] + " → " + map.columns[column][0] + ": " + weight[seen(row, column)].toFixed(2);
  });
  large.addEventListener("pointerleave", () => point(null));
  function choose(layer, head) {
    picture = pictures.get(layer + " " + head);
    section.dataset.shown = layer + " " + head;
    heading.textContent = told(layer, head);
    large.setAttribute("aria-label", "Attention weights, " + told(layer, head));
    for (const each of buttons) {
      const is = each.layer === layer && each.head === head;
      each.button.setAttribute("aria-pressed", String(is));
      each.button.tabIndex = is ? 0 : -1;
    }
    draw(small, picture, n, m, 4096);
    point(chosen);
  }
  const first = map.first ? map.first.map(String) : [buttons[0].layer, buttons[0].head];
  choose(...first);
  window.addEventListener("resize", () => { fit(); connect(); size_matrix(); matrix(); });
}
document.querySelectorAll(".attention").forEach((section, at) => show(section, maps[at]));
""".strip()

_SECTION = """
<h2>{heading}</h2>
<div class="attention"><div><div class="scrolls"><table class="heads"></table></div>
<div class="scrolls"><canvas class="matrix" role="img"></canvas></div></div>
<div><h3></h3><p class="told" aria-live="polite" dir="auto"></p>
<div class="links"><div class="from" role="group" aria-label="What looks"></div><div><canvas></canvas></div>
<div class="to" role="group" aria-label="What is looked at"></div></div></div></div>
""".strip()
_NOSCRIPT = '<noscript><p class="faint">The pictures are drawn by a script of this page, which is off.</p></noscript>'


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionPicture:
    """The attention of one part of a model over one window."""

    heading: str
    rows: Sequence[tuple[str, bool]]
    """n: what looks, and whether it is a special piece."""
    columns: Sequence[tuple[str, bool]]
    layers: Sequence[tuple[int, Sequence[tuple[str, NDArray[Any]]]]]
    """The number of each layer, and of each of its heads the name and the weights [n, m]."""
    first: tuple[int, int] | None = None
    """Layer and head that are shown at first; None: the first of all."""


def attention_body(pictures: Sequence[AttentionPicture]) -> str:
    """A section for each part and window. The page needs `ATTENTION_STYLE` and `ATTENTION_SCRIPT`."""
    sections = "\n".join(_SECTION.format(heading=escaped(each.heading)) for each in pictures)
    palette, dark = _palette()
    return f"{_NOSCRIPT}{sections}{data({'palette': palette, 'dark': dark, 'maps': list(map(_content, pictures))})}"


def _content(picture: AttentionPicture) -> dict[str, Any]:
    weights = [to_bytes(each) for _, heads in picture.layers for _, each in heads]
    return {
        "rows": [[text, bool(special)] for text, special in picture.rows],
        "columns": [[text, bool(special)] for text, special in picture.columns],
        "layers": [{"layer": layer, "heads": [name for name, _ in heads]} for layer, heads in picture.layers],
        "weights": base64.b64encode(b"".join(each.tobytes() for each in weights)).decode(),
        "first": picture.first,
    }


def to_bytes(weights: NDArray[Any]) -> NDArray[np.uint8]:
    """Weights as the page has them.

    >>> to_bytes(np.array([0.0, 0.25, 1.0])).tolist()
    [0, 128, 255]
    """
    shades: NDArray[np.uint8] = np.rint(255 * np.sqrt(np.clip(weights, 0, 1))).astype(np.uint8)
    return shades


@cache
def _palette() -> tuple[str, int]:
    """The colors of 256 shades, as bytes, and the first of them on which text is white."""
    colors = [ramp(shade / 255) for shade in range(256)]
    written = base64.b64encode(bytes(round(255 * channel) for color in colors for channel in to_rgb(color))).decode()
    return written, next(at for at, color in enumerate(colors) if ink(color) == "#ffffff")

"""Texts in a notebook, each word colored by its similarity to a chosen one.

Self-contained HTML: no script, nothing fetched, users' text escaped. High values are dark on a light page and bright on
a dark page. A notebook's own theme takes precedence over the system's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from polyseme.plots.colors import ink, ramp, to_hex
from polyseme.plots.html_page import escaped
from polyseme.plots.word_uses import Keyword, spelled
from polyseme.types import Word

N_LEVELS = 24
"""Color steps; there is one CSS rule per step, not one per word."""

_LIGHT_HOSTS = ('[data-jp-theme-light="true"]', ".vscode-light", '[theme="light"]')
_DARK_HOSTS = ('[data-jp-theme-light="false"]', ".vscode-dark", '[theme="dark"]')
"""Selectors for the themes of JupyterLab, VS Code and Colab."""
_STYLE = """
.polyseme-view { font: 15px/1.9 system-ui, sans-serif; max-width: 60rem; margin: .4rem 0; overflow-wrap: anywhere }
.polyseme-view p { margin: .3rem 0; white-space: pre-wrap }
.polyseme-view .caption { display: flex; flex-wrap: wrap; gap: 0 1.5em; align-items: center; margin: 0 0 .5rem;
  font-size: 13px; line-height: 1.6; white-space: normal }
.polyseme-view .scale { display: inline-flex; align-items: center; gap: .5em; font-variant-numeric: tabular-nums }
.polyseme-view .scale i { width: 9em; height: .75em; border-radius: 3px; background: var(--scale) }
.polyseme-view .note { font-size: 13px; opacity: .7 }
.polyseme-view p > span, .polyseme-view p > b { position: relative; padding: .14em .22em; border-radius: 4px }
.polyseme-view p > b { font-weight: 700; box-shadow: 0 0 0 2px var(--ring) }
.polyseme-view p > :focus-visible { outline: 2px solid var(--ring); outline-offset: 1px }
.polyseme-view p > :focus-visible::after { content: attr(title); position: absolute; left: 0; top: 100%; z-index: 1;
  padding: 0 .45em; border-radius: 4px; background: #101820; color: #fff; white-space: nowrap;
  font: 12px/1.7 system-ui, sans-serif }
""".strip()


class ColoredText(NamedTuple):
    """A text, its words, and their cosines to the chosen use."""

    text: str
    words: Sequence[Word]
    cosines: Sequence[float]
    """One per word; NaN for zero vectors."""
    chosen: int | None = None
    """The index of the chosen word, if it is in this text."""


def colored_texts(texts: Sequence[ColoredText], *, least: float, use: Keyword, more: str = "", note: str = "") -> str:
    """The texts one below the other, with a color scale from `least` to 1; everything is escaped here.

    Above them is the use that words are compared with, followed by `more`; below them a note.
    """
    before, word, after = map(escaped, use)
    scale = f'<span class="scale">{spelled(least)}<i></i>{spelled(1)}</span>'
    return "\n".join(
        [
            f'<div class="polyseme-view"><style>{_style()}</style>',
            f'<div class="caption"><span>cosine to “{before}<b>{word}</b>{after}”{escaped(more)}</span>{scale}</div>',
            *(f'<p dir="auto">{_words(each, least)}</p>' for each in texts),
            *([f'<div class="note">{escaped(note)}</div>'] if note else []),
            "</div>",
        ]
    )


def _words(shown: ColoredText, least: float) -> str:
    """The words and the text between them; words that overlap follow each other."""
    parts: list[str] = []
    place = shown.words[0].start if shown.words else 0
    for number, (word, cosine) in enumerate(zip(shown.words, shown.cosines, strict=True)):
        parts.append(escaped(shown.text[place : word.start]))
        tag = "b" if number == shown.chosen else "span"
        parts.append(f'<{tag} tabindex="0" {_look(float(cosine), least)}>{escaped(word)}</{tag}>')
        place = max(place, word.end)
    return "".join(parts)


def _look(cosine: float, least: float) -> str:
    if not math.isfinite(cosine):
        return 'title="no cosine: the vector is zero"'
    share = min(max((cosine - least) / (1 - least), 0.0), 1.0)
    return f'class="s{round(share * N_LEVELS)}" title="{spelled(cosine)}"'


@cache
def _style() -> str:
    """CSS rules for every step, for light pages and, reversed, for dark ones."""
    light, dark = _colors(dark=False), _colors(dark=True)
    steps = [
        f".polyseme-view .s{level} {{ background: var(--b{level}); color: var(--i{level}) }}"
        for level in range(N_LEVELS + 1)
    ]
    return "\n".join(
        [
            f".polyseme-view {{ {light} }}",
            f"@media (prefers-color-scheme: dark) {{ .polyseme-view {{ {dark} }} }}",
            f"{_in(_LIGHT_HOSTS)} {{ {light} }}",
            f"{_in(_DARK_HOSTS)} {{ {dark} }}",
            _STYLE,
            *steps,
        ]
    )


def _in(hosts: Sequence[str]) -> str:
    return ", ".join(f"{host} .polyseme-view" for host in hosts)


def _colors(*, dark: bool) -> str:
    """The ramp as CSS variables, reversed on dark pages."""
    steps = [ramp((N_LEVELS - level if dark else level) / N_LEVELS) for level in range(N_LEVELS + 1)]
    colors = [f"--b{level}: {to_hex(step)}; --i{level}: {ink(step)}" for level, step in enumerate(steps)]
    scale = ", ".join(to_hex(step) for step in steps)
    ring = "#f2a33a" if dark else "#e07b00"
    return "; ".join([*colors, f"--scale: linear-gradient(to right, {scale})", f"--ring: {ring}"])

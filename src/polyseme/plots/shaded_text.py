"""A page of texts with words shaded by value: surprisals, or any other number per word."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from polyseme.plots.colors import ink, ramp, signed_color, to_hex
from polyseme.plots.html_page import escaped, page

_STEPS = 64
"""Number of shades."""
_TICKS = 5
_STYLE = """
.text { white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.9; font-size: 1.05rem; margin: .4rem 0;
  max-width: 60rem }
.text span { border-radius: 3px; padding: .12em 0; box-decoration-break: clone; -webkit-box-decoration-break: clone }
.text span.none { text-decoration: underline dotted var(--faint) }
.legend { position: sticky; top: 0; background: var(--paper); padding: .5rem 0; border-bottom: 1px solid var(--line) }
.legend div { display: flex; max-width: 24rem } .legend i { height: .9rem; flex: 1 }
.legend p { display: flex; justify-content: space-between; max-width: 24rem; margin: 0; font-size: .8rem;
  color: var(--faint); font-variant-numeric: tabular-nums }
""".strip()


class Mark(NamedTuple):
    """A part `[start, end)` of a text and its value; NaN if it has none."""

    start: int
    end: int
    value: float
    label: str
    """The text shown on hovering."""


class ShadedText(NamedTuple):
    """A text with its marks, in order and without overlap."""

    heading: str
    text: str
    marks: Sequence[Mark]
    note: str = ""


def shaded_page(title: str, texts: Sequence[ShadedText], *, unit: str, most: float, notes: Sequence[str] = ()) -> str:
    """Texts one below the other, and a legend from 0 to `most`; higher values have the darkest shade."""
    body = "\n".join(
        [
            f"<h1>{escaped(title)}</h1>",
            *(f'<p class="faint">{escaped(note)}</p>' for note in notes),
            _legend(unit, most),
            *(_section(each, most) for each in texts),
        ]
    )
    return page(title, body, style=f"{_STYLE}\n{_shades()}")


def _section(shaded: ShadedText, most: float) -> str:
    spans = [(mark.start, mark.end, _shade(mark.value, most), mark.label) for mark in shaded.marks]
    note = f'<p class="faint">{escaped(shaded.note)}</p>' if shaded.note else ""
    heading = f"<h2>{escaped(shaded.heading)}</h2>"
    return f'<section>{heading}<div class="text" dir="auto">{shaded_spans(shaded.text, spans)}</div>{note}</section>'


def shaded_spans(text: str, spans: Iterable[tuple[int, int, str, str]], *, whole: bool = True) -> str:
    """The text with (start, end, CSS class, title) as spans; a character of two belongs to the first.

    Unless `whole`, the text ends with the last span.
    """
    parts: list[str] = []
    place = 0
    for start, end, shade, title in spans:
        start = max(start, place)
        parts.append(escaped(text[place:start]))
        if end > start:
            parts.append(f'<span class="{shade}" title="{escaped(title)}">{escaped(text[start:end])}</span>')
        place = max(end, start)
    return "".join([*parts, escaped(text[place:]) if whole else ""])


def _legend(unit: str, most: float) -> str:
    ticks = [f"{most * number / (_TICKS - 1):g}" for number in range(_TICKS)]
    ticks[-1] += "+"
    shades = "".join(f'<i class="s{number}"></i>' for number in range(_STEPS))
    return (
        f'<div class="legend" role="img" aria-label="Shades from 0 to {most:g} {escaped(unit)}"><div>{shades}</div>'
        f"<p>{''.join(f'<span>{tick}</span>' for tick in ticks)}</p>"
        f"<p><span>{escaped(unit)}</span></p></div>"
    )


def _shade(value: float, most: float) -> str:
    if math.isnan(value):
        return "none"
    return f"s{min(max(int(value / most * _STEPS), 0), _STEPS - 1)}"


def _shades() -> str:
    """One CSS class per shade, so that words need no colors of their own."""
    colors = [ramp(number / (_STEPS - 1)) for number in range(_STEPS)]
    return "\n".join(
        f".s{number} {{ background: {to_hex(color)}; color: {ink(color)} }}" for number, color in enumerate(colors)
    )


# --- values of both signs ---------------------------------------------------------------------------------------------

SIGNED_STEPS = 20
"""Shades on each side of zero."""


def signed_shade(value: float) -> str:
    """The CSS class of a value from −1 to 1; values beyond are clipped."""
    step = round(min(max(value, -1.0), 1.0) * SIGNED_STEPS)
    return f"{'n' if step < 0 else 'p'}{abs(step)}"


def signed_shades(within: str) -> str:
    """One CSS class per shade, red below zero and blue above, in elements of this class; `.both` has the scale."""
    steps = [step / SIGNED_STEPS for step in range(-SIGNED_STEPS, SIGNED_STEPS + 1)]
    colors = {signed_shade(value): signed_color(value) for value in steps}
    scale = ", ".join(map(to_hex, colors.values()))
    return "\n".join(
        [
            f".{within} .both {{ background: linear-gradient(to right, {scale}) }}",
            *(
                f".{within} .{name} {{ background: {to_hex(color)}; color: {ink(color)} }}"
                for name, color in colors.items()
            ),
        ]
    )

"""The similarity of the uses of a word as a figure: two heat maps per word, in context and at layer 0.

The sentences are on the left as in a concordance, with the word in bold in one column. All maps share one color scale.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import OptionError
from polyseme.extras import require
from polyseme.plots.colors import ink, ramp, to_rgb
from polyseme.plots.word_uses import ALONE, IN_CONTEXT, Keyword, WordUses, lowest, spelled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


DOTS_PER_INCH = 96
TEXT_SIZE = 10.5
"""Of ordinary text, in points."""
_MAGNIFIED = 16
"""Text is measured at this magnification, so that rounding to pixels does not matter."""
INK = "#1b2733"
FAINT = "#6b7a89"

# Sizes in inches; of type, in points.
_MARGIN = 0.28
_CELL_WIDTH = 0.54
_CELL_HEIGHT = 0.36
_GAP = 0.3
_NUMBER = 0.32
_HEADING = 0.66
_BETWEEN = 0.22
_TITLE = 0.36
_LEGEND = 0.46
_VALUE_SIZE = 9.0
_WORD_SIZE = 14.0


def similarity_figure(
    words: Sequence[WordUses],
    *,
    title: str | None = None,
    context: int = 34,
    headings: tuple[str, str] = (IN_CONTEXT, ALONE),
) -> Figure:
    """The uses of words and their similarity, in context and alone; `figure_bytes` renders the figure.

    Sentences are truncated to `context` characters on each side of the word, with an ellipsis.
    """
    if not words:
        raise OptionError("A figure of similarities needs the uses of at least one word. Got none.")
    figure: Figure = require("matplotlib.figure", extra="plots").Figure(facecolor="white", dpi=DOTS_PER_INCH)
    lines = [[use.keyword(context) for use in one.uses] for one in words]
    page = _page(figure, words, lines, headings, has_title=title is not None)
    figure.set_size_inches(page.width, page.height)
    scale = (lowest(words), 1.0)
    top = page.height - _MARGIN
    if title is not None:
        _text(figure, page, _MARGIN, top - 0.14, title, size=_WORD_SIZE, weight="bold")
        top -= _TITLE
    for one, keywords in zip(words, lines, strict=True):
        top = _draw_word(figure, page, one, keywords, top, headings, scale)
    _draw_legend(figure, page, scale)
    return figure


def figure_bytes(figure: Figure, format: Literal["png", "svg"] = "png", *, scale: float = 2.0) -> bytes:
    """The figure rendered as PNG, with `scale` pixels per screen pixel, or as SVG with text as text.

    The same figure gives the same bytes.
    """
    if format not in ("png", "svg"):
        raise OptionError(f"The format of a picture must be png or svg. Got {format!r} instead.")
    matplotlib = require("matplotlib", extra="plots")
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "polyseme"}):
        figure.savefig(
            buffer,
            format=format,
            dpi=DOTS_PER_INCH * scale,
            metadata={"Date": None} if format == "svg" else {"Software": None},
        )
    return buffer.getvalue()


@dataclass(frozen=True)
class _Page:
    """Coordinates in inches from the left and from the bottom."""

    width: float
    height: float
    keyword: float
    """Where the words begin and the text before them ends."""
    maps: tuple[float, float]
    """Where the two maps of the widest word begin."""


def _page(
    figure: Figure,
    words: Sequence[WordUses],
    lines: Sequence[Sequence[Keyword]],
    headings: tuple[str, str],
    *,
    has_title: bool,
) -> _Page:
    measure = Measure(figure)
    every = [keyword for keywords in lines for keyword in keywords]
    before = max(measure(keyword.before) for keyword in every)
    rest = max(measure(keyword.word, "bold") + measure(keyword.after) for keyword in every)
    n_most = max(len(one.uses) for one in words)
    map_width = max(n_most * _CELL_WIDTH, *(measure(heading) for heading in headings))
    keyword = _MARGIN + before
    first = keyword + rest + _NUMBER + 0.16
    second = first + map_width + _GAP + _NUMBER
    height = 2 * _MARGIN + _LEGEND + _TITLE * has_title
    height += sum(_HEADING + len(one.uses) * _CELL_HEIGHT + _BETWEEN for one in words)
    return _Page(second + map_width + _MARGIN, height, keyword, (first, second))


def _draw_word(
    figure: Figure,
    page: _Page,
    one: WordUses,
    keywords: Sequence[Keyword],
    top: float,
    headings: tuple[str, str],
    scale: tuple[float, float],
) -> float:
    """One word with its uses and its two maps, downwards from `top`; returns where the next one begins."""
    measure = Measure(figure)
    upper = top - _HEADING
    _text(figure, page, page.keyword, upper + 0.2, one.word, size=_WORD_SIZE, weight="bold")
    for row, keyword in enumerate(keywords):
        y = upper - (row + 0.5) * _CELL_HEIGHT
        after = page.keyword + measure(keyword.word, "bold")
        _text(
            figure, page, page.keyword - _blank(measure, keyword.before[-1:]), y, keyword.before.rstrip(), align="right"
        )
        _text(figure, page, page.keyword, y, keyword.word, weight="bold")
        _text(figure, page, after + _blank(measure, keyword.after[:1]), y, keyword.after.lstrip())
    for left, heading, cosines in zip(page.maps, headings, (one.in_context, one.alone), strict=True):
        _text(figure, page, left, upper + 0.42, heading, color=INK)
        for number in range(len(keywords)):
            _text(
                figure, page, left + (number + 0.5) * _CELL_WIDTH, upper + 0.13, str(number + 1),
                size=_VALUE_SIZE, color=FAINT, align="center",
            )  # fmt: skip
            _text(
                figure, page, left - 0.12, upper - (number + 0.5) * _CELL_HEIGHT, str(number + 1),
                size=_VALUE_SIZE, color=FAINT, align="right",
            )  # fmt: skip
        _draw_map(figure, page, np.asarray(cosines), left, upper, scale)
    return upper - len(keywords) * _CELL_HEIGHT - _BETWEEN


def _draw_map(
    figure: Figure, page: _Page, cosines: NDArray[Any], left: float, upper: float, scale: tuple[float, float]
) -> None:
    n_uses = len(cosines)
    width, height = n_uses * _CELL_WIDTH, n_uses * _CELL_HEIGHT
    axes = _axes(figure, page, left, upper - height, width, height)
    axes.pcolormesh(cosines, cmap=_color_map(), vmin=scale[0], vmax=scale[1], edgecolors="white", linewidth=1.6)
    axes.invert_yaxis()
    for (row, column), cosine in np.ndenumerate(cosines):
        axes.text(
            column + 0.5,
            row + 0.5,
            spelled(cosine),
            ha="center",
            va="center_baseline",
            fontsize=_VALUE_SIZE,
            color=ink(ramp((cosine - scale[0]) / (scale[1] - scale[0]))),
        )


def _draw_legend(figure: Figure, page: _Page, scale: tuple[float, float]) -> None:
    left, _ = page.maps
    width = 3 * _CELL_WIDTH
    y = _MARGIN + 0.14
    axes = _axes(figure, page, left, y - 0.07, width, 0.14)
    axes.pcolormesh(np.linspace(*scale, 64)[None], cmap=_color_map(), vmin=scale[0], vmax=scale[1])
    _text(figure, page, left - 0.1, y, f"{scale[0]:.1f}", size=_VALUE_SIZE, color=FAINT, align="right")
    _text(figure, page, left + width + 0.1, y, "1.0   cosine of the two vectors", size=_VALUE_SIZE, color=FAINT)


def _color_map() -> Any:
    colors = require("matplotlib.colors", extra="plots")
    return colors.ListedColormap([to_rgb(ramp(step / 255)) for step in range(256)], name="polyseme")


def _axes(figure: Figure, page: _Page, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes without frame, placed in inches."""
    axes = figure.add_axes((left / page.width, bottom / page.height, width / page.width, height / page.height))
    axes.set_axis_off()
    return axes


def _text(
    figure: Figure,
    page: _Page,
    x: float,
    y: float,
    text: str,
    *,
    size: float = TEXT_SIZE,
    weight: str = "normal",
    color: str = INK,
    align: Literal["left", "center", "right"] = "left",
) -> None:
    """A line of text, placed in inches, by its middle."""
    figure.text(
        x / page.width,
        y / page.height,
        text,
        fontsize=size,
        fontweight=weight,
        color=color,
        ha=align,
        va="center_baseline",
        parse_math=False,
    )


def _blank(measure: Measure, edge: str) -> float:
    """The width of the blank at the edge of a text, if there is one."""
    return measure(" ") if edge.isspace() else 0.0


class Measure:
    """The width of a text in inches."""

    def __init__(self, figure: Figure) -> None:
        canvas: Any = require("matplotlib.backends.backend_agg", extra="plots").FigureCanvasAgg(figure)
        self._renderer = canvas.get_renderer()
        self._font = require("matplotlib.font_manager", extra="plots").FontProperties

    def __call__(self, text: str, weight: str = "normal", size: float = TEXT_SIZE) -> float:
        font = self._font(weight=weight, size=size * _MAGNIFIED)
        # A blank at either end has no width of its own, so the text is measured between two bars.
        with_bars, _, _ = self._renderer.get_text_width_height_descent(f"|{text}|", font, ismath=False)
        bars, _, _ = self._renderer.get_text_width_height_descent("||", font, ismath=False)
        return float(with_bars - bars) / (DOTS_PER_INCH * _MAGNIFIED)

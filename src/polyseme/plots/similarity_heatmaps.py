"""The similarity of the uses of a word as a figure: two heat maps per word, in context and at layer 0.

The sentences are on the left as in a concordance, with the word in bold in one column. All maps share one color scale.
`FigurePage`, a figure with coordinates in inches, also serves the other figures.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import OptionError
from polyseme.extras import require
from polyseme.plots.colors import ink, ramp, to_rgb
from polyseme.plots.word_uses import ALONE, IN_CONTEXT, Keyword, WordUses, format_cosine, lowest

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


class FigurePage:
    """A figure with coordinates in inches from the left and from the top; texts can be measured before it is sized."""

    def __init__(self) -> None:
        self.figure: Figure = require("matplotlib.figure", extra="plots").Figure(facecolor="white", dpi=DOTS_PER_INCH)
        canvas: Any = require("matplotlib.backends.backend_agg", extra="plots").FigureCanvasAgg(self.figure)
        self._renderer = canvas.get_renderer()
        self._font = require("matplotlib.font_manager", extra="plots").FontProperties
        self.width = self.height = 1.0

    def measure(self, text: str, weight: str = "normal", size: float = TEXT_SIZE) -> float:
        """The width of a text."""
        font = self._font(weight=weight, size=size * _MAGNIFIED)
        # A blank at either end has no width of its own, so the text is measured between two bars.
        with_bars, _, _ = self._renderer.get_text_width_height_descent(f"|{text}|", font, ismath=False)
        bars, _, _ = self._renderer.get_text_width_height_descent("||", font, ismath=False)
        return float(with_bars - bars) / (DOTS_PER_INCH * _MAGNIFIED)

    def resize(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure.set_size_inches(width, height)

    def axes(self, left: float, top: float, width: float, height: float, **settings: Any) -> Axes:
        place = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(place, **settings)

    def write(
        self, x: float, y: float, text: str, *, size: float = TEXT_SIZE, color: str = INK, weight: str = "normal",
        align: Literal["left", "center", "right"] = "left",
    ) -> None:  # fmt: skip
        """A line of text, placed by its middle."""
        self.figure.text(
            x / self.width, 1 - y / self.height, text, fontsize=size, color=color, fontweight=weight,
            ha=align, va="center_baseline", parse_math=False,
        )  # fmt: skip

    def write_keyword(self, x: float, y: float, keyword: Keyword, size: float = TEXT_SIZE) -> None:
        """A word in bold, which begins at `x`, in its context."""
        before, word, after = keyword
        blank = self.measure(" ", size=size)
        self.write(x - blank * before[-1:].isspace(), y, before.rstrip(), size=size, align="right")
        self.write(x, y, word, size=size, weight="bold")
        end = x + self.measure(word, "bold", size)
        self.write(end + blank * after[:1].isspace(), y, after.lstrip(), size=size)


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
    page = FigurePage()
    lines = [[use.keyword(context) for use in one.uses] for one in words]
    every = [keyword for keywords in lines for keyword in keywords]
    column = _MARGIN + max(page.measure(keyword.before) for keyword in every)
    rest = max(page.measure(keyword.word, "bold") + page.measure(keyword.after) for keyword in every)
    map_width = max(max(map(len, lines)) * _CELL_WIDTH, *map(page.measure, headings))
    first = column + rest + _NUMBER + 0.16
    second = first + map_width + _GAP + _NUMBER
    height = 2 * _MARGIN + _LEGEND + _TITLE * (title is not None)
    height += sum(_HEADING + len(keywords) * _CELL_HEIGHT + _BETWEEN for keywords in lines)
    page.resize(second + map_width + _MARGIN, height)
    scale = (lowest(words), 1.0)
    top = _MARGIN
    if title is not None:
        page.write(_MARGIN, top + 0.14, title, size=_WORD_SIZE, weight="bold")
        top += _TITLE
    for one, keywords in zip(words, lines, strict=True):
        top += _HEADING
        page.write(column, top - 0.2, one.word, size=_WORD_SIZE, weight="bold")
        for row, keyword in enumerate(keywords):
            page.write_keyword(column, top + (row + 0.5) * _CELL_HEIGHT, keyword)
        for left, heading, cosines in zip((first, second), headings, (one.in_context, one.alone), strict=True):
            page.write(left, top - 0.42, heading)
            _draw_map(page, np.asarray(cosines), left, top, scale)
        top += len(keywords) * _CELL_HEIGHT + _BETWEEN
    _draw_legend(page, first, scale)
    return page.figure


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


def _draw_map(page: FigurePage, cosines: NDArray[Any], left: float, top: float, scale: tuple[float, float]) -> None:
    """The cosines in cells, with the numbers of the uses above and on the left."""
    n_uses = len(cosines)
    for number in range(n_uses):
        style: dict[str, Any] = {"size": _VALUE_SIZE, "color": FAINT}
        page.write(left + (number + 0.5) * _CELL_WIDTH, top - 0.13, str(number + 1), align="center", **style)
        page.write(left - 0.12, top + (number + 0.5) * _CELL_HEIGHT, str(number + 1), align="right", **style)
    axes = page.axes(left, top, n_uses * _CELL_WIDTH, n_uses * _CELL_HEIGHT)
    axes.set_axis_off()
    axes.pcolormesh(cosines, cmap=_color_map(), vmin=scale[0], vmax=scale[1], edgecolors="white", linewidth=1.6)
    axes.invert_yaxis()
    for (row, column), cosine in np.ndenumerate(cosines):
        color = ink(ramp((cosine - scale[0]) / (scale[1] - scale[0])))
        axes.text(
            column + 0.5, row + 0.5, format_cosine(cosine), ha="center", va="center_baseline", fontsize=_VALUE_SIZE,
            color=color,
        )  # fmt: skip


def _draw_legend(page: FigurePage, left: float, scale: tuple[float, float]) -> None:
    width = 3 * _CELL_WIDTH
    y = page.height - _MARGIN - 0.14
    axes = page.axes(left, y - 0.07, width, 0.14)
    axes.set_axis_off()
    axes.pcolormesh(np.linspace(*scale, 64)[None], cmap=_color_map(), vmin=scale[0], vmax=scale[1])
    page.write(left - 0.1, y, f"{scale[0]:.1f}", size=_VALUE_SIZE, color=FAINT, align="right")
    page.write(left + width + 0.1, y, "1.0   cosine of the two vectors", size=_VALUE_SIZE, color=FAINT)


def _color_map() -> Any:
    colors = require("matplotlib.colors", extra="plots")
    return colors.ListedColormap([to_rgb(ramp(step / 255)) for step in range(256)], name="polyseme")

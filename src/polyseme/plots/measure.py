"""How wide a text is on a figure, so that what stands beside it can be placed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyseme.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 96
TEXT_SIZE = 10.5
"""Of ordinary text, in points."""
_MAGNIFIED = 16
"""Text is measured this much larger, so that the rounding of letters to dots does not count."""


class Measure:
    """How wide a text is in inches."""

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

"""Whether a figure keeps its text inside."""

from __future__ import annotations

from typing import Any

from polyseme.plots import figure_bytes


def check_text_inside(figure: Any) -> None:
    """No text reaches past the edge of a figure."""
    figure_bytes(figure, scale=1)
    width, height = figure.get_size_inches() * figure.dpi
    for text in figure.texts:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= width
        assert box.y0 >= 0
        assert box.y1 <= height

"""The ramp of colors: even steps, falling lightness, readable ink."""

from __future__ import annotations

import itertools
import math

import pytest

from polyseme.plots.colors import Lab, ink, ramp, to_hex, to_rgb

STEPS = [ramp(step / 100) for step in range(101)]


def test_steps_look_equally_large() -> None:
    sizes = sorted(math.dist(one, other) for one, other in itertools.pairwise(STEPS))
    around_the_bend, *others = sizes
    assert others == pytest.approx([others[0]] * 99)
    assert around_the_bend > 0.95 * others[0]


def test_lightness_falls_all_the_way() -> None:
    assert all(one.lightness > other.lightness for one, other in itertools.pairwise(STEPS))


def test_every_color_can_be_shown() -> None:
    """No channel is cut off at the edge of what a screen shows."""
    assert all(0 < channel < 1 for color in STEPS for channel in to_rgb(color))


def test_beyond_the_ends_is_the_end() -> None:
    assert ramp(-1) == ramp(0)
    assert ramp(2) == ramp(1)


def test_black_white_and_grey_are_where_they_should_be() -> None:
    assert to_hex(Lab(0, 0, 0)) == "#000000"
    assert to_hex(Lab(1, 0, 0)) == "#ffffff"
    assert len(set(to_rgb(Lab(0.5, 0, 0)))) <= 3
    assert max(to_rgb(Lab(0.5, 0, 0))) - min(to_rgb(Lab(0.5, 0, 0))) < 1e-6


def test_ink_can_be_read_on_every_color() -> None:
    """Contrast after WCAG 2: no two inks do better than 4.6 to 1 everywhere, and 3 to 1 is asked of large text."""

    def luminance(hex_color: str) -> float:
        channels = [int(hex_color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    contrasts = [contrast(ink(color), to_hex(color)) for color in STEPS]
    assert min(contrasts) > 4

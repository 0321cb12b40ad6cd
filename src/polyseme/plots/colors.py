"""Colors of all plots: one ramp for values from low to high, and one color per group, in a fixed order.

The ramp is perceptually uniform: a path through the Oklab space at constant speed, from a pale sand over teal to a deep
blue. Lightness decreases throughout, so that the ramp is also readable in gray and with color blindness.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple


class Lab(NamedTuple):
    """A color in Oklab: lightness from 0 to 1, green to red, blue to yellow."""

    lightness: float
    a: float
    b: float


_PATH = (Lab(0.975, -0.003, 0.018), Lab(0.68, -0.085, -0.025), Lab(0.33, -0.005, -0.105))
_LENGTHS = [math.dist(one, other) for one, other in itertools.pairwise(_PATH)]
# Colors of groups: hues a golden angle apart.
_FIRST_HUE = 4.4
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
_CHROMA = 0.13
_LIGHTNESS = (0.55, 0.68, 0.45, 0.74)


def ramp(share: float) -> Lab:
    """The color of a share from 0 (low) to 1 (high); values beyond are clipped."""
    distance = min(max(share, 0.0), 1.0) * sum(_LENGTHS)
    for (one, other), length in zip(itertools.pairwise(_PATH), _LENGTHS, strict=True):
        if distance <= length or other is _PATH[-1]:
            return Lab(*(start + (end - start) * distance / length for start, end in zip(one, other, strict=True)))
        distance -= length
    raise AssertionError("a path has an end")


_ZERO, _MOST, _LEAST = Lab(0.965, 0.0, 0.006), Lab(0.5, -0.04, -0.16), Lab(0.55, 0.175, 0.09)


def signed_color(value: float) -> Lab:
    """From red at −1 over nearly white to blue at +1; values beyond are clipped."""
    end, share = (_MOST if value > 0 else _LEAST), min(abs(value), 1.0)
    return Lab(*(zero + (most - zero) * share for zero, most in zip(_ZERO, end, strict=True)))


def ink(background: Lab) -> str:
    """The color of text with the higher contrast to a background: white, or nearly black."""
    return "#ffffff" if background.lightness < 0.578 else "#101820"


def to_hex(color: Lab) -> str:
    """The color as `#rrggbb`."""
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in to_rgb(color))


def to_rgb(color: Lab) -> tuple[float, float, float]:
    """The color in sRGB, each channel from 0 to 1: Oklab to cone responses, to linear light, to sRGB's curve."""
    lightness, a, b = color
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        _curve(4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short),
        _curve(-1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short),
        _curve(-0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short),
    )


def _curve(light: float) -> float:
    light = min(max(light, 0.0), 1.0)
    return 12.92 * light if light <= 0.0031308 else 1.055 * light ** (1 / 2.4) - 0.055


CONTRAST = "#e07b00"
"""Orange, for one thing that is to be seen beside blue: a mark, or the second of two corpora."""


def group_color(number: int) -> str:
    """The color of a group, counted from 0, as `#rrggbb`."""
    hue = _FIRST_HUE + number * _GOLDEN_ANGLE
    return to_hex(Lab(_LIGHTNESS[number % len(_LIGHTNESS)], _CHROMA * math.cos(hue), _CHROMA * math.sin(hue)))

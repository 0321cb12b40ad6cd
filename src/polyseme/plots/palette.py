"""Colours that tell groups apart: as many as are wanted, in an order that never changes.

Hues stand apart by the golden angle in Oklab, so that neighbours in the list are far from each other; lightness goes up
and down with them, so that most also differ in grey and for colour-blind eyes.
"""

from __future__ import annotations

import math

from polyseme.plots.ramp import Lab, to_hex

_FIRST_HUE = 4.4
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
_CHROMA = 0.13
_LIGHTNESS = (0.55, 0.68, 0.45, 0.74)


def group_colour(number: int) -> str:
    """The colour of a group, counted from 0, as `#rrggbb`."""
    hue = _FIRST_HUE + number * _GOLDEN_ANGLE
    return to_hex(Lab(_LIGHTNESS[number % len(_LIGHTNESS)], _CHROMA * math.cos(hue), _CHROMA * math.sin(hue)))

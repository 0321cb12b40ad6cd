"""Intervals stand where their numbers are, beside their bounds."""

from __future__ import annotations

import math
import re

from polyseme.plots.interval_chart import Interval, interval_charts


def test_a_number_lies_in_the_middle_of_its_interval_and_beside_its_bound() -> None:
    [chart] = interval_charts([Interval("loss: one − other > 0", 0.3, 0.1, 0.0)])
    dot = float(re.search(r'<circle cx="([\d.]+)"', chart)[1])  # type: ignore[index]
    low, high = map(float, re.search(r'd="M([\d.]+) 40H([\d.]+)"', chart).groups())  # type: ignore[union-attr]
    bound = float(re.search(r'class="level median" d="M([\d.]+) ', chart)[1])  # type: ignore[index]
    assert abs(dot - (low + high) / 2) < 0.11
    assert abs((low - bound) - (high - low)) < 0.31, "0.2 from the bound, and 0.2 wide"
    assert "<title>loss: one − other &gt; 0: +0.3 ± 0.1</title>" in chart


def test_names_are_text_and_what_has_no_end_is_left_out() -> None:
    [chart] = interval_charts([Interval('"><script>', 1.0, 0.0, 1.0), Interval("one seed", 1.0, math.inf, 0.0)])
    assert "<script" not in chart
    assert "one seed" not in chart

"""How far a figure may be from what it would be on other items of the same kind."""

from __future__ import annotations

import math

from polyseme.metrics.task_metrics import CORRELATIONS

MATTHEWS = "matthews"
Z95 = 1.959963984540054
"""Standard deviations of a normal distribution on either side of its mean that hold 95% of it."""


def sampling_error(metric: str, value: float, n_items: int) -> float | None:
    """The standard error of a metric on so many items; None where it is no share and no correlation.

    Shares are those of independent items. For a correlation it is that of normal variables, and for Matthews's that of
    two equally frequent labels. An F1 is treated as a share, which is only near the truth.

    >>> round(sampling_error("accuracy", 0.8, 400), 3), round(sampling_error("pearson", 0.8, 401), 3)
    (0.02, 0.018)
    """
    if n_items < 2 or not math.isfinite(value):
        return None
    if metric == MATTHEWS:
        return math.sqrt(max(1 - value * value, 0.0) / n_items)
    if metric in CORRELATIONS:
        return max(1 - value * value, 0.0) / math.sqrt(n_items - 1)
    return math.sqrt(value * (1 - value) / n_items) if 0 <= value <= 1 else None


def wilson_interval(right: int, n: int) -> tuple[float | None, float | None]:
    """Wilson's interval of a share: between what it may lie, given how few items there are.

    >>> low, high = wilson_interval(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    if not n:
        return None, None
    share, square = right / n, Z95 * Z95
    middle = (share + square / (2 * n)) / (1 + square / n)
    reach = Z95 / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    return max(middle - reach, 0.0), min(middle + reach, 1.0)

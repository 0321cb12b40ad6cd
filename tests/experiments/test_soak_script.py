"""What the soak's script says of a run: whether memory was flat, and what was left over."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def soak(import_script: Callable[[str], Any]) -> Iterator[Any]:
    yield import_script("soak")
    sys.modules.pop("soak")


def made(mebibytes: list[int], handles: int = 3) -> dict[str, Any]:
    points = [
        {"rows": 10 * number, "bytes": size << 20, "handles": handles, "temporary": 0}
        for number, size in enumerate(mebibytes)
    ]
    spent = {"seconds": 60.0, "cpu_seconds": 30.0}
    return {"verb": "embed", "words": 1000, **spent, "left_over": [], "machine": "a machine", "points": points}


def test_memory_that_grows_is_not_flat(soak: Any) -> None:
    level = [0, 500, *[510] * 9, 900]
    assert soak.is_flat(made(level)), "what assembles the output at the end is reported apart"
    assert not soak.is_flat(made([0, *range(500, 1600, 100)]))
    text = soak.markdown([made(level)])
    assert "| `embed` | 1,000 | 1.0 | 0.5 | 500 | 510 | 900 | yes | 3 → 3 | 0; 0 left |" in text


def test_thinning_keeps_peaks(soak: Any) -> None:
    points = made([*range(5000)])["points"]
    thin = soak.thinned(points)
    assert len(thin) <= soak.MOST_POINTS
    assert soak.peak(thin, "bytes") == soak.peak(points, "bytes")
    assert thin[-1]["rows"] == points[-1]["rows"]

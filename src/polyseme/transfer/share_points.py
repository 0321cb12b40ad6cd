"""The points of a learning curve: what a model scores with a share of the training items, over all seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyseme.plots.share_curve import ScoreCurve, ScorePoint
from polyseme.transfer.seed_results import SeedFigures

PRETRAINED, SCRATCH = "pretrained", "from scratch"


@dataclass(frozen=True, kw_only=True)
class SharePoint:
    """One share of the training items, and how a model fared with it. All figures are fractions."""

    share: str
    """As it was requested: `10%`, or `1000`."""
    n_items: int
    start: str = PRETRAINED
    """Whether the encoder began with the model's weights, or with random ones."""
    seeds: tuple[SeedFigures, ...]
    """Each with its own sample."""
    settings: Mapping[str, Any]
    """Some depend on the number of items."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SharePoint:
        return cls(**{**content, "seeds": tuple(SeedFigures(**each) for each in content["seeds"])})

    def values(self, split: str, metric: str) -> list[float]:
        """A metric on a split, by seed."""
        return [(each.dev if split == "dev" else each.others[split])[metric] for each in self.seeds]


def score_curves(points: Sequence[SharePoint], split: str, metric: str) -> list[ScoreCurve]:
    """The points as curves for a picture, ×100."""
    starts = dict.fromkeys(point.start for point in points)
    return [
        ScoreCurve(start, [_place(each, split, metric) for each in points if each.start == start]) for start in starts
    ]


def _place(point: SharePoint, split: str, metric: str) -> ScorePoint:
    values = [100 * value for value in point.values(split, metric)]
    return ScorePoint(point.n_items, statistics.median(values), min(values), max(values))


def share_table(points: Sequence[SharePoint], splits: Sequence[str], metric: str) -> list[list[str]]:
    """One row per share: its items, and of every model and split the median, with its range over several seeds."""
    starts = list(dict.fromkeys(point.start for point in points))
    header = ["share", "items", *(f"{start}, {split}" for start in starts for split in splits)]
    if len(starts) == 1:
        header = ["share", "items", *(f"{metric.replace('_', ' ')}, {split}" for split in splits)]
    rows = [header]
    for share in dict.fromkeys(point.share for point in points):
        of_share = {point.start: point for point in points if point.share == share}
        n_items = next(iter(of_share.values())).n_items
        cells = [_cell(of_share[start].values(split, metric)) for start in starts for split in splits]
        rows.append([share, f"{n_items:,}", *cells])
    return rows


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines of text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cell(values: Sequence[float]) -> str:
    hundreds = [100 * value for value in values]
    spread = f" ({min(hundreds):.1f} to {max(hundreds):.1f})" if len(values) > 1 else ""
    return f"{statistics.median(hundreds):.1f}{spread}"

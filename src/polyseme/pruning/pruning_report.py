"""The result of pruning: figures by heads removed, how much each head matters, which are left; as JSON and in lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyseme.cost import Cost
from polyseme.pruning.head_removal import AttentionPlace, HeadPlace
from polyseme.result_tables import ShownAsTable, Table


@dataclass(frozen=True, kw_only=True)
class PrunedPoint:
    """A model without so many heads."""

    removed: int
    share: float
    """Of all heads."""
    figures: Mapping[str, float]
    n_parameters: int


@dataclass(frozen=True, kw_only=True)
class HeadFigure:
    """What one head does by itself (tables 1 and 2 of Michel et al. 2019)."""

    place: HeadPlace
    without: Mapping[str, float]
    """Figures of the model without this head alone."""
    alone: Mapping[str, float]
    """Figures of the model with this head as the only one of its layer."""


@dataclass(frozen=True, kw_only=True, repr=False)
class PruningReport(ShownAsTable):
    """How heads were chosen, and what the model scores without them."""

    model: str
    measured: str
    """What the figures are of, in words."""
    metric: str
    """The figure that heads are to keep high, or a loss low."""
    higher_is_better: bool
    method: str
    """`gradient` or `gates`."""
    importance: Mapping[HeadPlace, float]
    """By which heads were chosen: comparable over layers."""
    removed: Sequence[HeadPlace]
    """In the order in which they went."""
    left: Mapping[AttentionPlace, Sequence[int]]
    points: Sequence[PrunedPoint]
    """From the whole model on, by rising number of heads removed."""
    single: Sequence[HeadFigure] = ()
    notes: Sequence[str] = field(default=())
    cost: Cost

    @property
    def n_heads(self) -> int:
        return len(self.importance)

    @property
    def whole(self) -> PrunedPoint:
        return self.points[0]

    @property
    def pruned(self) -> PrunedPoint:
        """The model that was requested."""
        return next(each for each in self.points if each.removed == len(self.removed))

    def to_json(self) -> dict[str, Any]:
        """For `pruning.json`."""
        return {
            "model": self.model,
            "measured": self.measured,
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "method": self.method,
            "heads": self.n_heads,
            "removed": [_head_fields(place) for place in self.removed],
            "left": [{"part": at.part, "layer": at.layer + 1, "heads": [*heads]} for at, heads in self.left.items()],
            "importance": [{**_head_fields(place), "importance": value} for place, value in self.importance.items()],
            "curve": [
                {
                    "removed": each.removed,
                    "share": each.share,
                    "parameters": each.n_parameters,
                    "figures": dict(each.figures),
                }
                for each in self.points
            ],
            "single": [
                {**_head_fields(each.place), "without": dict(each.without), "alone": dict(each.alone)}
                for each in self.single
            ],
            "notes": list(self.notes),
            "cost": dataclasses.asdict(self.cost),
        }

    def header(self) -> list[str]:
        return ["heads removed", "share", *self.whole.figures, "parameters"]

    def rows(self) -> list[list[str]]:
        """One per point of the curve."""
        return [
            [
                f"{each.removed} of {self.n_heads}",
                f"{each.share:.0%}",
                *(self.shown(each.figures.get(name), name) for name in self.whole.figures),
                f"{each.n_parameters:,}",
            ]
            for each in self.points
        ]

    def shown(self, value: float | None, name: str) -> str:
        """A figure as tables have it: losses as they are, scores in hundredths."""
        if value is None:
            return "–"
        return f"{self.scaled(value):.{1 if self.higher_is_better else 3}f}"

    def scaled(self, value: float) -> float:
        """A score in hundredths, a loss as it is."""
        return 100 * value if self.higher_is_better else value

    def table(self) -> Table:
        return Table(title=self.summary(), header=self.header(), rows=self.rows(), note=self.cost.line())

    def summary(self) -> str:
        """A sentence on the model that was requested."""
        before, after = (each.figures.get(self.metric) for each in (self.whole, self.pruned))
        return (
            f"{self.pruned.removed} of {self.n_heads} heads removed by {self.method}: {self.measured} "
            f"{self.shown(before, self.metric)} → {self.shown(after, self.metric)}"
        )


def _head_fields(place: HeadPlace) -> dict[str, Any]:
    """A head as pages name it: layers counted from 1, heads from 0."""
    return {"part": place.at.part, "layer": place.at.layer + 1, "head": place.head}

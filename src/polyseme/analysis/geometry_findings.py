"""The geometry of layers as a table, JSON and a page with charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from polyseme.analysis.findings import Findings, decimal
from polyseme.analysis.moments import Means
from polyseme.packaged_models import model_name
from polyseme.plots.charts import CHART_STYLE, Curve, lines_chart
from polyseme.plots.figures_table import figures_table, shaded_table
from polyseme.plots.html_page import escaped


@dataclass(frozen=True)
class Measure:
    """A mean, the same adjusted for what random words have, and its standard error; NaN where there is none."""

    mean: float
    adjusted: float
    error: float

    @classmethod
    def of(cls, means: Means, baseline: float) -> Measure:
        return cls(means.mean, means.mean - baseline, means.error)


@dataclass(frozen=True, kw_only=True)
class LayerGeometry:
    """The figures of one layer."""

    layer: int
    vectors: str
    """Whether they are as they are, or without their mean and first components."""
    norm: float
    anisotropy: float
    anisotropy_error: float
    self_similarity: Measure
    """Of the uses of a word."""
    intra_sentence: Measure
    """Of the words of a text and their mean."""
    explained: Measure
    """The share of a word's uses that their first principal component explains."""

    def record(self) -> dict[str, Any]:
        """As one flat row."""
        record: dict[str, Any] = {
            "layer": self.layer,
            "vectors": self.vectors,
            "norm": self.norm,
            "anisotropy": self.anisotropy,
            "anisotropy_error": self.anisotropy_error,
        }
        for name in MEASURES:
            measure: Measure = getattr(self, name)
            record |= {name: measure.mean, f"{name}_adjusted": measure.adjusted, f"{name}_error": measure.error}
        return {name: _plain(value) for name, value in record.items()}


@dataclass(frozen=True, kw_only=True)
class Change:
    """How far a layer is from the same one of another model."""

    layer: int
    one_minus_cka: float
    states: float
    """‖X − Y‖ / ‖Y‖ over the words' vectors."""
    weights: float
    """The same of the layer's weights."""


MEASURES = {
    "self_similarity": "self-similarity",
    "intra_sentence": "intra-sentence similarity",
    "explained": "variance explained by the first component",
}


@dataclass(frozen=True, kw_only=True, repr=False)
class GeometryFindings(Findings):
    """What `geometry` found."""

    verb: ClassVar[str] = "geometry"
    page_style: ClassVar[str] = f"{CHART_STYLE}\n.charts {{ display: flex; flex-wrap: wrap; gap: 1rem 2rem }}\n" + (
        ".charts > div { flex: 1 1 26rem; max-width: 34rem }"
    )

    layers: Sequence[LayerGeometry]
    """First the vectors as they are, layer 0 first; then without mean and components."""
    cka: Sequence[Sequence[float]]
    against: str = ""
    """Another model."""
    cka_against: Sequence[Sequence[float]] = ()
    """By layers of the model, then by layers of the other."""
    changes: Sequence[Change] = ()

    def title(self) -> str:
        other = f" and {model_name(self.against)}" if self.against else ""
        return f"Geometry of {model_name(self.model)}{other}"

    def sources(self) -> dict[str, str]:
        against = {"against": model_name(self.against)} if self.against else {}
        sources = super().sources()
        return {"model": sources.pop("model"), **against, **sources}

    def records(self) -> list[dict[str, Any]]:
        return [each.record() for each in self.layers]

    def header(self) -> Sequence[str]:
        return ["layer", "vectors", *COLUMNS]

    def rows(self) -> Sequence[Sequence[str]]:
        return [[str(each.layer), each.vectors, *_cells(each)] for each in self.layers]

    def to_json(self) -> dict[str, Any]:
        changes = [{name: _plain(value) for name, value in asdict(each).items()} for each in self.changes]
        return {
            **super().to_json(),
            "cka": _plain_matrix(self.cka),
            "against": self.against,
            "cka_against": _plain_matrix(self.cka_against),
            "changes": changes,
        }

    def page_height(self) -> int:
        return 1100

    def page_body(self) -> str:
        parts = [
            '<div class="charts">',
            *self._charts(),
            "</div>",
            *self._tables(),
            "<h2>CKA between layers</h2>",
            _heat_map("layer", self.cka, str),
        ]
        if self.against:
            name = escaped(model_name(self.against))
            parts += [f"<h2>CKA with the layers of {name} (across)</h2>", _heat_map("layer", self.cka_against, str)]
        if self.changes:
            parts += [f"<h2>How far layers are from those of {name}</h2>", *self._changes()]
        return "\n".join(parts)

    def _charts(self) -> list[str]:
        kinds = list(dict.fromkeys(each.vectors for each in self.layers))
        if len(self.cka) == 1:
            return []

        def curves(of: Callable[[LayerGeometry], float]) -> list[Curve]:
            return [
                Curve(kind, [(each.layer, of(each)) for each in self.layers if each.vectors == kind]) for kind in kinds
            ]

        charts = [
            lines_chart(curves(lambda each: each.anisotropy), x="layer", y="anisotropy: mean cosine of all pairs")
        ]
        for name, words in MEASURES.items():
            drawn = curves(lambda each, name=name: getattr(each, name).adjusted)  # type: ignore[misc]
            charts.append(lines_chart(drawn, x="layer", y=f"{words}, adjusted"))
        return [f"<div>{chart}</div>" for chart in charts if chart]

    def _tables(self) -> list[str]:
        parts = []
        for kind in dict.fromkeys(each.vectors for each in self.layers):
            rows = [[str(each.layer), *_cells(each)] for each in self.layers if each.vectors == kind]
            parts += [f"<h2>Vectors {escaped(kind)}</h2>", figures_table(["layer", *COLUMNS], rows)]
        return parts

    def _changes(self) -> list[str]:
        columns = {"1 − CKA": "one_minus_cka", "states, relative": "states", "weights, relative": "weights"}
        curves = [
            Curve(name, [(each.layer, getattr(each, field)) for each in self.changes])
            for name, field in columns.items()
        ]
        rows = [
            [str(each.layer), *(decimal(getattr(each, field), 3) for field in columns.values())]
            for each in self.changes
        ]
        return [lines_chart(curves, x="layer", y="change"), figures_table(["layer", *columns], rows)]


COLUMNS = (
    "norm", "anisotropy", "self-similarity", "adjusted", "intra-sentence", "adjusted", "explained variance", "adjusted",
)  # fmt: skip


def _cells(layer: LayerGeometry) -> list[str]:
    cells = [decimal(layer.norm, 2), _with_error(layer.anisotropy, layer.anisotropy_error)]
    for name in MEASURES:
        measure: Measure = getattr(layer, name)
        cells += [_with_error(measure.mean, measure.error), decimal(measure.adjusted, 3)]
    return cells


def _with_error(value: float, error: float) -> str:
    return f"{decimal(value, 3)} ±{error:.3f}" if math.isfinite(error) else decimal(value, 3)


def _heat_map(corner: str, matrix: Sequence[Sequence[float]], name: Callable[[int], str]) -> str:
    rows = [(name(number), [_plain(value) for value in row]) for number, row in enumerate(matrix)]
    columns = [corner, *(name(number) for number in range(len(matrix[0])))]
    return shaded_table(columns, rows, spelled=lambda value: decimal(value, 2), low=0.0, high=1.0)


def _plain(value: Any) -> Any:
    """None for numbers that JSON has not."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain_matrix(matrix: Sequence[Sequence[float]]) -> list[list[float | None]]:
    return [[_plain(value) for value in row] for row in matrix]

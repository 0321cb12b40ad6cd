"""A word's type against its uses as a table, JSON and a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

from polyseme.analysis.findings import Findings, decimal
from polyseme.packaged_models import model_name
from polyseme.plots.charts import CHART_STYLE, Curve, lines_chart
from polyseme.plots.figures_table import figures_table, shaded_table
from polyseme.plots.html_page import concordance, escaped
from polyseme.plots.word_uses import Use, WordUses, format_cosine, lowest
from polyseme.word_senses.similar_uses import NearUse

CONTEXT = 60
"""Characters on each side of a use."""


@dataclass(frozen=True)
class Neighbor:
    """A word whose context-free vector is near."""

    word: str
    cosine: float
    n_uses: int
    """Its uses in the texts."""


class NearTo(NamedTuple):
    """A use and its nearest uses."""

    use: Use
    near: Sequence[NearUse]


@dataclass(frozen=True, kw_only=True)
class LayerOfUses:
    """The uses of a word at one layer; NaN where there is no figure."""

    layer: int
    similarity: float
    similarity_error: float
    anisotropy: float
    explained_by_layer_0: float
    """The share of the uses' squared length along the word's mean vector of layer 0; where widths agree."""
    explained_by_mean: float
    explained_by_component: float
    """By the first principal component."""
    explained_of_random: float
    """Of as many random words, by their first principal component."""

    def record(self) -> dict[str, Any]:
        """As one flat row."""
        record = asdict(self)
        after = list(record).index("anisotropy") + 1
        ordered = [*list(record.items())[:after], ("similarity_adjusted", self.similarity - self.anisotropy)]
        plain = dict([*ordered, *list(record.items())[after:]])
        return {name: value if math.isfinite(value) else None for name, value in plain.items()}


EXPLAINED = {
    "explained_by_layer_0": "by its layer 0",
    "explained_by_mean": "by the mean of its uses",
    "explained_by_component": "by the first component",
    "explained_of_random": "random words, by the first component",
}


@dataclass(frozen=True, kw_only=True, repr=False)
class WordUsesFindings(Findings):
    """What `uses` found."""

    verb: ClassVar[str] = "uses"
    page_style: ClassVar[str] = f"{CHART_STYLE}\n" + "\n".join(
        [
            ".charts, .maps { display: flex; flex-wrap: wrap; gap: 1rem 2rem }",
            ".charts > div { flex: 1 1 26rem; max-width: 34rem } .maps { margin-top: .8rem }",
            ".play { display: flex; flex-wrap: wrap; gap: 0 3rem } .play > div { flex: 0 0 auto }",
            ".play > div:last-child { flex: 1 1 30rem; min-width: 0 } .play p { margin-top: .9rem }",
        ]
    )

    word: str
    layer: str
    """That of the matrix and of the nearest uses."""
    layers: Sequence[LayerOfUses]
    matrix: WordUses
    static: str
    """What context-free neighbors are of."""
    static_neighbors: Sequence[Neighbor]
    near: Sequence[NearTo]

    def title(self) -> str:
        return f"Uses of {self.word!r} by {model_name(self.model)}"

    def records(self) -> list[dict[str, Any]]:
        return [each.record() for each in self.layers]

    def header(self) -> Sequence[str]:
        return ["layer", "similarity of uses", "anisotropy", "adjusted", "explained by layer 0", *_SHORT]

    def rows(self) -> Sequence[Sequence[str]]:
        return [
            [
                str(each.layer),
                decimal(each.similarity, 3)
                + (f" ±{each.similarity_error:.3f}" if math.isfinite(each.similarity_error) else ""),
                decimal(each.anisotropy, 3),
                decimal(each.similarity - each.anisotropy, 3),
                *(decimal(getattr(each, name), 3) for name in EXPLAINED),
            ]
            for each in self.layers
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "word": self.word,
            "layer": self.layer,
            "matrix": {
                "uses": [asdict(use) for use in self.matrix.uses],
                "in_context": self.matrix.in_context.tolist(),
                "layer_0": self.matrix.alone.tolist(),
            },
            "static": self.static,
            "static_neighbors": [asdict(each) for each in self.static_neighbors],
            "near": [{"use": asdict(each.use), "near": [asdict(use) for use in each.near]} for each in self.near],
        }

    def page_height(self) -> int:
        return 1100

    def page_body(self) -> str:
        return "\n".join(
            [
                "<h2>By layer</h2>",
                *self._charts(),
                figures_table(self.header(), self.rows()),
                "<h2>The matrix of uses</h2>",
                *self._matrix(),
                *self._neighbors(),
            ]
        )

    def _charts(self) -> list[str]:
        if len(self.layers) == 1:
            return []

        def curve(name: str, field: str) -> Curve:
            return Curve(name, [(each.layer, getattr(each, field)) for each in self.layers])

        similar = [curve("uses of the word", "similarity"), curve("any two words (anisotropy)", "anisotropy")]
        explained = [curve(name, field) for field, name in EXPLAINED.items()]
        charts = [
            lines_chart(similar, x="layer", y="mean cosine"),
            lines_chart(explained, x="layer", y="share of the uses that is explained"),
        ]
        return ['<div class="charts">', *(f"<div>{chart}</div>" for chart in charts), "</div>"]

    def _matrix(self) -> list[str]:
        numbers = [str(number) for number in range(1, len(self.matrix.uses) + 1)]
        keywords = [use.keyword(CONTEXT) for use in self.matrix.uses]
        low = lowest([self.matrix])
        maps = [
            f"<div><p>{escaped(heading)}</p>"
            + shaded_table(
                ["", *numbers],
                [(number, [float(cosine) for cosine in row]) for number, row in zip(numbers, cosines, strict=True)],
                spelled=format_cosine,
                low=low,
                high=1.0,
            )
            + "</div>"
            for heading, cosines in (
                (f"layer {self.layer}, in context", self.matrix.in_context),
                ("layer 0: the word and its place, no context", self.matrix.alone),
            )
        ]
        listed = concordance(list(zip(numbers, keywords, strict=True)))
        return [listed, '<div class="maps">', *maps, "</div>"]

    def _neighbors(self) -> list[str]:
        if not self.near:
            return []
        without = [[each.word, f"{each.cosine:.2f}", f"{each.n_uses:,}"] for each in self.static_neighbors]
        parts = [
            f'<div class="play"><div><h2>Neighbors without context</h2><p class="faint">{escaped(self.static)}</p>',
            figures_table(["word", "cosine", "uses"], without) if without else "<p>The word has no vector there.</p>",
            f'</div><div><h2>Nearest uses in context</h2><p class="faint">layer {escaped(self.layer)}</p>',
        ]
        for each in self.near:
            before, word, after = map(escaped, each.use.keyword(CONTEXT))
            parts.append(f'<p dir="auto">{before}<b>{word}</b>{after}</p>')
            parts.append(concordance([(f"{use.cosine:.2f}", use.keyword(CONTEXT)) for use in each.near]))
        return [*parts, "</div></div>"]


_SHORT = ("by mean", "by component", "of random words")

"""What probes found: a row for each layer, a chart of accuracies, the layers' shares in the mix, confused labels."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from polyseme.analysis.findings import Findings, decimal
from polyseme.plots.charts import CHART_STYLE, Curve, lines_chart
from polyseme.plots.figures_table import figures_table, shaded_table
from polyseme.plots.html_page import escaped

MIX = "mix"
HEADINGS = {"macro_f1": "macro F1", "code_length": "code length, kbit"}
OF_MIX = ("center_of_gravity", "expected_layer")
"""Figures of the mix alone, which the page has in a sentence."""


class Confusion(NamedTuple):
    """A label that was taken for another."""

    label: str
    predicted: str
    times: int
    share: float
    """Of the label's examples."""


@dataclass
class LayerFigures:
    """What was measured at one layer, of each seed a value."""

    layer: str
    values: dict[str, list[float]] = field(default_factory=dict)

    def mean(self, name: str) -> float:
        return statistics.fmean(self.values[name])

    def spread(self, name: str) -> float | None:
        """The standard deviation over seeds; None of one."""
        values = self.values.get(name, ())
        return statistics.stdev(values) if len(values) > 1 else None

    def has(self, name: str) -> bool:
        return bool(self.values.get(name))


@dataclass
class MixFigures:
    """What the probes over mixes of layers gave, of each seed one."""

    shares: list[list[float]] = field(default_factory=list)
    """Of each layer, in the mix of all."""
    centers: list[float] = field(default_factory=list)
    """Centers of gravity."""
    cumulative: list[list[float]] = field(default_factory=list)
    """The accuracies of the mixes of layers 0 to ℓ."""
    expected: list[float] = field(default_factory=list)
    """Expected layers."""
    macro_f1: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    def mean_shares(self) -> list[float]:
        return [statistics.fmean(each) for each in zip(*self.shares, strict=True)]

    def figures(self) -> LayerFigures:
        values = {
            "accuracy": [each[-1] for each in self.cumulative],
            "standard_error": self.errors,
            "macro_f1": self.macro_f1,
            "center_of_gravity": self.centers,
            "expected_layer": self.expected,
        }
        return LayerFigures(MIX, values)


@dataclass(frozen=True, kw_only=True, repr=False)
class ProbeFindings(Findings):
    """What classifiers could read off each layer."""

    verb: ClassVar[str] = "probe"
    page_style: ClassVar[str] = CHART_STYLE

    target: str
    """What was probed for."""
    unit: str
    probe: str
    split: str
    n_labels: int
    uniform_bits: float
    """The bits of the training labels in a uniform code."""
    figures: Sequence[LayerFigures]
    majority: float
    """The accuracy of the most frequent label."""
    per_type: float
    """The accuracy of each word's most frequent label."""
    mix: MixFigures | None = None
    confusions: Sequence[Confusion] = ()
    """The most frequent ones of the best layer."""

    def title(self) -> str:
        return f"{self.target}: {self.probe} probes of {self.unit}, by layer"

    @property
    def best(self) -> LayerFigures | None:
        """The layer with the highest accuracy."""
        return max(self.figures, key=lambda each: each.mean("accuracy"), default=None)

    def rows_of_layers(self) -> list[LayerFigures]:
        """The layers, and the mix."""
        return [*self.figures, *([] if self.mix is None else [self.mix.figures()])]

    def records(self) -> list[dict[str, Any]]:
        return [self._record(each) for each in self.rows_of_layers()]

    def _record(self, each: LayerFigures) -> dict[str, Any]:
        everything = {name for row in self.figures for name in row.values}
        record: dict[str, Any] = {
            "layer": each.layer,
            "accuracy": each.mean("accuracy"),
            "accuracy_sd": each.spread("accuracy"),
            "standard_error": each.mean("standard_error"),
            "macro_f1": each.mean("macro_f1"),
        }
        if "control" in everything:
            known = each.has("control")
            record["control"] = each.mean("control") if known else None
            record["control_sd"] = each.spread("control")
            record["selectivity"] = record["accuracy"] - record["control"] if known else None
        if "bits" in everything:
            known = each.has("bits")
            record["code_length"] = each.mean("bits") if known else None
            record["code_length_sd"] = each.spread("bits")
            record["compression"] = self.uniform_bits / record["code_length"] if known else None
        if "random" in everything:
            record["random_weights"] = each.mean("random") if each.has("random") else None
            record["random_weights_sd"] = each.spread("random")
        for name in () if self.mix is None else OF_MIX:
            record[name] = each.mean(name) if each.has(name) else None
            record[f"{name}_sd"] = each.spread(name)
        return {**record, "majority": self.majority, "per_type": self.per_type}

    def header(self) -> Sequence[str]:
        return [HEADINGS.get(name, name.replace("_", " ")) for name in self._shown()]

    def _shown(self) -> list[str]:
        """The columns of the table: those with values; the baselines have rows of their own."""
        records = self.records()
        filled = [name for name in records[0] if any(each[name] is not None for each in records)]
        return [name for name in filled if name not in ("majority", "per_type") and not name.endswith("_sd")]

    def rows(self) -> Sequence[Sequence[str]]:
        baselines = {"majority": self.majority, "per type": self.per_type}
        names = self._shown()
        rows = [
            [format_figure(name, record[name], record.get(f"{name}_sd")) for name in names] for record in self.records()
        ]  # fmt: skip
        blank = [""] * (len(names) - 2)
        return [*rows, *([name, format_figure("accuracy", value), *blank] for name, value in baselines.items())]

    def to_json(self) -> dict[str, Any]:
        content = super().to_json()
        content |= {
            "target": self.target,
            "unit": self.unit,
            "probe": self.probe,
            "split": self.split,
            "n_labels": self.n_labels,
            "majority": self.majority,
            "per_type": self.per_type,
            "by_seed": {each.layer: each.values for each in self.rows_of_layers()},
            "confusions": [each._asdict() for each in self.confusions],
        }
        if self.mix is not None:
            content["mix"] = {
                "shares": self.mix.shares,
                "centers_of_gravity": self.mix.centers,
                "expected_layers": self.mix.expected,
                "cumulative_accuracies": self.mix.cumulative,
            }
        return content

    # --- the page -----------------------------------------------------------------------------------------------------

    def page_height(self) -> int:
        return 900

    def page_body(self) -> str:
        parts = [f"<p>{escaped(self.summary())}</p>", self._chart()]
        columns = [place for place, name in enumerate(self._shown()) if name not in OF_MIX]
        table = [[line[place] for place in columns] for line in (self.header(), *self.rows())]
        parts.append(figures_table(table[0], table[1:]))
        if self.mix is not None:
            parts += ["<h2>Shares of the layers in the mix</h2>", self._shares(), f"<p>{escaped(self._gravity())}</p>"]
        if self.confusions and self.best is not None:
            rows = [
                [each.label, each.predicted, f"{each.times:,}", f"{100 * each.share:.1f}%"] for each in self.confusions
            ]
            parts.append(f"<h2>Most confused at layer {self.best.layer}</h2>")
            parts.append(figures_table(["label", "predicted", "times", "of the label"], rows))
        return "\n".join(parts)

    def summary(self) -> str:
        """The best layer beside the baselines, in a sentence."""
        baselines = (
            f"The most frequent label is correct for {100 * self.majority:.1f}%, the most frequent label of the same "
            f"words for {100 * self.per_type:.1f}%."
        )
        best = self.best
        if best is None:
            mixed = self.rows_of_layers()[0]
            return (
                f"The mix of all layers labels {100 * mixed.mean('accuracy'):.1f}% of {self.unit} on {self.split} "
                f"correctly. {baselines}"
            )
        return (
            f"The best layer, {best.layer}, labels {100 * best.mean('accuracy'):.1f}% of {self.unit} on {self.split} "
            f"correctly. {baselines}"
        )

    def _chart(self) -> str:
        if len(self.figures) < 2:
            return ""
        layers = [int(each.layer) for each in self.figures]
        curves = []
        for name, values, error in (
            ("accuracy", "accuracy", "standard_error"),
            ("control task", "control", ""),
            ("random weights", "random", ""),
        ):
            if not all(each.has(values) for each in self.figures):
                continue
            points = [(at, 100 * each.mean(values)) for at, each in zip(layers, self.figures, strict=True)]
            errors = [100 * (2 * each.mean(error) if error else each.spread(values) or 0.0) for each in self.figures]
            curves.append(Curve(name, points, errors=errors))
        ends = (layers[0], layers[-1])
        for name, value in (("per type", self.per_type), ("majority", self.majority)):
            curves.append(Curve(name, [(at, 100 * value) for at in ends], dashed=True))
        chart = lines_chart(curves, x="layer", y="accuracy, %")
        note = "Error bars of the accuracy are two standard errors over texts"
        note += "; those of the other curves are standard deviations over seeds." if len(self.seeds) > 1 else "."
        return f'{chart}<p class="faint">{note}</p>'

    def _shares(self) -> str:
        assert self.mix is not None
        shares = self.mix.mean_shares()
        return shaded_table(
            ["layer", *map(str, range(len(shares)))],
            [("share, %", shares)],
            spelled=lambda value: f"{100 * value:.0f}",
            low=0.0,
        )

    def _gravity(self) -> str:
        assert self.mix is not None
        text = f"Center of gravity: layer {_with_spread(self.mix.centers)}."
        if self.mix.expected:
            text += f" Expected layer, by the accuracies of mixes of layers 0 to ℓ: {_with_spread(self.mix.expected)}."
        return text


def _with_spread(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"


def format_figure(name: str, value: Any, spread: float | None = None) -> str:
    """A figure of the table, with its standard deviation: shares in percent, code lengths in thousands of bits."""
    if value is None or name == "layer":
        return str(value or "")
    as_they_are = ("compression", *OF_MIX)
    size, digits = (0.001, 1) if name == "code_length" else (1, 2) if name in as_they_are else (100, 1)
    digits = 2 if name == "standard_error" else digits
    beside = "" if spread is None else f" ± {size * spread:.{digits}f}"
    return f"{decimal(size * value, digits)}{beside}"

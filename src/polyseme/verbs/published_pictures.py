"""The pictures of published tables: score against year and compute, size against year, the family tree, a power law.

The picture of ratios has one panel per ratio, with a dot per count. That of any other table has one panel per column,
with a dot per system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from polyseme.errors import OptionError
from polyseme.papers import Figure, PublishedTable, cell_text, column_head, figures_of
from polyseme.papers.published_table import number_text
from polyseme.plots.family_tree import TreeNode, family_tree
from polyseme.plots.labeled_points import Axis, LabeledPoint, labeled_points
from polyseme.plots.sweep_picture import PictureFigure, PicturePoint, is_wide, sweep_picture

YEAR = Axis("year of the preprint", whole=True)
GLUE = ("glue", "average")


def picture(table: PublishedTable) -> str:
    """The picture of a table, as the text of an SVG file."""
    return PICTURES.get(table.name, _rows)(table)


def leads(table: PublishedTable) -> bool:
    """Whether the picture shows more than the table does, and comes before it in the page."""
    return table.name in PICTURES


def _score_year(table: PublishedTable) -> str:
    """GLUE's mean against the date of the preprint."""
    points = [
        LabeledPoint(figure.system, _year(date), figure.value, figure.split, figure.split != "test")
        for figure in table.figures
        if (figure.task, figure.metric) == GLUE and (date := table.systems.get(figure.system, {}).get("date"))
    ]
    return _points("GLUE against the year", table, points, YEAR, Axis("mean of GLUE"))


def _score_compute(table: PublishedTable) -> str:
    """GLUE's mean on dev against training FLOPs: as ELECTRA's authors count them, and as we do."""
    scores = {each.system: each.value for each in figures_of("glue") if _is_dev_mean(each)}
    points = []
    for metric, group, hollow in (("flops", "FLOPs as published", False), ("flops, counted", "as counted here", True)):
        first: dict[str, float] = {}
        for figure in table.figures:
            if figure.metric == metric:
                first.setdefault(figure.system, figure.value)
        points += [
            LabeledPoint(system, flops, scores[system], group, hollow)
            for system, flops in first.items()
            if system in scores
        ]
    return _points("GLUE against compute", table, points, Axis("training FLOPs", log=True), Axis("mean of GLUE, dev"))


def _size_year(table: PublishedTable) -> str:
    """Parameters against the date of the preprint."""
    points = [
        LabeledPoint(figure.system, _year(date), figure.value)
        for figure in table.figures
        if figure.metric == "parameters" and (date := table.systems.get(figure.system, {}).get("date"))
    ]
    points.sort(key=lambda point: -point.y)
    return _points("Size against the year", table, points, YEAR, Axis("parameters", log=True))


def _tree(table: PublishedTable) -> str:
    """The systems, each below the system that it comes from."""
    years = {figure.system: round(figure.value) for figure in table.figures}
    nodes = [
        TreeNode(system, year, [each for each in known.get("from", ()) if each in years], "recipe" in known)
        for system, year in years.items()
        for known in [table.systems.get(system, {})]
    ]
    return family_tree(table.title, nodes, marked="with a recipe here", unmarked="without")


def _law(table: PublishedTable) -> str:
    """The power law at the compute of GPT-3's eight sizes."""
    law = {figure.metric: figure.value for figure in table.figures}
    compute = {figure.system: figure.value for figure in figures_of("gpt-3") if figure.metric == "PF-days"}
    points = [LabeledPoint(name, days, law["a"] * days ** law["b"]) for name, days in compute.items()]
    title = f"L = {number_text(law['a'])} C^{number_text(law['b'])} at the compute of GPT-3's sizes"
    return _points(title, table, points, Axis("PF-days", log=True), Axis("nats that the law gives"))


def _ratios(table: PublishedTable) -> str:
    """One panel per ratio, a row per count of it."""
    panels: dict[str, list[PicturePoint]] = {}
    for figure in table.figures:
        panels.setdefault(figure.system, []).append(_row(figure, figure.metric.removeprefix("ratio, "), figure.value))
    return sweep_picture(table.title, ["row"], [PictureFigure(*panel) for panel in panels.items()])


def _rows(table: PublishedTable) -> str:
    """One panel per column of several systems, a row per system; numbers as the table prints them, with its marks."""
    columns: dict[str, list[Figure]] = {}
    for figure in table.figures:
        name = ", ".join(filter(None, (column_head(figure.task, figure.metric), figure.split)))
        columns.setdefault(name, []).append(figure)
    several = {name: figures for name, figures in columns.items() if len(figures) > 1}
    panels = []
    for name, figures in (several or columns).items():
        size, unit = _scale([figure.value for figure in figures])
        points = [_row(figure, figure.system, figure.value / size) for figure in figures]
        panels.append(PictureFigure(f"{name}{unit}", points))
    return sweep_picture(table.title, ["row"], panels)


def _row(figure: Figure, name: str, value: float) -> PicturePoint:
    printed = cell_text([replace(figure, unit="")])
    return PicturePoint({"row": name}, name, value, 0.0, [value], printed=printed)


def _scale(values: list[float]) -> tuple[float, str]:
    """The divisor of large numbers, and its name on the axis; none where the axis is logarithmic."""
    if is_wide(values):
        return 1.0, ""
    sizes = ((1e18, ", in 1e18"), (1e9, ", in billions"), (1e6, ", in millions"), (1e4, ", in thousands"))
    size, unit = next((each for each in sizes if max(values) >= each[0]), (1.0, ""))
    return (1e3 if size == 1e4 else size), unit


def _points(title: str, table: PublishedTable, points: list[LabeledPoint], across: Axis, up: Axis) -> str:
    if not points:
        raise OptionError(
            f"The picture of {table.name} ({title}) has no points of these systems. Show more of them, or "
            "write a table (.csv, .json, .md)."
        )
    return labeled_points(title, points, across=across, up=up)


def _is_dev_mean(figure: Figure) -> bool:
    return (figure.task, figure.metric) == GLUE and figure.split == "dev"


def _year(date: str) -> float:
    """A month as a year with a fraction."""
    year, month = date.split("-")
    return int(year) + (int(month) - 1) / 12


PICTURES: Mapping[str, Callable[[PublishedTable], str]] = {
    "glue": _score_year,
    "cost": _score_compute,
    "sizes": _size_year,
    "family-tree": _tree,
    "scaling-law": _law,
    "ratios": _ratios,
}

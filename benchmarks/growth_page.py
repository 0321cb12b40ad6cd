"""What growth.py makes of its points: fits, verdicts by the rule, tables and pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from growth_jobs import JOBS
from measure import table

from polyseme.plots.colors import CONTRAST, group_color
from polyseme.plots.similarity_heatmaps import FAINT, INK, FigurePage, figure_bytes

MEBIBYTE = 2**20
LINEAR = (0.85, 1.15)
FLAT_SHARE, FLAT_BYTES = 0.25, 32 * MEBIBYTE
CALCULATED = 10_000_000
GROUPS = {
    "rows": "Rows of eight words",
    "length": "The length of one text",
    "shape": "Vocabulary and layers",
    "uses": "Uses in an index",
}
LEFT_OUT = " so far"
"""After the sizes of a job whose largest one is not measured."""
Point = Mapping[str, float]

# Sizes of a picture in inches; of type, in points.
COLUMNS = 4
LEFT, RIGHT, TOP, BOTTOM = 0.82, 0.15, 0.62, 0.55
WIDTH, TIME_HEIGHT, MEMORY_HEIGHT = 1.82, 1.35, 1.0
ACROSS, BETWEEN, DOWN = 0.32, 0.12, 0.82
SMALL = 8.0
GUIDE = "#b4bfc9"


class Line(NamedTuple):
    """y = at_zero + slope · x."""

    slope: float
    at_zero: float

    def __call__(self, x: float) -> float:
        return self.at_zero + self.slope * x


# --- fits -------------------------------------------------------------------------------------------------------------


def line(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """By least squares."""
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    slope /= sum((x - x_mean) ** 2 for x in xs)
    return Line(slope, y_mean - slope * x_mean)


def upper_half(points: Sequence[Point]) -> Sequence[Point]:
    """The larger half of the sizes, with the one in the middle."""
    ordered = sorted(points, key=lambda point: point["size"])
    return ordered[len(ordered) // 2 :] if len(ordered) > 2 else ordered


def time_line(points: Sequence[Point]) -> Line:
    """Log CPU seconds against log size; the slope is the exponent."""
    upper = upper_half(points)
    return line([math.log(each["size"]) for each in upper], [math.log(each["cpu_seconds"]) for each in upper])


def memory_line(points: Sequence[Point]) -> Line:
    """Bytes against size, without mapped files; the slope is in bytes per unit."""
    upper = upper_half(points)
    return line([each["size"] for each in upper], [each["private"] for each in upper])


def time_verdict(points: Sequence[Point]) -> str:
    """By the rule of growth.py."""
    low, high = LINEAR
    exponent = time_line(points).slope
    return "linear" if low <= exponent <= high else "below linear" if exponent < low else "above linear"


def memory_verdict(points: Sequence[Point]) -> str:
    """By the rule of growth.py."""
    first, *_, last = upper_half(points)
    added = first["private"] - first["private_before"]
    return "flat" if last["private"] - first["private"] <= max(FLAT_SHARE * added, FLAT_BYTES) else "grows"


def is_complete(name: str, points: Sequence[Point]) -> bool:
    """Whether the largest size was measured; without it, the upper half is not that of the rule."""
    return max(each["size"] for each in points) >= JOBS[name].sizes[-1]


def against_expected(name: str, points: Sequence[Point]) -> str:
    """Whether time or memory grows more or less than was expected before the runs, or both as expected."""
    job, time, memory = JOBS[name], time_verdict(points), memory_verdict(points)
    if time == "above linear" or (memory, job.memory) == ("grows", "flat"):
        return "more"
    if (time, job.time) == ("below linear", "linear") or (memory, job.memory) == ("flat", "grows"):
        return "less"
    return "as expected"


# --- tables -----------------------------------------------------------------------------------------------------------


def seconds(value: float) -> str:
    """With three digits, in the unit that suits."""
    if value >= 100:
        return f"{value:,.0f} s"
    if value >= 1:
        return f"{value:.1f} s"
    return f"{1000 * value:.3g} ms"


def mebibytes(value: float) -> str:
    return f"{value / MEBIBYTE:,.0f}"


def verdict(found: str, expected: str) -> str:
    """A verdict; beside it what was expected, if that is something else."""
    fine = found == expected or (expected == "at most linear" and found != "above linear")
    return found if fine else f"**{found}** (expected: {expected})"


def group_table(results: Mapping[str, Sequence[Point]], group: str) -> str:
    """A row per job."""
    rows = []
    for name, points in of_group(results, group).items():
        job, last = JOBS[name], max(points, key=lambda point: point["size"])
        complete, smallest = is_complete(name, points), min(each["size"] for each in points)
        rows.append(
            [
                name,
                f"{smallest:,.0f} … {last['size']:,.0f} {job.unit}s{'' if complete else LEFT_OUT}",
                f"{seconds(last['cpu_seconds'])} per {job.per}",
                f"{time_line(points).slope:.2f}",
                verdict(time_verdict(points), job.time) if complete else "",
                mebibytes(last["peak"]),
                mebibytes(last["private"]),
                f"{max(memory_line(points).slope, 0):,.0f}",
                verdict(memory_verdict(points), job.memory) if complete else "",
            ]
        )
    head = ["job", "sizes", "CPU time at the largest", "exponent", "time"]
    head += ["peak, MiB", "without mapped files", "bytes per unit", "memory"]
    return table(head, rows)


def calculated(results: Mapping[str, Sequence[Point]]) -> str:
    """What the fits give for ten million uses."""
    rows = []
    for name, points in of_group(results, "uses").items():
        last = max(points, key=lambda point: point["size"])
        of_time, of_memory = time_line(points), memory_line(points)
        rows.append(
            [
                name,
                f"{last['size']:,.0f}",
                seconds(last["cpu_seconds"]),
                mebibytes(last["private"]),
                seconds(math.exp(of_time(math.log(CALCULATED)))),
                mebibytes(of_memory(CALCULATED) if memory_verdict(points) == "grows" else last["private"]),
            ]
        )
    head = ["job", "uses, measured", "CPU time", "MiB without mapped files"]
    return table([*head, f"CPU time at {CALCULATED:,}, **calculated**", "MiB at that, **calculated**"], rows)


def of_group(results: Mapping[str, Sequence[Point]], group: str) -> dict[str, Sequence[Point]]:
    """The jobs of a group that have points enough for a line."""
    return {name: results[name] for name in JOBS if JOBS[name].group == group and len(results.get(name, ())) > 1}


def markdown(results: Mapping[str, Sequence[Point]], pictures: Mapping[str, str], machine: str) -> Iterator[str]:
    """All groups, each with its picture."""
    fitted = {name: points for group in GROUPS for name, points in of_group(results, group).items()}
    complete = [name for name, points in fitted.items() if is_complete(name, points)]
    names: dict[str, list[str]] = {}
    for name in complete:
        names.setdefault(against_expected(name, fitted[name]), []).append(name)
    text = f"{len(names.get('as expected', []))} of {len(complete)} jobs grow as expected"
    for degree in ("more", "less"):
        if degree in names:
            text += f"; {degree}: {', '.join(f'`{name}`' for name in names[degree])}"
    left = ", ".join(f"`{name}`" for name in fitted if name not in complete)
    yield f"{text}. No verdict, since larger sizes are not measured yet: {left}." if left else f"{text}."
    for group, title in GROUPS.items():
        if not of_group(results, group):
            continue
        yield f"### {title}"
        if group in pictures:
            yield f"![{title}: time and memory by job]({pictures[group]})"
        yield group_table(results, group)
        if group == "uses":
            yield calculated(results)
    yield f"{machine}; one thread per process."


# --- pictures ---------------------------------------------------------------------------------------------------------


def picture(results: Mapping[str, Sequence[Point]], group: str) -> bytes:
    """Time above memory for each job, all with the same axes of seconds and of bytes."""
    jobs = of_group(results, group)
    n_columns = min(3 if len(jobs) in (5, 6) else COLUMNS, len(jobs))
    n_rows = -(-len(jobs) // n_columns)
    page = FigurePage()
    height = TIME_HEIGHT + BETWEEN + MEMORY_HEIGHT
    page.resize(
        LEFT + n_columns * WIDTH + (n_columns - 1) * ACROSS + RIGHT,
        TOP + n_rows * height + (n_rows - 1) * DOWN + BOTTOM,
    )
    every = [point for points in jobs.values() for point in points]
    of_seconds = limits([each["cpu_seconds"] for each in every])
    of_memory = limits([each[kind] / MEBIBYTE for each in every for kind in ("peak", "private")], least=64, most=1024)
    of_unit = {unit: limits(sizes_with(unit, jobs)) for unit in {JOBS[name].unit for name in jobs}}
    for number, (name, points) in enumerate(jobs.items()):
        row, column = divmod(number, n_columns)
        left, top = LEFT + column * (WIDTH + ACROSS), TOP + row * (height + DOWN)
        page.write(left, top - 0.36, name, size=10, weight="bold")
        note = f"seconds per {JOBS[name].per}: exponent {time_line(points).slope:.2f}"
        page.write(left, top - 0.16, note, size=SMALL, color=FAINT)
        of_sizes = of_unit[JOBS[name].unit]
        axes = page.axes(left, top, WIDTH, TIME_HEIGHT)
        draw_time(axes, points, of_sizes)
        mark(axes, of_sizes, of_seconds, "CPU time" if column == 0 else "", second_label)
        axes.tick_params(labelbottom=False)
        below = page.axes(left, top + TIME_HEIGHT + BETWEEN, WIDTH, MEMORY_HEIGHT)
        draw_memory(below, points)
        mark(below, of_sizes, of_memory, "memory" if column == 0 else "", memory_label, base=4)
        below.set_xlabel(f"{JOBS[name].unit}s", fontsize=SMALL, color=FAINT, labelpad=1)
    return figure_bytes(page.figure, "svg")


def limits(values: Sequence[float], *, least: float = math.inf, most: float = 0.0) -> tuple[float, float]:
    """Of a logarithmic axis, which reaches from `least` to `most` at least."""
    return min(*values, least) / 1.8, max(*values, most) * 1.8


def sizes_with(unit: str, jobs: Mapping[str, Sequence[Point]]) -> list[float]:
    """Sizes of all jobs with the same unit."""
    return [point["size"] for name, points in jobs.items() if JOBS[name].unit == unit for point in points]


def second_label(value: float) -> str:
    return f"{1e6 * value:g} µs" if value < 1e-3 else f"{1e3 * value:g} ms" if value < 1 else f"{value:,g} s"


def memory_label(value: float) -> str:
    return f"{value:g} MiB" if value < 1024 else f"{value / 1024:g} GiB"


def size_label(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def ticks(ends: tuple[float, float], base: int, most: int = 5) -> list[float]:
    """Powers of a base between two ends; every second or third one where these are too many."""
    first, last = math.ceil(math.log(ends[0], base)), math.floor(math.log(ends[1], base))
    powers = [float(base) ** power for power in range(first, last + 1)]
    step = -(-len(powers) // most)
    return powers[::step]


def draw_time(axes: Any, points: Sequence[Point], ends: tuple[float, float]) -> None:
    """Points, those of the fit filled; the fit; and linear growth, a line of slope 1 through the middle of the fit."""
    color, fitted, upper = group_color(0), time_line(points), upper_half(points)
    middle = math.exp(sum(math.log(each["size"]) for each in upper) / len(upper))
    at_middle = math.exp(fitted(math.log(middle)))
    axes.plot(ends, [at_middle * size / middle for size in ends], color=GUIDE, linewidth=1.0, dashes=(4, 3))
    inside = [upper[0]["size"], upper[-1]["size"]]
    axes.plot(inside, [math.exp(fitted(math.log(size))) for size in inside], color=color, linewidth=1.4)
    scatter(axes, points, [each["cpu_seconds"] for each in points], color)


def draw_memory(axes: Any, points: Sequence[Point]) -> None:
    """The peak, and without mapped files; before the call as a thin line."""
    sizes = [each["size"] for each in points]
    axes.plot(sizes, [each["before"] / MEBIBYTE for each in points], color=GUIDE, linewidth=1.0)
    axes.plot(sizes, [each["private"] / MEBIBYTE for each in points], color=CONTRAST, linewidth=1.0, dashes=(2, 1.5))
    axes.plot(sizes, [each["peak"] / MEBIBYTE for each in points], color=CONTRAST, linewidth=1.4)
    scatter(axes, points, [each["peak"] / MEBIBYTE for each in points], CONTRAST)


def scatter(axes: Any, points: Sequence[Point], values: Sequence[float], color: str) -> None:
    used = {each["size"] for each in upper_half(points)}
    for point, value in zip(points, values, strict=True):
        face = color if point["size"] in used else "white"
        axes.plot(point["size"], value, "o", markersize=4, color=color, markerfacecolor=face, markeredgewidth=1.0)


def mark(
    axes: Any,
    sizes: tuple[float, float],
    values: tuple[float, float],
    name: str,
    written: Callable[[float], str],
    base: int = 10,
) -> None:
    """Logarithmic axes with few labels; those of values only where the axis has a name."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*sizes)
    axes.set_ylim(*values)
    places, levels = ticks(sizes, 10 if sizes[0] > 2 else 2, most=4), ticks(values, base)
    axes.set_xticks(places, [size_label(each) for each in places])
    axes.set_yticks(levels, [written(each) if name else "" for each in levels])
    axes.minorticks_off()
    axes.grid(color="#e6ebef", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SMALL, labelcolor=FAINT, length=0, pad=2)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#c3ccd4")
    axes.set_ylabel(name, fontsize=SMALL, color=INK, labelpad=3)


def write_pictures(results: Mapping[str, Sequence[Point]], folder: Path) -> dict[str, str]:
    """One picture per group, and what the page calls each."""
    written = {}
    for group in GROUPS:
        if of_group(results, group):
            path = folder / f"growth_{group}.svg"
            path.write_bytes(picture(results, group))
            written[group] = f"{folder.name}/{path.name}"
    return written

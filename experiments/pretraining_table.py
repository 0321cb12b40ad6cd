"""The table of pretraining for the docs, from the results that `pretraining_rows.py` has written.

python experiments/pretraining_table.py [RESULTS] [--phenomena]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pretraining_rows import RESULTS, ROWS, Row
from tables import table

Result = dict[str, Any]


def blimp(result: Result) -> float | None:
    """In percent: masked models with one piece hidden at a time, as BabyLM has it."""
    found = result.get("blimp", {})
    figures = found.get("piece") or found.get("causal")
    return None if figures is None else 100 * figures["accuracy"]


def glue(result: Result) -> float | None:
    """The mean over the five tasks on dev, in percent."""
    mean = result.get("glue", {}).get("mean")
    return None if mean is None else 100 * mean


FIGURES: dict[str, tuple[Callable[[Result], float | None], str]] = {
    "held_out_loss": (lambda result: result["held_out_loss"], "{:.3f}"),
    "below_unigram": (lambda result: result["below_unigram"], "{:.2f}"),
    "blimp": (blimp, "{:.1f}"),
    "glue": (glue, "{:.1f}"),
    "utilization": (lambda result: result["ledger"]["utilization"], "{:.0%}"),
    "pieces_per_second": (lambda result: result["pieces_per_second"], "{:,.0f}"),
    "seconds": (lambda result: result["ledger"]["total_seconds"], "{:,.0f}"),
    "epochs": (lambda result: result["epochs"], "{:.1f}"),
    "kwh": (lambda result: result["ledger"]["kwh"], "{:.3f}"),
}
HEAD = {
    "held_out_loss": "held-out loss",
    "below_unigram": "nats below unigram",
    "blimp": "BLiMP",
    "glue": "GLUE, five tasks (dev)",
    "pieces_per_second": "pieces/s",
    "seconds": "seconds, all in",
    "kwh": "kWh",
}
AT_MOST = {"held_out_loss"}


def spelled(name: str, results: list[Result]) -> str:
    """A figure of all seeds, in the order of seeds."""
    measure, form = FIGURES[name]
    return ", ".join(form.format(value) for result in results if (value := measure(result)) is not None)


def verdict(goals: dict[str, float], results: list[Result]) -> str:
    """Which goals the mean over seeds reaches."""
    parts = []
    for name, goal in goals.items():
        measure, form = FIGURES[name]
        values = [value for result in results if (value := measure(result)) is not None]
        if not values:
            parts.append(f"{HEAD.get(name, name)} {form.format(goal)}: not measured")
            continue
        mean = sum(values) / len(values)
        reached = mean <= goal if name in AT_MOST else mean >= goal
        parts.append(f"{HEAD.get(name, name)} {form.format(goal)}: {'yes' if reached else 'no'}")
    return "; ".join(parts)


def line(row: Row, results: list[Result]) -> list[str]:
    """A row of the table."""
    first = results[0]
    size = " + ".join(f"{count / 1e6:.1f}M" for count in first["parameters"].values())
    what = f"{row.what}: `{first['request']['recipe']}`, {size}, {first['request']['budget']}"
    return [
        what,
        *(spelled(name, results) for name in FIGURES),
        verdict(row.floors, results),
        verdict(row.aims, results),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("--phenomena", action="store_true", help="also print BLiMP by phenomenon")
    options = parser.parse_args()
    every = [json.loads(file.read_text()) for file in sorted(options.results.glob("*.json"))]
    by_row = {name: [result for result in every if result["row"] == name] for name in ROWS}
    rows = [line(ROWS[name], results) for name, results in by_row.items() if results]
    print(table(["what", *(HEAD.get(name, name) for name in FIGURES), "floor", "aim"], rows))
    devices = sorted({f"{result['ledger']['device']}; {result['machine']}" for result in every})
    print("\n" + "\n".join(devices))
    if options.phenomena:
        scored = [result for result in every if blimp(result) is not None]
        figures = [result["blimp"].get("piece") or result["blimp"]["causal"] for result in scored]
        names = list(dict.fromkeys(name for each in figures for name in each["phenomena"]))
        head = ["phenomenon", *(f"{result['row']}, seed {result['request']['seed']}" for result in scored)]
        print(
            "\n"
            + table(head, [[name, *(f"{100 * each['phenomena'][name]:.1f}" for each in figures)] for name in names])
        )


if __name__ == "__main__":
    main()

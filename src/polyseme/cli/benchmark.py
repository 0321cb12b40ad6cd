"""`polyseme benchmark`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.printing import print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import FinetuneLine, print_table
from polyseme.result_tables import counted
from polyseme.verb_options.task_options import BenchmarkOptions


@command_of(BenchmarkOptions, json=True)
def command(suite: str, as_json: bool, **settings: Any) -> None:
    """Fit a model to each task of SUITE (glue, elmo-six, wic, babylm), and print one table with published figures for
    comparison.

    The table names the split of each figure. Tasks without data are skipped, with a warning. The same command resumes
    interrupted work; if the output is a folder, finished tasks are not repeated.

    \b
    Examples:
      polyseme benchmark glue -m models/mine --data data/tasks --seeds 5 -o glue.html
      polyseme benchmark glue -m models/mine --data data/tasks --tasks rte,mrpc,cola -o glue/
      polyseme benchmark elmo-six -m models/elmo --data data/tasks --seeds 3 -o six.html
      polyseme benchmark babylm -m models/mine --data path/to/evaluation_data -o babylm.html
    """
    with FinetuneLine() as line:

        def begins(task: str) -> None:
            line.task = task

        report = polyseme.benchmark(suite, **settings, on_start=begins, on_report=line.report, progress=line.bar)
    if as_json:
        print_json(report.to_json())
        return
    print_table(report.rows(), header=report.columns)
    for text in report.lines():
        print_text(text)
    results = [result for by_strategy in report.results.values() for result in by_strategy.values()]
    seconds, kwh = sum(each.seconds for each in results), sum(each.kwh for each in results)
    if seconds:
        print_text(f"{counted(len(report.results), 'task')} in {seconds:,.0f} s, {kwh:.3g} kWh", err=True)

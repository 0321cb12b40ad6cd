"""`polyseme glue`."""

from __future__ import annotations

from typing import Any

import click

import polyseme
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import FinetuneLine, print_json, print_table
from polyseme.verb_options.task_options import GlueOptions


@command_of(GlueOptions, json=True)
def command(as_json: bool, **settings: Any) -> None:
    """Fit a model to each of GLUE's nine tasks, and print one table beside ELMo, GPT and BERT.

    Our figures are on dev, the published ones on test, as the table states. With -o, finished tasks are not repeated.

    \b
    Examples:
      polyseme glue -m models/mine --data data/tasks --seeds 5
      polyseme glue -m models/mine --data data/tasks --tasks rte,mrpc,cola -o glue/
    """
    with FinetuneLine() as line:

        def begins(task: str) -> None:
            line.task = task

        report = polyseme.glue(**settings, on_start=begins, on_report=line.report, progress=line.bar)
    if as_json:
        print_json(report.to_json())
        return
    print_table(report.rows(), header=report.columns)
    for text in report.lines():
        click.echo(text)
    seconds = sum(each.ledger.seconds for each in report.reports.values())
    kwh = sum(each.ledger.kwh for each in report.reports.values())
    click.echo(f"{len(report.reports)} tasks in {seconds:,.0f} s, {kwh:.3g} kWh", err=True)

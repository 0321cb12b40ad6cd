"""`polyseme glue`."""

from __future__ import annotations

import json
from typing import Any

import click

import polyseme
from polyseme.cli import finetune_options as tuning
from polyseme.cli import options
from polyseme.cli.plain_text import print_table


@click.command()
@options.model
@click.option("--data", required=True, metavar="FOLDER", help="The folder with the folders of the tasks.")
@click.option(
    "--tasks", callback=options.names, metavar="NAMES", help="Some of the nine, with commas.  [those that are there]"
)
@options.output("A folder for a model a task, glue.json and glue.md.", required=False)
@tuning.settings
@options.device
@options.force
@options.as_json
def command(as_json: bool, **settings: Any) -> None:
    """Fit a model to each of GLUE's nine tasks, and print one table beside ELMo, GPT and BERT.

    Ours are on dev, the published ones on test; the table says so. With -o, what is finished is not done again.

    \b
    Examples:
      polyseme glue -m models/mine --data data/tasks --seeds 5
      polyseme glue -m models/mine --data data/tasks --tasks rte,mrpc,cola -o glue/
    """
    settings["rates"] = options.pairs(settings["rates"], "--rates")
    with tuning.TuningLine() as line:

        def begins(task: str) -> None:
            line.about = task

        report = polyseme.glue(**settings, on_start=begins, on_report=line.report, progress=line.progress)
    if as_json:
        click.echo(json.dumps(report.to_json()))
        return
    print_table(report.rows(), header=report.columns)
    for text in report.lines():
        click.echo(text)
    seconds = sum(each.ledger.seconds for each in report.reports.values())
    kwh = sum(each.ledger.kwh for each in report.reports.values())
    click.echo(f"{len(report.reports)} tasks in {seconds:,.0f} s, {kwh:.3g} kWh", err=True)

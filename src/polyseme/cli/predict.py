"""`polyseme predict`."""

from __future__ import annotations

import json
from typing import Any

import click

import polyseme
from polyseme.cli import options
from polyseme.cli.progress import Bar


@click.command()
@click.argument("sources", metavar="INPUT...", nargs=-1, required=True)
@click.option("-m", "--model", required=True, metavar="MODEL", help="A folder that finetune has written.")
@options.output("Where predictions go: .jsonl, .tsv, .parquet, or .conll for tags.  [shown]", required=False)
@click.option("--second", metavar="NAME", help="The field with the second text, or the question.")
@click.option(
    "--choices", callback=options.names, metavar="NAMES", help="The fields with the choices, or one with lists."
)
@click.option(
    "--marks", metavar="NAME", help="The field with a mark a word: 1 at the predicate whose roles are asked for."
)
@options.reading
@options.device
@click.option("--dtype", default="fp32", show_default=True, metavar="DTYPE", help="What is computed in: fp32, bf16.")
@options.force
def command(sources: tuple[str, ...], **settings: Any) -> None:
    """Judge every text of INPUT... (as for embed) by a model that finetune has fitted to a task.

    Predictions come in the order of the texts, with their probabilities. Stopped? The same command goes on. Fields that
    are not named are those of training; a model that answers questions reads SQuAD's JSON, too.

    \b
    Examples:
      polyseme predict new.txt -m models/ner -o tagged.conll
      polyseme predict reviews.csv --field review -m models/stars -o stars.jsonl
      polyseme predict pairs.tsv --field premise --second hypothesis -m models/rte -o rte.parquet
      polyseme predict sentences.jsonl --marks predicate -m models/roles -o roles.jsonl
    """
    with Bar("loading the model", then="predicting") as bar:
        found = polyseme.predict(sources, **settings, progress=bar)
    for each in found.predictions:
        click.echo(json.dumps(each.record(), ensure_ascii=False, default=str))
    where = f"{settings['output']}: " if settings["output"] is not None else ""
    click.echo(f"{where}{found.cost.line()}", err=True)

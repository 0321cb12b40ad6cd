"""`polyseme score`."""

from __future__ import annotations

import json
import math
import sys
from contextlib import nullcontext
from typing import Any

import click

import polyseme
from polyseme.cli.record_options import as_json, options_of
from polyseme.cli.terminal import Bar, print_table
from polyseme.verb_options import ScoreOptions


@click.command()
@click.argument("sources", metavar="INPUT...", nargs=-1, required=True)
@options_of(ScoreOptions)
@as_json
def command(sources: tuple[str, ...], as_json: bool, **settings: Any) -> None:
    """Score every text of INPUT...: how likely each word is, given the others that the model sees.

    A causal model predicts from left to right, a masked one from both sides, one with a decoder given a source. Scores
    are natural log-probabilities, and surprisals in bits; perplexities per word, piece and byte are reported as well.

    \b
    Examples:
      polyseme score essay.txt -m path/to/gpt2
      polyseme score essay.txt --split document -m path/to/gpt2 -o essay.html
      polyseme score long.txt --split document --stride 256 -m path/to/gpt2 -o scores.parquet
      polyseme score long.txt --split document --neural-cache -m path/to/lstm
      polyseme score reviews.csv --field review --by byte -m path/to/bert -o scores.tsv
      polyseme score essay.txt --order both -m models/elmo
      polyseme score test.de --source test.en -m models/ende -o scores.tsv
    """
    typed = "-" in sources and sys.stdin.isatty()
    if typed:
        click.echo("Type texts, one per line; Ctrl-D ends the input.", err=True)
    with nullcontext() if typed else Bar("loading the model", then="scoring") as bar:
        result = polyseme.score(sources, **settings, progress=bar)
    from polyseme.scoring import score_files

    output, by = settings["output"], settings["by"]
    if as_json:
        texts = [score_files.as_json(each, by, result.how) for each in result.texts]
        click.echo(json.dumps({"how": result.how, "totals": result.totals.to_json(), "texts": texts}, default=str))
    else:
        if output is None:
            header = ("id", by, "log-probability", "surprisal")
            print_table([row for each in result.texts for row in _rows(each, by)], header=header)
            click.echo()
        totals = result.totals.to_json()
        print_table([(name.replace("_", " "), _spelled(value)) for name, value in totals.items()])
    for note in result.notes:
        click.echo(f"note: {note}", err=True)
    prefix = f"{output}: " if output is not None else ""
    click.echo(f"{prefix}scored {result.how}; {result.cost.line()}", err=True)


def _rows(scored: Any, by: Any) -> list[tuple[str, str, str, str]]:
    from polyseme.scoring.score_files import unit_log_probs, units
    from polyseme.scoring.text_scores import surprisal

    what, _ = units(scored, by)
    return [
        (
            scored.id,
            f"0x{unit:02x}" if by == "byte" else _visible(unit),
            "" if math.isnan(log_prob) else f"{log_prob:.4f}",
            "" if math.isnan(log_prob) else f"{surprisal(log_prob):.2f}",
        )
        for unit, log_prob in zip(what, unit_log_probs(scored, by).tolist(), strict=True)
    ]


def _visible(text: str) -> str:
    """Without what would move a terminal's cursor."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _spelled(value: float | int | None) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}"

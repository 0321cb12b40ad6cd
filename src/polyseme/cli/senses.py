"""`polyseme senses`."""

from __future__ import annotations

from typing import Any

import click

import polyseme
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_cost, print_json, print_uses
from polyseme.verb_options import SensesOptions


@command_of(SensesOptions, json=True)
def command(word: str, as_json: bool, **settings: Any) -> None:
    """Group the uses of WORD, whatever its case, by sense: how many there are and why, with examples of each.

    \b
    Examples:
      polyseme senses broke --in sentences.txt -o broke.html
      polyseme senses broke --in sentences.txt --n-senses 3 -o broke.png
      polyseme senses crane --in corpus.txt --map tsne -o crane.svg
    """
    with Bar("loading the model", then="embedding") as bar:
        result = polyseme.senses(word, **settings, progress=bar)
    if as_json:
        print_json(result)
        return
    click.echo(f"{result.word} in {result.source}: {result.headline}. {result.explanation}")
    for sense, examples in enumerate(result.examples, start=1):
        count = len(result.of(sense))
        heading = f"sense {sense}, {count:,} use{'' if count == 1 else 's'}"
        click.echo("\n" + click.style(heading, bold=True))
        print_uses([(result.uses[place].id, result.uses[place]) for place in examples])
    print_cost(result.cost.line(), settings["output"])

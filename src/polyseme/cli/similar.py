"""`polyseme similar`."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click

import polyseme
from polyseme.cli import options
from polyseme.cli.plain_text import print_uses
from polyseme.cli.progress import Bar


@click.command()
@click.argument("text")
@options.source(required=False)
@click.option(
    "--index",
    metavar="FOLDER",
    help="Keep the vectors of the texts here; once it is there, it is asked without --in.",
)
@options.model
@click.option("--top", type=int, default=10, show_default=True, metavar="N", help="How many uses a list.")
@options.layer
@click.option(
    "--against", metavar="LAYER", help="Also find the neighbors at this layer: 0 shows those without context."
)
@options.pool
@click.option(
    "--same-word/--other-words", default=None, help="Only uses of the marked word, or only of others.  [default: both]"
)
@options.reading_alone
@options.output("Keep the result as .json or .html.", required=False)
@options.device
@options.dtype
@options.batch_pieces
@options.force
@options.as_json
def command(text: str, as_json: bool, **settings: Any) -> None:
    """Find the nearest uses of the word that brackets mark in TEXT: of the same word, and of others.

    A bracket that belongs to TEXT is written \\[ or \\]; [MASK] is left alone.

    \b
    Examples:
      polyseme similar "A [crane] caught a fish." --in sentences.txt
      polyseme similar "A [crane] caught a fish." --in sentences.txt --against 0 -o crane.html
      polyseme similar "We [broke] even." --in corpus.txt --index uses
      polyseme similar "Dawn [broke]." --index uses --same-word --top 20
      polyseme similar "Dawn [broke]." --in novel.txt --split sentence
    """
    with Bar("loading the model", then="embedding") as bar:
        found = polyseme.similar(text, **settings, progress=bar)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found)))
        return
    from polyseme.word_senses.result_files import lists_of, notes_of

    for number, each in enumerate(lists_of(found)):
        click.echo("\n" * (number > 0) + click.style(each.heading, bold=True))
        print_uses([(f"{cosine:.3f}", use) for cosine, use in each.uses])
    for note in notes_of(found):
        click.echo(note, err=True)
    click.echo(found.cost.line(), err=True)

"""`polyseme corpus`."""

from __future__ import annotations

from typing import Any

import click

import polyseme
from polyseme.cli import options
from polyseme.cli.progress import Bar


@click.command()
@click.argument("sources", metavar="[TEXTS]...", nargs=-1)
@options.output("The folder of the corpus.")
@options.sides
@click.option(
    "--tokenizer",
    default="wordpiece",
    show_default=True,
    metavar="KIND",
    help="wordpiece, bpe, byte-bpe, unigram, words, blanks, characters: made from the text; or a folder.",
)
@click.option("--vocab-size", type=int, metavar="N", help="Pieces of a tokenizer that is trained.  [default: 30522]")
@click.option("--frame", metavar="FAMILY", help="Whose specials it has: bert, roberta, gpt2 …  [default: by kind]")
@click.option("--lowercase/--no-lowercase", default=None, help="Whether it lower-cases text.  [default: by kind]")
@click.option("--field", metavar="NAME", help="The field or column of TEXTS with the text.")
@click.option(
    "--format", metavar="FORMAT", help="What TEXTS are, where their endings do not say it: text, jsonl, csv …"
)
@click.option(
    "--documents",
    metavar="UNIT",
    help="What a document is in plain text: blank-lines, file or line.  [default: blank-lines]",
)
@click.option(
    "--held-out", default=0.01, show_default=True, metavar="SHARE", help="The documents that are kept for evaluation."
)
@click.option(
    "--sample", default=1 << 25, show_default=True, metavar="BYTES", help="Text that a tokenizer is trained on at most."
)
@click.option("--limit", type=int, metavar="BYTES", help="Text of each source after which no more is read.")
@click.option("--workers", type=int, metavar="N", help="Processes; the result is the same.  [default: the cores]")
@click.option("--seed", default=0, show_default=True, metavar="N", help="What is held out is drawn by it.")
@options.force
@click.option("--again", is_flag=True, help="Be content with a finished corpus of these settings, where there is one.")
def command(sources: tuple[str, ...], output: str, **settings: Any) -> None:
    """Make [TEXTS]... into a corpus: pieces, ready for pretraining, with their tokenizer.

    TEXTS are files, folders or patterns of plain text, JSON Lines, CSV or Parquet, packed (.gz, .xz, .zst, .bz2) or
    not. In plain text a blank line ends a document. NAME=WEIGHT:PATH makes a source of its own, whose rows come WEIGHT
    times in an epoch. Texts in pairs, for translation, are named by --source and --target instead. Stopped? The same
    command goes on.

    \b
    Examples:
      polyseme corpus texts/ -o corpus/ --tokenizer wordpiece --vocab-size 30522
      polyseme corpus pages.jsonl.zst --field text --tokenizer byte-bpe --frame gpt2 -o corpus/
      polyseme corpus --source train.en --target train.de --tokenizer byte-bpe --frame transformer -o pairs/
      polyseme corpus wiki=1:wiki/*.txt.xz books=2.5:books/ --tokenizer models/bert -o corpus/
    """
    with Bar("training the tokenizer", then="building the corpus") as bar:
        settings |= options.named_sides(settings)
        corpus = polyseme.build_corpus(sources or None, output=output, **settings, progress=bar)
    train, held = corpus.counts("train"), corpus.counts("held")
    click.echo(
        f"{output}: {train.documents:,} documents, {train.pieces:,} pieces to train on; {held.documents:,} documents, "
        f"{held.pieces:,} pieces held out; a vocabulary of {corpus.tokenizer.n_pieces:,}",
        err=True,
    )
    if corpus.notes and corpus.notes[0].startswith("The tokenizer was trained"):
        click.echo(corpus.notes[0], err=True)

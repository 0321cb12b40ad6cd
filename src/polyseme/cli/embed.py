"""`polyseme embed`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import click

import polyseme
from polyseme.cli import options
from polyseme.cli.progress import Bar


@click.command()
@click.argument("source", metavar="INPUT")
@options.output("Where the vectors go: .parquet or .npz.")
@options.model
@click.option(
    "--layer",
    default="-1",
    show_default=True,
    metavar="LAYER",
    help="A number (0 is the token layer, -1 the top), all, sum:a:b, mean:a:b, concat:a:b, mix, mix:last3:0.2,0.3,0.5.",
)
@click.option(
    "--pool",
    default="mean",
    show_default=True,
    metavar="POOLING",
    help="How the pieces of a word become one: first, last, mean, max.",
)
@options.device
@click.option(
    "--dtype", default="fp32", show_default=True, metavar="DTYPE", help="What is computed in: fp32, bf16, fp16, fp64."
)
@click.option(
    "--batch-pieces", type=int, metavar="N", help="Pieces that run together.  [default: 2048, on a GPU 65536]"
)
@options.force
def command(source: str, output: str, **settings: Any) -> None:
    """Embed every word of INPUT: plain text, one a line (.gz and .xz too), or - for standard input.

    Every word gets exactly one vector, whatever the length of its text. In Python, polyseme.read_vectors reads OUTPUT;
    so do pyarrow and pandas (.parquet) and numpy (.npz).

    \b
    Examples:
      polyseme embed reviews.txt -o vectors.parquet
      polyseme embed reviews.txt.gz --layer concat:-4:-1 --pool first -m path/to/bert -o vectors.npz
      cat notes.txt | polyseme embed - -o notes.parquet
    """
    typed = source == "-" and sys.stdin.isatty()
    if typed:
        click.echo("Type texts, one a line; Ctrl-D ends them.", err=True)
    with nullcontext() if typed else Bar("loading the model", then="embedding") as bar:
        cost = polyseme.embed(source, output=output, **settings, progress=bar)
    click.echo(f"{output}: {cost.line()}", err=True)

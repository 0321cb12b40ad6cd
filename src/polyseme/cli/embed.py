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
@click.argument("sources", metavar="INPUT...", nargs=-1, required=True)
@options.output("Where the vectors go: .parquet, .npz, .safetensors, .h5, .jsonl; with --shard-rows, a folder.")
@options.model
@click.option(
    "--layer",
    default="-1",
    show_default=True,
    metavar="LAYER",
    help="A number (0 is the token layer, -1 the top), all, sum:a:b, mean:a:b, concat:a:b, mix, mix:last3:0.2,0.3,0.5.",
)
@options.pool
@options.stack
@click.option(
    "--carry-state",
    is_flag=True,
    help="Let a recurrent encoder go on from text to text, as the original ELMo did: 64 texts side by side, each from "
    "where the one 64 before it ended. Work that was stopped then starts anew.",
)
@click.option(
    "--per",
    default="word",
    show_default=True,
    metavar="UNIT",
    help="What gets a vector: every word, or every text (the mean of its words).",
)
@options.reading
@click.option(
    "--store",
    default="fp32",
    show_default=True,
    metavar="DTYPE",
    help="What numbers are in the file: fp32, fp16, bf16 (.safetensors only).",
)
@click.option("--shard-rows", type=int, metavar="N", help="Write a folder of files with N texts each.")
@click.option(
    "--shard-format",
    default="parquet",
    show_default=True,
    metavar="FORMAT",
    help="What these files are: parquet, npz, safetensors, h5, jsonl.",
)
@options.device
@options.dtype
@options.batch_pieces
@click.option(
    "--force", is_flag=True, help="Replace the output if it exists; start anew where unfinished work does not fit."
)
def command(sources: tuple[str, ...], output: str, **settings: Any) -> None:
    """Embed every word of INPUT...: files, folders or patterns, or - for standard input.

    Plain text has a text a line; .jsonl, .csv, .tsv and .parquet have one in a field, .conll and .conllu their own
    words; .gz, .xz, .bz2 and .zst are unpacked. Every word gets exactly one vector, whatever the length of its text.

    Stopped? The same command goes on (but not with standard input, which cannot be read twice). In Python,
    polyseme.read_vectors reads OUTPUT; so do pyarrow, pandas and polars (.parquet), numpy (.npz), safetensors and h5py.

    \b
    Examples:
      polyseme embed reviews.txt -o vectors.parquet
      polyseme embed corpus.conllu --layer mix:last3:0.2,0.3,0.5 -m path/to/bert -o vectors.h5
      polyseme embed reviews.csv --field review --fields stars --per text -o texts.parquet
      polyseme embed huge.jsonl.zst --field text --store fp16 -o vectors/ --shard-rows 1000000
      polyseme embed text.txt -m path/to/elmo --layer mix -o vectors.h5
      cat notes.txt | polyseme embed - -o notes.npz
    """
    typed = "-" in sources and sys.stdin.isatty()
    if typed:
        click.echo("Type texts, one a line; Ctrl-D ends them.", err=True)
    with nullcontext() if typed else Bar("loading the model", then="embedding") as bar:
        cost = polyseme.embed(sources, output=output, **settings, progress=bar)
    click.echo(f"{output}: {cost.line()}", err=True)

"""`polyseme embed`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import bar_over, print_cost
from polyseme.verb_options.word_options import EmbedOptions


@command_of(EmbedOptions)
def command(sources: tuple[str, ...], output: str, **settings: Any) -> None:
    """Embed every word of INPUT...: files, folders or patterns, texts, or - for standard input.

    A plain-text file has one text per line; .jsonl, .csv, .tsv and .parquet have one text per record, in a field;
    .conll and .conllu are already tokenized; .gz, .xz, .bz2 and .zst are decompressed. Every word gets exactly one
    vector, however long its text is.

    Interrupted work is resumed by the same command (except from standard input, which cannot be read twice). In Python,
    polyseme.read_vectors reads OUTPUT; so do pyarrow, pandas and polars (.parquet), numpy (.npz), safetensors and h5py.

    \b
    Examples:
      polyseme embed reviews.txt -o vectors.parquet
      polyseme embed "Dawn broke." "The vase broke." -o broke.jsonl
      polyseme embed corpus.conllu --layer mix:last3:0.2,0.3,0.5 -m path/to/bert -o vectors.h5
      polyseme embed reviews.csv --field review --fields stars --per text -o texts.parquet
      polyseme embed huge.jsonl.zst --field text --store fp16 -o vectors/ --shard-rows 1000000
      polyseme embed text.txt -m path/to/elmo --layer mix -o vectors.h5
      cat notes.txt | polyseme embed - -o notes.npz
    """
    with bar_over(sources, then="embedding") as bar:
        cost = polyseme.embed(sources, output=output, **settings, progress=bar)
    print_cost(cost.line(), output)

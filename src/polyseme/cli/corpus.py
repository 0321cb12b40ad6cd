"""`polyseme corpus`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.printing import print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar
from polyseme.result_tables import counted
from polyseme.verb_options.pretraining_options import CorpusOptions


@command_of(CorpusOptions)
def command(sources: tuple[str, ...], output: str, **settings: Any) -> None:
    """Build a tokenized corpus for pretraining from [TEXTS]..., with its tokenizer.

    TEXTS are files, folders or patterns of plain text, JSON Lines, CSV or Parquet, compressed (.gz, .xz, .zst, .bz2)
    or not. In plain text a blank line ends a document. NAME=WEIGHT:PATH is a weighted source, whose rows occur WEIGHT
    times per epoch. For translation, --source and --target name parallel texts instead. The same command resumes an
    interrupted build.

    \b
    Examples:
      polyseme corpus texts/ -o corpus/ --tokenizer wordpiece --vocab-size 30522
      polyseme corpus pages.jsonl.zst --field text --tokenizer byte-bpe --frame gpt2 -o corpus/
      polyseme corpus --source train.en --target train.de --tokenizer byte-bpe --frame transformer -o pairs/
      polyseme corpus wiki=1:wiki/*.txt.xz books=2.5:books/ --tokenizer models/bert -o corpus/
    """
    with Bar("training the tokenizer", then="building the corpus") as bar:
        corpus = polyseme.build_corpus(sources or None, output=output, **settings, progress=bar)
    train, held = corpus.counts("train"), corpus.counts("held")
    print_text(
        f"{output}: {counted(train.documents, 'document')}, {train.pieces:,} pieces to train on; "
        f"{counted(held.documents, 'document')}, {held.pieces:,} pieces held out; "
        f"a vocabulary of {corpus.tokenizer.n_pieces:,}",
        err=True,
    )
    if corpus.notes and corpus.notes[0].startswith("The tokenizer was trained"):
        print_text(corpus.notes[0], err=True)

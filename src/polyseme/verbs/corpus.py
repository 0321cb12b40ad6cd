"""`corpus`: raw text becomes a corpus of pieces, ready for pretraining."""

from __future__ import annotations

from dataclasses import replace

from polyseme.corpus.build import build
from polyseme.corpus.corpus import Corpus
from polyseme.files.texts_on_disk import on_disk
from polyseme.options import flat
from polyseme.verb_options.pretraining_options import CorpusOptions


@flat(CorpusOptions)
def build_corpus(options: CorpusOptions) -> Corpus:
    """Build a corpus of text: a folder with pieces for training, a tokenizer, and what is known about both.

    An interrupted call is resumed by the same call. The number of workers changes nothing but the time it takes.
    """
    with on_disk(options.sources, options.field) as (sources, field):
        return build(replace(options, sources=sources, field=field))

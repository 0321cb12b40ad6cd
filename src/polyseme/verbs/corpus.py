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
    """Build a corpus: a folder with a tokenizer and the texts as its pieces, ready for training.

    `pretrain` builds one by itself; a corpus of its own serves several runs. An interrupted call is resumed by the same
    call. The result does not depend on the number of workers.
    """
    with on_disk(options.sources, options.field) as (sources, field):
        return build(replace(options, sources=sources, field=field))

"""`senses`: the uses of a word, grouped by sense."""

from __future__ import annotations

from polyseme.api import AnyPath, Dtype, load
from polyseme.files.reading_options import Quotes, ReadingOptions, Split, Words
from polyseme.files.source_paths import Sources
from polyseme.types import Progress
from polyseme.word_senses.result_files import check_senses_output, write_senses
from polyseme.word_senses.sense_groups import Senses, senses_of


def senses(
    word: str,
    *,
    source: Sources,
    output: AnyPath | None = None,
    model: AnyPath | None = None,
    layer: str | int = -1,
    pool: str = "mean",
    n_senses: int | None = None,
    map: str = "pca",
    seed: int = 0,
    field: str | None = None,
    id_field: str | None = None,
    format: str | None = None,
    words: Words = "syntactic",
    split: Split = "line",
    quotes: Quotes = "double",
    delimiter: str | None = None,
    check_text: bool = True,
    device: str = "auto",
    dtype: Dtype = "fp32",
    batch_pieces: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Senses:
    """The uses of a word, whatever its case, in groups: how many senses they have and why, examples, and a map.

    The number of senses is found unless `n_senses` sets it; the result says how, and when there is only one. `map` is
    pca, tsne or umap; `output` keeps the result as .html, .png, .svg or .json. `field` and what follows it say how
    `source` is read, as for `embed`.

        >>> found = polyseme.senses("broke", source="sentences.txt", output="broke.html")     # doctest: +SKIP
        >>> found.n_senses, found.explanation                                                         # doctest: +SKIP
    """
    if output is not None:
        check_senses_output(output, force=force)
    loaded = load(model, device=device, dtype=dtype)
    found = senses_of(
        loaded.bundle,
        word,
        source,
        layer=layer,
        pool=pool,
        n_senses=n_senses,
        map=map,
        seed=seed,
        batch_pieces=batch_pieces,
        precision=loaded.precision,
        reading=ReadingOptions(
            field=field,
            id_field=id_field,
            format=format,
            words=words,
            split=split,
            quotes=quotes,
            delimiter=delimiter,
            check_text=check_text,
        ).changed(),
        progress=progress,
    )
    if output is not None:
        write_senses(found, output, force=force)
    return found

"""What users call to look at the uses of words: `similar` and `senses`.

They stand apart from `api`, since they load what only they need: the index, figures and pages.
"""

from __future__ import annotations

from polyseme.api import AnyPath, Dtype, load
from polyseme.files.asked import Quotes, Split, Words, told
from polyseme.files.found import Sources
from polyseme.types import Progress
from polyseme.vectors.report import check_senses_output, check_similar_output, write_senses, write_similar
from polyseme.vectors.senses import Senses, senses_of
from polyseme.vectors.similar import Similar, similar_uses


def similar(
    text: str,
    *,
    source: Sources | None = None,
    index: AnyPath | None = None,
    model: AnyPath | None = None,
    top: int = 10,
    layer: str | int = -1,
    against: str | int | None = None,
    pool: str = "mean",
    same_word: bool | None = None,
    field: str | None = None,
    id_field: str | None = None,
    format: str | None = None,
    words: Words = "syntactic",
    split: Split = "line",
    quotes: Quotes = "double",
    delimiter: str | None = None,
    check_text: bool = True,
    output: AnyPath | None = None,
    device: str = "auto",
    dtype: Dtype = "fp32",
    batch_pieces: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Similar:
    r"""The nearest uses of the word that brackets mark in a text: of the same word, and of others.

    They are looked for among all words of `source`, as `embed` reads it, or of the `index` that was made of it: a
    folder, which is made if it is not there, and later serves without `source`. A bracket of the text's own is written
    `\[` or `\]`; `[MASK]` is left alone. `same_word` True looks only at uses of the marked word, False only at those
    of other words; `against` names another layer whose neighbours are found as well (0: without context); `output`
    keeps the result as .json or .html. `force` replaces it, and an index that does not fit. `field` and what follows it
    say how `source` is read, as for `embed`.

        >>> found = polyseme.similar("A [crane] caught a fish.", source="sentences.txt")      # doctest: +SKIP
        >>> [(use.text, use.cosine) for use in found.near.same]                               # doctest: +SKIP
    """
    if output is not None:
        check_similar_output(output, force=force)
    loaded = load(model, device=device, dtype=dtype)
    found = similar_uses(
        loaded.bundle,
        text,
        source,
        index=index,
        layer=layer,
        against=against,
        pool=pool,
        top=top,
        same_word=same_word,
        batch_pieces=batch_pieces,
        precision=loaded.precision,
        reading=told(
            field=field,
            id_field=id_field,
            format=format,
            words=words,
            split=split,
            quotes=quotes,
            delimiter=delimiter,
            check_text=check_text,
        ),
        force=force,
        progress=progress,
    )
    if output is not None:
        write_similar(found, output, force=force)
    return found


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
        >>> found.n_senses, found.how                                                         # doctest: +SKIP
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
        reading=told(
            field=field,
            id_field=id_field,
            format=format,
            words=words,
            split=split,
            quotes=quotes,
            delimiter=delimiter,
            check_text=check_text,
        ),
        progress=progress,
    )
    if output is not None:
        write_senses(found, output, force=force)
    return found

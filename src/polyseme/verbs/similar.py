"""`similar`: the nearest uses of a word in context."""

from __future__ import annotations

from polyseme.api import AnyPath, Dtype, load
from polyseme.files.reading_options import Quotes, ReadingOptions, Split, Words
from polyseme.files.source_paths import Sources
from polyseme.types import Progress
from polyseme.word_senses.result_files import check_similar_output, write_similar
from polyseme.word_senses.similar_uses import Similar, similar_uses


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
    of other words; `against` names another layer whose neighbors are found as well (0: without context); `output`
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
        force=force,
        progress=progress,
    )
    if output is not None:
        write_similar(found, output, force=force)
    return found

"""Word vectors as features for scikit-learn: `ContextualVectorizer`, a transformer that takes texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from polyseme.api import Model
from polyseme.embedding.flow import warn_unread
from polyseme.embedding.pooling import warn_wordless
from polyseme.errors import OptionError, nearest
from polyseme.extras import require
from polyseme.files.atomic import AnyPath
from polyseme.files.vector_files import Per
from polyseme.options import doc, flat_method, option, same
from polyseme.sklearn.inputs import MODEL, TextEstimator, Texts, documents, model_of
from polyseme.text.documents import document_chunks
from polyseme.verb_options.model_options import ComputeOptions, Dtype, LayerOptions

if TYPE_CHECKING:
    from polyseme.embedding.flow import Embedder

_base: Any = require("sklearn.base", extra="sklearn")

CHUNK_CHARACTERS = 1 << 18
"""Texts are embedded so many characters at a time: of all that went before, only the features are kept."""


@dataclass(frozen=True, kw_only=True)
class VectorizerOptions(LayerOptions):
    """What `ContextualVectorizer` takes."""

    model: AnyPath | Model | None = field(default=None, kw_only=False, metadata=doc(MODEL, default="the default model"))
    per: Per = option(
        "text",
        'What gets a row: "text", or "word", those of the first text first. '
        'Splitting texts and labels alike (cross-validation) needs "text".',
    )
    text_pool: str | None = option(
        "words",
        'How a text becomes one vector: "words" (the mean of its words), "mean", "first", "last" or "max" of all its '
        'pieces, special ones included, or "model" (as a sentence-transformers model says).',
    )
    device: str = same(ComputeOptions, "device")
    dtype: Dtype = same(ComputeOptions, "dtype")
    batch_pieces: int | None = same(ComputeOptions, "batch_pieces")


class ContextualVectorizer(_base.ClassNamePrefixFeaturesOutMixin, _base.TransformerMixin, TextEstimator):
    """Texts in, vectors of their words in context out; nothing is learned, so that `fit` only checks.

    A text is a string, which is split into words, or a list of words, which are kept as they are; texts come as a list,
    a Series, a one-dimensional array or any other iterable.

    Every layer at once is written `concat:0:-1` here. A text without words gets zeros, which is reported. With
    `per="word"` in a pipeline, `fit(texts, tags)` takes the tags of all words one after another, and `predict(texts)`
    returns them so.

        >>> from sklearn.linear_model import LogisticRegression                              # doctest: +SKIP
        >>> from sklearn.pipeline import make_pipeline                                       # doctest: +SKIP
        >>> make_pipeline(ContextualVectorizer(), LogisticRegression()).fit(texts, labels)   # doctest: +SKIP
    """

    @flat_method(VectorizerOptions)
    def __init__(self, options: VectorizerOptions) -> None:
        """Set the parameters; nothing is checked before `fit`."""
        self.__dict__.update(options.values())

    def fit(self, X: Texts, y: object = None) -> ContextualVectorizer:
        """Check the settings and the texts; nothing is learned from them, and `y` is not looked at."""
        self._embedder()
        for _ in documents(X):
            pass
        return self

    def transform(self, X: Texts) -> NDArray[np.float32]:
        """[texts, D], or [words, D] with `per="word"`."""
        embedder = self._embedder()
        features = [np.zeros((0, *embedder.shape), dtype=np.float32)]
        for chunk in document_chunks(documents(X), CHUNK_CHARACTERS):
            features += [each.vectors for each in embedder(chunk)]
        warn_unread(embedder.tally)
        if embedder.tally.wordless and self.per == "text":
            warn_wordless(embedder.tally.wordless)
        return np.concatenate(features)

    def fit_transform(self, X: Texts, y: object = None) -> NDArray[np.float32]:
        """As `transform`, which checks what `fit` does; texts that can be read only once are."""
        return self.transform(X)

    @property
    def _n_features_out(self) -> int:
        """How many names `get_feature_names_out` makes."""
        return self._embedder().shape[-1]

    def _embedder(self) -> Embedder:
        """What does the work; impossible settings are refused here."""
        if self.per not in get_args(Per):
            raise OptionError(
                f"Features are per text or per word. Got {self.per!r}. {nearest(str(self.per), get_args(Per))}"
            )
        embedder = model_of(self.model, self.device, self.dtype).embedder(
            layer=self.layer,
            pool=self.pool,
            per=self.per,
            text_pool=self.text_pool if self.per == "text" else None,
            batch_pieces=self.batch_pieces,
        )
        if embedder.choice.mode == "all":
            raise OptionError("Layer 'all' gives a word several vectors, and features are one row. Use concat:0:-1.")
        return embedder

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = []
        return tags

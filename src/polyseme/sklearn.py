"""Word vectors as features for scikit-learn: `ContextualVectorizer`, a transformer that takes texts.

Weights are in no estimator. Models that are given by name or path are loaded once in a process and shared by all
estimators in it, so that a search over layers and pools loads one model, and a pickled pipeline is small.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from polyseme.api import AnyPath, Dtype, Model, load
from polyseme.convert.hub import HUB, find_model
from polyseme.errors import InputError, ModelError, OptionError, nearest
from polyseme.extras import require
from polyseme.files.sink import Per
from polyseme.text.given import given_document
from polyseme.types import Document
from polyseme.vectors.job import warn_vanished
from polyseme.vectors.texts import per_text, warn_wordless

if TYPE_CHECKING:
    from polyseme.vectors.flow import Embedder

_base: Any = require("sklearn.base", extra="sklearn")

Texts = Iterable[str] | Iterable[Sequence[str]] | Iterable[Document]

CHUNK_CHARACTERS = 1 << 18
"""Texts are embedded so many characters at a time: of all that went before, only the features are kept."""
KEPT_MODELS = 2
"""How many models stay loaded; of more, those used last."""


class ContextualVectorizer(_base.ClassNamePrefixFeaturesOutMixin, _base.TransformerMixin, _base.BaseEstimator):
    """Texts in, vectors of their words in context out; nothing is learned, so that `fit` only checks.

    A text is a string, which is split into words, or a list of words, which are kept as they are; texts come as a list,
    a Series, a one-dimensional array or any other iterable.

    - `model`: a folder, a name or `hub:owner/name`, as in `polyseme.load`; None is the default model. A loaded `Model`
      is used as it is and shared by clones; an estimator with one cannot be pickled.
    - `layer`, `pool`, `batch_pieces`: as in `Model.embed`. Every layer at once is written `concat:0:-1` here.
    - `per`: "text" gives a row a text, the mean of its words' vectors; a text without words gets zeros, and that is
      said. "word" gives a row a word, those of the first text first: in a pipeline, `fit(texts, tags)` then takes the
      tags of all words one after another, and `predict(texts)` returns them so. What splits texts and labels alike
      (cross-validation) needs as many of one as of the other, and so `per="text"`.
    - `device`, `dtype`: as in `polyseme.load`; a loaded model has its own.

        >>> from sklearn.linear_model import LogisticRegression                              # doctest: +SKIP
        >>> from sklearn.pipeline import make_pipeline                                       # doctest: +SKIP
        >>> make_pipeline(ContextualVectorizer(), LogisticRegression()).fit(texts, labels)   # doctest: +SKIP
    """

    def __init__(
        self,
        model: AnyPath | Model | None = None,
        *,
        layer: str | int = -1,
        pool: str = "mean",
        per: Per = "text",
        device: str = "auto",
        dtype: Dtype = "fp32",
        batch_pieces: int | None = None,
    ) -> None:
        self.model = model
        self.layer = layer
        self.pool = pool
        self.per = per
        self.device = device
        self.dtype = dtype
        self.batch_pieces = batch_pieces

    def fit(self, X: Texts, y: object = None) -> ContextualVectorizer:
        """Check the settings and the texts; nothing is learned from them, and `y` is not looked at."""
        self._embedder()
        for _ in _documents(X):
            pass
        return self

    def transform(self, X: Texts) -> NDArray[np.float32]:
        """[texts, D], or [words, D] with `per="word"`."""
        embedder = self._embedder()
        features = [np.zeros((0, embedder.choice.width(embedder.config)), dtype=np.float32)]
        for documents in _chunks(_documents(X)):
            found = embedder(documents)
            features += [each.vectors for each in (per_text(found) if self.per == "text" else found)]
        if embedder.tally.vanished:
            warn_vanished(embedder.tally.vanished)
        if embedder.tally.wordless and self.per == "text":
            warn_wordless(embedder.tally.wordless)
        return np.concatenate(features)

    def fit_transform(self, X: Texts, y: object = None) -> NDArray[np.float32]:
        """As `transform`, which says what `fit` would; texts that can be had only once are read only once."""
        return self.transform(X)

    @property
    def _n_features_out(self) -> int:
        """How many names `get_feature_names_out` makes."""
        embedder = self._embedder()
        return embedder.choice.width(embedder.config)

    def _embedder(self) -> Embedder:
        """What does the work; settings that cannot be are refused here."""
        if self.per not in get_args(Per):
            raise OptionError(
                f"Features are per text or per word. Got {self.per!r}. {nearest(str(self.per), get_args(Per))}"
            )
        embedder = self._model().embedder(layer=self.layer, pool=self.pool, batch_pieces=self.batch_pieces)
        if embedder.choice.how == "all":
            raise OptionError("Layer 'all' gives a word several vectors, and features are one row. Use concat:0:-1.")
        return embedder

    def _model(self) -> Model:
        if not isinstance(self.model, Model):
            return _shared_model(self.model, self.device, self.dtype)
        if (self.device, self.dtype) != ("auto", "fp32"):
            raise OptionError(
                f"A loaded model has its own device and dtype. Got device {self.device!r} and dtype {self.dtype!r}: "
                "leave them out, or give the model's path."
            )
        return self.model

    def __getstate__(self) -> Any:
        if isinstance(self.model, Model):
            raise ModelError(
                "The estimator holds a loaded model, whose weights are not pickled. Give it the model's path instead"
                f"{f': {self.model.path!r}.' if self.model.path else '; model.save writes one.'}"
            )
        return super().__getstate__()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = []
        return tags


# --- texts ------------------------------------------------------------------------------------------------------------


def _documents(texts: Any) -> Iterator[Document]:
    """The texts with their words, one after another; what only looks like texts is refused."""
    n_dimensions = getattr(texts, "ndim", 1)
    if isinstance(texts, (str, bytes, Document)) or not isinstance(texts, Iterable):
        raise InputError(f"The texts must come as a list or another iterable. Got one {type(texts).__name__} instead.")
    if n_dimensions != 1:
        raise InputError(
            f"The texts must come one after another. Got a {type(texts).__name__} with {n_dimensions} dimensions: "
            "choose one column, as in frame['text']."
        )
    return (given_document(text, position) for position, text in enumerate(texts))


def _chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    taken: list[Document] = []
    size = 0
    for document in documents:
        taken.append(document)
        size += len(document.text)
        if size >= CHUNK_CHARACTERS:
            yield taken
            taken, size = [], 0
    if taken:
        yield taken


# --- models -----------------------------------------------------------------------------------------------------------

_loading = threading.Lock()
_fetched = cache(find_model)


def _shared_model(model: AnyPath | None, device: str, dtype: Dtype) -> Model:
    """The model of a name, as it is on disk now: loaded when it is first wanted, and again when its files change."""
    name = None if model is None else str(model)
    with _loading:
        folder = _fetched(name) if name is not None and name.startswith(HUB) else find_model(name)
        return _loaded(folder.resolve(), _files(folder), device, dtype)


@lru_cache(maxsize=KEPT_MODELS)
def _loaded(folder: Path, files: tuple[object, ...], device: str, dtype: Dtype) -> Model:
    return load(folder, device=device, dtype=dtype)


def _files(folder: Path) -> tuple[object, ...]:
    """Name, size and age of each file of a model; nothing where that cannot be said, which `load` then explains."""
    try:
        found = [(path.name, path.stat()) for path in sorted(folder.iterdir())]
    except OSError:
        return ()
    return tuple((name, about.st_size, about.st_mtime_ns) for name, about in found)

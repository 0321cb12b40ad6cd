"""What estimators take: models, loaded once per process and never pickled; texts, as lists, Series or any iterable."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from polyseme.api import Model, load
from polyseme.convert.hub import HUB, find_model
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.extras import require
from polyseme.files.atomic import AnyPath
from polyseme.text.documents import to_document
from polyseme.types import Document
from polyseme.verb_options.model_options import Dtype

MODEL = (
    "A folder, a name or `hub:owner/name`, as in `polyseme.load`. A loaded `Model` is not changed, and is shared by "
    "clones; an estimator with one cannot be pickled."
)
KEPT_MODELS = 2
"""How many models stay loaded; of more, those used last."""

_base: Any = require("sklearn.base", extra="sklearn")

_loading = threading.Lock()
_fetched = cache(find_model)


def model_of(model: AnyPath | Model | None, device: str, dtype: Dtype) -> Model:
    """The model itself, or the one of this name."""
    if not isinstance(model, Model):
        return shared_model(model, device, dtype)
    if (device, dtype) != ("auto", "auto"):
        raise OptionError(
            f"A loaded model has its own device and dtype. Got device {device!r} and dtype {dtype!r}: leave them out, "
            "or give the model's path."
        )
    return model


def shared_model(model: AnyPath | None, device: str, dtype: Dtype) -> Model:
    """The model of a name, as it is on disk now: loaded when it is first needed, and again when its files change."""
    name = None if model is None else str(model)
    with _loading:
        folder = _fetched(name) if name is not None and name.startswith(HUB) else find_model(name)
        return _load_once(folder.resolve(), _files(folder), device, dtype)


@lru_cache(maxsize=KEPT_MODELS)
def _load_once(folder: Path, files: tuple[object, ...], device: str, dtype: Dtype) -> Model:
    return load(folder, device=device, dtype=dtype)


def _files(folder: Path) -> tuple[object, ...]:
    """Name, size and age of each file of a model; nothing where they cannot be read, which `load` then explains."""
    try:
        files = [(path.name, path.stat()) for path in sorted(folder.iterdir())]
    except OSError:
        return ()
    return tuple((name, status.st_size, status.st_mtime_ns) for name, status in files)


class TextEstimator(_base.BaseEstimator):
    """What all estimators share: their inputs are texts, and a loaded model is not pickled; a name or path is."""

    model: AnyPath | Model | None

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
        return tags


Texts = Iterable[str] | Iterable[Sequence[str]] | Iterable[Document]


class GivenError(InputError, ValueError):
    """Texts or labels that nothing can be learned from: a `ValueError`, too, since scikit-learn promises one."""


def documents(texts: Any) -> Iterator[Document]:
    """The texts with their words, one after another; what only looks like texts is refused."""
    n_dimensions = getattr(texts, "ndim", 1)
    if isinstance(texts, (str, bytes, Document)) or not isinstance(texts, Iterable):
        raise InputError(f"The texts must come as a list or another iterable. Got one {type(texts).__name__} instead.")
    if n_dimensions != 1:
        raise InputError(
            f"The texts must come one after another. Got a {type(texts).__name__} with {n_dimensions} dimensions: "
            "choose one column, as in frame['text']."
        )
    return (to_document(text, position) for position, text in enumerate(texts))

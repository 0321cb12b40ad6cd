"""Which models have no encoder: n-gram models, in a folder or an ARPA file, and mixtures of models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from polyseme.convert.config_file import read_json
from polyseme.errors import InputError, ModelError
from polyseme.files.atomic import AnyPath
from polyseme.files.source import open_source

Kind = Literal["ngram", "arpa", "mixture"]
NGRAM, MIXTURE = "ngram", "mixture"
"""What config.json says of such models."""
NAMES = {"ngram": "an n-gram model", "arpa": "an n-gram model (an ARPA file)", "mixture": "a mixture of models"}

_BEGINS = re.compile(rb"(?:[^\n]*\n){0,40}?\s*\\data\\\s")
_HEAD = 4096


def kind_without_encoder(path: Path) -> Kind | None:
    """The kind of the model in a folder or file, if it has no encoder; a run's folder stands for its model."""
    if path.is_file():
        return "arpa" if is_arpa(path) else None
    for folder in (path, path / "model"):
        if (folder / "config.json").is_file():
            named = read_json(folder / "config.json").get("model_type")
            kinds: dict[object, Kind] = {NGRAM: "ngram", MIXTURE: "mixture"}
            return kinds.get(named) if isinstance(named, str) else None
    return None


def is_arpa(path: Path) -> bool:
    r"""Whether a file, plain or compressed, begins as an ARPA file does; a few lines may precede `\data\`."""
    if not path.is_file():
        return False
    try:
        source = open_source(path)
        try:
            return _BEGINS.match(source.head()[:_HEAD]) is not None
        finally:
            source.close()
    except InputError:
        return False


def no_encoder(kind: Kind, path: AnyPath) -> ModelError:
    """Why a model of such a kind cannot do what takes an encoder."""
    return ModelError(
        f"The model {path} is {NAMES[kind]}: it says how likely texts are and writes on (score, evaluate, generate), "
        "and has no encoder. So it has no vectors of words or texts, fills no masks, and cannot be fine-tuned. Take "
        "another model for that (see: polyseme models)."
    )

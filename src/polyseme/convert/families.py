"""The one list of families, and how one is found in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from polyseme.config import EncoderConfig
from polyseme.convert.config_file import model_type, read_json
from polyseme.convert.family import Family
from polyseme.convert.named_files import named_files
from polyseme.errors import ModelError
from polyseme.extras import LateTable, later


def _family(file: str) -> Family:
    family: Family = later(f"polyseme.convert.{file}").FAMILY
    return family


FAMILIES: Mapping[str, Family] = LateTable(
    {
        "bert": "bert",
        "roberta": "roberta",
        "xlm-roberta": "xlm_roberta",
        "electra": "electra",
        "albert": "albert",
        "distilbert": "distilbert",
        "modernbert": "modernbert",
        "openai-gpt": "gpt",
        "gpt2": "gpt2",
        "causal-transformer": "causal_transformer",
        "transformer": "transformer",
        "transfo-xl": "transformer_xl",
        "xlnet": "xlnet",
        "bart": "bart",
        "t5": "t5",
        "lstm": "lstm",
        "awd-lstm": "awd_lstm",
        "seq2seq": "seq2seq",
        "elmo": "elmo",
        "flair": "flair",
        "nnlm": "nnlm",
        "static": "static",
    },
    _family,
)
"""Name → the file of this folder that holds the family, which is loaded when a model of it is met."""

OF_FILES = ("awd-lstm", "flair", "static")
"""The families whose models may be single files."""
OF_SEVERAL_FILES = ("flair",)
"""Those whose models may be files that are named one by one (`named_files`)."""


def family_for(name: str, config: EncoderConfig) -> Family:
    """The family in whose layout a model is saved: the named one, or the one of our own that holds what it cannot.

    The named one also where neither holds the config; saving it is then refused.
    """
    named = FAMILIES[name]
    own = None if named.beyond is None else FAMILIES[named.beyond]
    return named if own is None or named.holds(config) or not own.holds(config) else own


def is_model_file(path: Path) -> bool:
    """Whether a file is a model by itself, or files that are named one by one are."""
    if files := named_files(path):
        return any(all(map(FAMILIES[name].detect, files)) for name in OF_SEVERAL_FILES)
    return path.is_file() and any(FAMILIES[name].detect(path) for name in OF_FILES)


def family_of(path: Path) -> Family:
    """The family of the model in a folder or file; the one its config.json names, if any, is asked first."""
    if files := named_files(path):
        return next(FAMILIES[name] for name in OF_SEVERAL_FILES if all(map(FAMILIES[name].detect, files)))
    if path.is_file():
        return next(FAMILIES[name] for name in OF_FILES if FAMILIES[name].detect(path))
    config = path / "config.json"
    named = model_type(read_json(config)) if config.is_file() else None
    for name in sorted(FAMILIES, key=lambda name: name != named):
        if FAMILIES[name].detect(path):
            return FAMILIES[name]
    if not config.is_file():
        raise ModelError(
            f"The folder {path} is no model: it has no config.json. A model folder holds config.json, weights "
            "(model.safetensors or pytorch_model.bin) and a tokenizer."
        )
    raise ModelError(
        f"The model in {path} is of type {named!r}, which polyseme does not know. It knows: {', '.join(FAMILIES)}."
    )

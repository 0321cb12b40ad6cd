"""The one list of families, and how one is found in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from polyseme.convert import (
    albert,
    bart,
    bert,
    distilbert,
    electra,
    elmo,
    gpt,
    gpt2,
    lstm,
    roberta,
    t5,
    transformer_xl,
    xlm_roberta,
    xlnet,
)
from polyseme.convert.detect import read_json
from polyseme.convert.family import Family
from polyseme.errors import ModelError

FAMILIES: Mapping[str, Family] = {
    each.FAMILY.name: each.FAMILY
    for each in (
        bert,
        roberta,
        xlm_roberta,
        electra,
        albert,
        distilbert,
        gpt,
        gpt2,
        transformer_xl,
        xlnet,
        bart,
        t5,
        lstm,
        elmo,
    )
}


def family_of(path: Path) -> Family:
    """The family of the model in a folder."""
    for family in FAMILIES.values():
        if family.detect(path):
            return family
    config = path / "config.json"
    if not config.is_file():
        raise ModelError(
            f"The folder {path} is no model: it has no config.json. A model folder holds config.json, weights "
            "(model.safetensors or pytorch_model.bin) and a tokenizer."
        )
    named = read_json(config).get("model_type")
    raise ModelError(
        f"The model in {path} is of type {named!r}, which polyseme does not know. It knows: {', '.join(FAMILIES)}."
    )

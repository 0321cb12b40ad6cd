"""Flair's golden files, and files as Flair itself would have written them: pickles of objects of its classes."""

from __future__ import annotations

import json
import sys
import types
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

GOLDEN = Path(__file__).parent / "golden" / "flair"
HALVES = ("forward", "backward")
WITHIN = 1e-5


@cache
def content(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


@cache
def weights(half: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / f"{half}.safetensors")


@cache
def expected(half: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / f"{half}.expected.safetensors")


def state_of(half: str, **changes: Any) -> dict[str, Any]:
    """What Flair saves of a language model; its dictionary is an object of a class of Flair's."""
    settings = {key: value for key, value in content("config")[half]["config"].items() if key != "vocab"}
    dictionary = sys.modules["flair.data"].Dictionary()
    dictionary.idx2item = [item.encode() for item in content("dictionary")["items"]]
    return {"state_dict": weights(half), "dictionary": dictionary, **settings, **changes}


def flair_classes(patch: pytest.MonkeyPatch) -> None:
    """Modules with the names of Flair's, so that pickles name its classes."""
    for name in ("flair", "flair.data"):
        patch.setitem(sys.modules, name, types.ModuleType(name))
    dictionary = type("Dictionary", (), {"__module__": "flair.data"})
    sys.modules["flair.data"].Dictionary = dictionary  # type: ignore[attr-defined]


def write_files(folder: Path, *, archive: bool = True, **changes: Any) -> Path:
    """A folder with a file for each language model, as Flair writes them, or as it did before files were archives."""
    folder.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        flair_classes(patch)
        for half in HALVES:
            path = folder / f"news-{half}.pt"
            torch.save(state_of(half, **changes), path, pickle_protocol=4, _use_new_zipfile_serialization=archive)
    return folder

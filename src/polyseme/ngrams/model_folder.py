"""An n-gram model and its folder: config.json, model.safetensors, and the tokenizer's files.

| tensor | |
|---|---|
| keys.N | `int64`: the n-grams of order N, from 2 on, sorted (`tables`) |
| log_probs.N | `float64`, natural |
| backoffs.N | `float64`, natural, below the highest order |

They are mapped into memory, not read, and written without a copy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.convert.config_file import read_json, write_json
from polyseme.convert.sentence_transformers import MODEL_CARD
from polyseme.convert.weight_files import read_safetensors
from polyseme.errors import ModelError
from polyseme.files.atomic import AnyPath, whole_folder
from polyseme.ngrams.counting import blocks
from polyseme.ngrams.recognition import NGRAM
from polyseme.ngrams.tables import Ints, NGramTables
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.text.tokenizer_files import load_tokenizer

WEIGHTS = "model.safetensors"
_TYPES = {np.dtype("<i8"): "I64", np.dtype("<f8"): "F64"}


@dataclass(frozen=True)
class NGramModel:
    """The tables of an n-gram model, the tokenizer whose pieces they are of, and where they come from."""

    tables: NGramTables
    tokenizer: PieceTokenizer
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How it was made, as config.json has it: smoothing, discounts."""

    @property
    def lead(self) -> int:
        """What every text begins behind: the piece that begins texts or, where there is none, the one that ends them.

        In the second case, which is usual for whole words, that piece ends texts where it comes next, and begins them
        where it is first in an n-gram: `</s>` and `<s>` of ARPA files.
        """
        return lead_of(self.tokenizer)

    def states_before(self, pieces: Ints, starts: Ints) -> Ints:
        """[N, O - 1]: the state before each piece [N] of texts, one after another, that begin at `starts`."""
        with_leads = np.insert(pieces, starts, self.lead)
        begins = np.zeros(len(with_leads), np.bool_)
        begins[starts + np.arange(len(starts))] = True
        return self.tables.states_of(with_leads, begins)[:-1][~begins[1:]]

    @cached_property
    def fingerprint(self) -> dict[str, str]:
        """What its scores depend on, part by part."""
        digest = hashlib.sha256()
        for name, array in named_arrays(self.tables).items():
            digest.update(f"{name} {len(array)} ".encode())
            for block in blocks(len(array)):
                digest.update(np.ascontiguousarray(array[block]).data)
        return {"tokenizer": self.tokenizer.fingerprint, "tables": digest.hexdigest()}


def lead_of(tokenizer: PieceTokenizer) -> int:
    """The piece that begins texts, or else ends them; a tokenizer without either is refused."""
    specials = tokenizer.specials
    if "start" not in specials and "end" not in specials:
        raise ModelError(
            "An n-gram model needs a tokenizer with a piece that ends or begins texts, and this one has neither. "
            "Choose another kind: words, blanks or byte-bpe."
        )
    return specials["start"] if "start" in specials else specials["end"]


def events_of(tokenizer: PieceTokenizer) -> NDArray[np.bool_]:
    """[V]: the pieces that may come next in a text: all but those that begin texts, pad rows or mask."""
    events = np.ones(tokenizer.n_pieces, np.bool_)
    end = tokenizer.specials.get("end")
    events[[id for role, id in tokenizer.specials.items() if role in ("start", "pad", "mask") and id != end]] = False
    return events


def named_arrays(tables: NGramTables) -> dict[str, NDArray[Any]]:
    """The arrays of a folder by their names."""
    return {
        **{f"keys.{order}": keys for order, keys in enumerate(tables.keys, start=2)},
        **{f"log_probs.{order}": each for order, each in enumerate(tables.log_probs, start=1)},
        **{f"backoffs.{order}": each for order, each in enumerate(tables.backoffs, start=1)},
    }


def save_ngrams(model: NGramModel, path: AnyPath, *, force: bool = False, card: str | None = None) -> None:
    """Write the folder of a model, whole or not at all."""
    tables = model.tables
    config = {
        "model_type": NGRAM,
        "order": tables.order,
        "n_pieces": tables.n_pieces,
        "n_ngrams": list(tables.n_ngrams),
        **model.settings,
        "tokenizer": model.tokenizer.fingerprint,
    }
    with whole_folder(path, force=force) as folder:
        write_json(folder / "config.json", config)
        _write_arrays(folder / WEIGHTS, named_arrays(tables))
        model.tokenizer.save(str(folder))
        if card is not None:
            (folder / MODEL_CARD).write_text(card, encoding="utf-8")


def load_ngrams(folder: Path) -> NGramModel:
    """The model in a folder."""
    config = read_json(folder / "config.json")
    if not (folder / WEIGHTS).is_file():
        raise ModelError(f"The folder {folder} has the config of an n-gram model, but no {WEIGHTS}. Copy it again.")
    arrays = {name: tensor.numpy() for name, tensor in read_safetensors(folder / WEIGHTS).items()}
    order, n_pieces = config.get("order"), config.get("n_pieces")
    known = {"model_type", "order", "n_pieces", "n_ngrams", "tokenizer"}
    try:
        tables = NGramTables(
            int(n_pieces),  # type: ignore[arg-type]
            [arrays.pop(f"keys.{n}") for n in range(2, int(order) + 1)],  # type: ignore[arg-type]
            [arrays.pop(f"log_probs.{n}") for n in range(1, int(order) + 1)],  # type: ignore[arg-type]
            [arrays.pop(f"backoffs.{n}") for n in range(1, int(order))],  # type: ignore[arg-type]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"The tables in {folder} do not match its config.json ({error}). Copy it again.") from None
    tokenizer = load_tokenizer(folder, frame="none")
    fits = list(tables.n_ngrams) == config.get("n_ngrams") and not arrays
    if not fits or len(tables.log_probs[0]) != tables.n_pieces or tokenizer.n_pieces != tables.n_pieces:
        raise ModelError(
            f"The config.json, the tables and the tokenizer in {folder} do not belong together: {tables.n_pieces} "
            f"pieces in the config, {len(tables.log_probs[0])} in the tables, {tokenizer.n_pieces} in the tokenizer. "
            "Copy the folder again."
        )
    return NGramModel(tables, tokenizer, {name: value for name, value in config.items() if name not in known})


def _write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """A file of safetensors, block by block: their library would hold all arrays in memory a second time."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, array in arrays.items():
        kind = _TYPES[array.dtype]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for array in arrays.values():
            for block in blocks(len(array)):
                file.write(np.ascontiguousarray(array[block]).tobytes())

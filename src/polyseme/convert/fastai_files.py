"""fastai's files of a language model: weights as `NAME.pth`, and its words in order (`itos`) as a list beside it.

A pickle is a program, and may run anything when it is read. Ours is read by an unpickler that knows lists and texts
and refuses everything else.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from tokenizers import models
from torch import Tensor

from polyseme.convert.weight_files import read_pickled
from polyseme.corpus.tokenizer_training import KINDS
from polyseme.errors import ModelError
from polyseme.files.atomic import whole_file, write_beside
from polyseme.json_reading import parse_json
from polyseme.text.framing import Frame
from polyseme.text.specials import mark_specials
from polyseme.text.tokenizer import PieceTokenizer

ROLES = {"start": ("xxbos", "<s>"), "end": ("xxeos", "</s>"), "pad": ("xxpad", "<pad>"), "unknown": ("xxunk", "<unk>")}
"""What fastai calls special pieces, and what others do."""
FILLED = "xxfake"
"""fastai's piece for rows that fill a table up to a round number."""
CAPITAL = "xxmaj"
"""fastai's mark before words that were written with a capital: a vocabulary that has it is in lower case."""


def read_fastai(path: Path) -> Mapping[str, Tensor]:
    """The tensors of a `.pth` by name: a state dict, or one beside the state of an optimizer, which is left out.

    In a text classifier the encoder has another name, for it reads a text in parts.
    """
    weights = read_pickled(path, inside="model")
    return {re.sub(r"^0\.module\.", "0.", name): each for name, each in weights.items()}


def words_beside(path: Path) -> Path:
    """Where the words of a model are written."""
    return path.with_name(f"{path.stem}_itos.pkl")


def write_fastai(path: Path, weights: Mapping[str, Tensor], pieces: Sequence[str], n_rows: int, *, force: bool) -> None:
    """`NAME.pth` and `NAME_itos.pkl`, as fastai loads them; rows of the table that have no piece are named as there."""
    words = [*pieces, *[FILLED] * (n_rows - len(pieces))]
    with whole_file(path, force=force) as file:
        torch.save({name: each.detach().cpu() for name, each in weights.items()}, file)
        write_beside(words_beside(path), pickle.dumps(words, protocol=2), force=force)


# --- words ------------------------------------------------------------------------------------------------------------


def vocabulary_beside(path: Path) -> list[str]:
    """The words of a model, from the file beside its weights that holds them."""
    files = [
        file
        for file in sorted(path.parent.iterdir())
        if file.suffix in (".pkl", ".json") and ("itos" in file.stem.lower() or "vocab" in file.stem.lower())
    ]
    own = [file for file in files if path.stem in file.stem or file.stem.removeprefix("itos_") in path.stem]
    chosen = own if len(files) > 1 else files
    if len(chosen) != 1:
        named = f"several: {', '.join(file.name for file in files)}" if files else "none"
        raise ModelError(
            f"The weights {path} need the words that they are of, in one file beside them, and there is {named}. Put "
            f"it there as {path.stem}_itos.json or .pkl: the list of words, in the order of the table."
        )
    return read_itos(chosen[0])


def read_itos(path: Path) -> list[str]:
    """A list of words, from JSON or from a pickle that holds nothing else."""
    content = path.read_bytes()
    try:
        words = _Lists(io.BytesIO(content)).load() if path.suffix == ".pkl" else parse_json(content)
    except ModelError as error:
        raise ModelError(f"The vocabulary {path} is not opened: {error}") from None
    except Exception as error:  # noqa: BLE001 - what a damaged pickle raises is not bounded
        raise ModelError(f"The vocabulary {path} cannot be read ({error}). Get the file again.") from None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ModelError(f"The vocabulary {path} must hold a list of words, in the order of the table.")
    return words


class _Lists(pickle.Unpickler):
    """Reads plain values only; every name that a pickle would look up is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise ModelError(
            f"it would run {module}.{name} when it is read, and a list of words needs none. Save the words as JSON: "
            "json.dump(list(vocab), file)."
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        raise ModelError("it refers to something outside of the file. Save the words as JSON.")


def itos_tokenizer(words: Sequence[str]) -> PieceTokenizer:
    """Whole words and marks by their numbers. In fastai's own vocabularies text is in lower case.

    fastai's marks of capitals and repetitions are read where a text has them; none are put into a text that has not.
    """
    numbers: dict[str, int] = {}
    for number, word in enumerate(words):
        numbers[word if word not in numbers else f"{FILLED}{number}"] = number  # one that is never read
    specials = {
        role: next(name for name in names if name in numbers)
        for role, names in ROLES.items()
        if any(name in numbers for name in names)
    }
    if "unknown" not in specials:
        raise ModelError("The vocabulary has no unknown word (xxunk or <unk>), so that most texts could not be read.")
    frame = Frame(specials=specials)
    backend = KINDS["words"].build(frame, CAPITAL in numbers)
    backend.model = models.WordLevel(numbers, specials["unknown"])
    mark_specials(backend, specials, masks_take_blanks=True)
    return PieceTokenizer(backend, frame)

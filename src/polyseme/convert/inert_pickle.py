"""PyTorch's own files with more than tensors in them, read without running anything of theirs.

A pickle is a program: it names functions and calls them. Here it may call those that put tensors and plain containers
together, and no other. Objects of other classes become records (`Record`) of their attributes: neither their package
nor any code of theirs is loaded. A file that calls anything else is refused.
"""

from __future__ import annotations

import io
import pickle
import warnings
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from torch._utils import _rebuild_parameter, _rebuild_tensor_v2

from polyseme.errors import ModelError

LEGACY = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""What PyTorch's files began with before they were archives, after the number of the protocol: a magic number."""
ARCHIVE = b"PK\x03\x04"


class _Refused(pickle.UnpicklingError):
    """A pickle calls what it may not."""


class _NeverCalled(type):
    """Pickles may make an object of such a class, without calling it, and give it attributes; nothing else."""

    def __call__(cls, *args: Any, **more: Any) -> NoReturn:
        raise _Refused(getattr(cls, "origin", cls.__name__))


class Record(metaclass=_NeverCalled):
    """An object of a class that was not loaded: what it would have been made of, by name."""

    def __new__(cls, *args: Any) -> Record:
        return object.__new__(cls)

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state if isinstance(state, dict) else {"state": state})


def _text_as_bytes(text: str, encoding: str = "latin1") -> bytes:
    """What old pickles call for bytes."""
    return text.encode(encoding)


_CALLED: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "defaultdict"): defaultdict,
    ("builtins", "set"): set,
    ("builtins", "int"): int,
    ("_codecs", "encode"): _text_as_bytes,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch", "device"): str,
}
"""All that a file may call."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        called = _CALLED.get((module, name))
        if called is not None:
            return called
        return _NeverCalled(name, (Record,), {"origin": f"{module}.{name}"})


_PICKLE = SimpleNamespace(
    __name__="polyseme.convert.inert_pickle",
    Unpickler=_Unpickler,
    load=lambda file, **options: _Unpickler(file, **options).load(),
    loads=lambda content, **options: _Unpickler(io.BytesIO(content), **options).load(),
)
"""What PyTorch reads pickles with, in place of the module `pickle`."""


def is_torch_file(path: Path) -> bool:
    """Whether a file begins as PyTorch's do."""
    with path.open("rb") as file:
        begin = file.read(32)
    return begin.startswith(ARCHIVE) or (begin.startswith(b"\x80") and LEGACY in begin)


def read_inertly(path: Path) -> Any:
    """What a file of PyTorch's holds: tensors, plain containers and values, and records of everything else."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if any(Path(name).name == "constants.pkl" for name in archive.namelist()):
                    raise _Refused("a TorchScript program")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", pickle_module=_PICKLE, weights_only=False)
    except _Refused as error:
        raise ModelError(
            f"The file {path} is not opened: it would run {error} when it is read. Only tensors and plain containers "
            "are put together from such a file, and nothing of it is run. Get the weights as safetensors."
        ) from None
    except Exception as error:  # noqa: BLE001 - what a damaged pickle raises is not bounded
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"The file {path} cannot be read ({reason}). It is cut short or damaged, or is no file of PyTorch's; fetch "
            "it again."
        ) from None

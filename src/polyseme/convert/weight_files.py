"""Weights on disk: safetensors, whole or in shards, and PyTorch's own files, which are only read as plain tensors."""

from __future__ import annotations

import json
import os
import pickle
import re
import stat
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from polyseme.convert.config_file import read_json
from polyseme.errors import ModelError

IN_INT8 = "model.int8"
"""What the file of weights is called where some are in int8: not as other libraries expect it, since none reads it."""
LAYOUTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    f"{IN_INT8}.safetensors",
    f"{IN_INT8}.safetensors.index.json",
)
"""What a folder's weights may be called, in order of preference."""


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Every tensor in a model folder by its name, memory-mapped where the format allows."""
    for layout in LAYOUTS:
        path = folder / layout
        if not _is_file(path):
            continue
        if layout.endswith(".index.json"):
            return _read_shards(folder, path)
        return _read_file(path)
    raise ModelError(f"The folder {folder} has a config but no weights. Looked for: {', '.join(LAYOUTS)}.")


def _read_shards(folder: Path, index: Path) -> dict[str, Tensor]:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(shard, str) for shard in places.values()):
        raise ModelError(f"The file {index} has no 'weight_map' that says which shard holds which tensor.")
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(places.values())):
        path = folder / shard
        if shard != path.name:
            raise ModelError(
                f"The file {index} names the shard {shard!r}, which is not the plain name of a file beside it. A model "
                "is read from its own folder only: put the shard there, and its name into the index."
            )
        if not _is_file(path):
            raise ModelError(f"The file {index} names the shard {shard!r}, which is not in the folder.")
        tensors.update(_read_file(path))
    missing = [name for name in places if name not in tensors]
    if missing:
        raise ModelError(f"The file {index} promises {missing[0]!r}, which its shard does not hold.")
    return tensors


def _read_file(path: Path) -> dict[str, Tensor]:
    return read_safetensors(path) if path.suffix == ".safetensors" else read_pickled(path)


def _is_file(path: Path) -> bool:
    """Whether there is a file; a folder or device of the name is refused as that, and so is a place without access."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError as error:
        raise _opening_error(path, error) from None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no ordinary file (a pipe, a socket or a device)"
        raise ModelError(f"{path} should be a file of weights, and is {kind}. Put the weights in its place.")
    return True


def _check_opens(path: Path) -> None:
    """Refuse a file that may not be read; libraries call it missing."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise _opening_error(path, error) from None


def _opening_error(path: Path, error: OSError) -> ModelError:
    return ModelError(
        f"The weights in {path} are there, and cannot be opened: {error.strerror}. Check who may read the file and its "
        "folder."
    )


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of one file by name."""
    _check_opens(path)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from None


def read_pickled(path: Path, *, inside: str | None = None) -> dict[str, Tensor]:
    """PyTorch's own files: archives, or bare pickles as they were before 2020, which cannot be memory-mapped.

    Tensors may also be under the name `inside`, beside other things.
    """
    _check_opens(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        unsafe = re.search(r"\bGLOBAL ([\w.]+)", str(error))
        reason = f"asks for {unsafe[1]}" if unsafe else "is damaged or holds more than plain tensors"
        raise ModelError(
            f"The weights in {path} are not opened: the file {reason}, and such a file can run anything when it is "
            "read. Get the weights as safetensors."
        ) from None
    except Exception as error:  # noqa: BLE001 - what a damaged pickle raises is not bounded
        raise _unreadable(path, error) from None
    if inside is not None and isinstance(loaded, dict) and isinstance(loaded.get(inside), dict):
        loaded = loaded[inside]
    named = isinstance(loaded, dict) and all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in loaded.items()
    )
    if not named:
        raise ModelError(f"The file {path} must hold tensors by their names, and holds something else.")
    for name, tensor in loaded.items():
        refuse_other_tensors(name, tensor, path)
    return dict(loaded)


def refuse_other_tensors(name: str, tensor: Tensor, path: Path) -> None:
    """Refuse a tensor whose numbers are not all in the file as they are: quantized, sparse, repeated or absent ones."""
    plain = tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_meta or tensor.is_nested)
    if plain and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes():
        return
    raise ModelError(
        f"In {path}, {name!r} is no plain tensor: it is quantized, sparse, or without numbers of its own. Get the "
        "weights as they were before, as safetensors."
    )


def refuse_whole_numbers(name: str, tensor: Tensor, where: object) -> None:
    """Refuse a tensor of whole or complex numbers, or of truth values."""
    if not tensor.is_floating_point():
        raise ModelError(
            f"In {where}, {name!r} holds {dtype_name(tensor)}, and weights are floating-point numbers. Get the weights "
            "of the full model."
        )


def dtype_name(tensor: Tensor) -> str:
    """The dtype as messages name it: float32."""
    return str(tensor.dtype).removeprefix("torch.")


def refuse_no_weights(name: str, tensor: Tensor, where: object) -> None:
    """Refuse what no model computes with: NaN and infinities, complex and whole numbers.

    Every number is read once. The sum alone shows that there may be NaN or infinities among them.
    """
    refuse_whole_numbers(name, tensor, where)
    if not bool(torch.isfinite(tensor.sum())) and not bool(torch.isfinite(tensor).all()):
        raise ModelError(
            f"In {where}, {name!r} holds numbers that are none (NaN) or infinite, and no model computes with such "
            "weights. The training that wrote them has failed, the file is damaged, or they are too large for the "
            "dtype they are loaded in: take another copy of the model, or --dtype fp32 (dtype='fp32')."
        )


def _unreadable(path: Path, error: Exception) -> ModelError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ModelError(
        f"The weights in {path} cannot be read ({reason}). The file is cut short or damaged, or is no weights file at "
        "all; fetch it again."
    )


def write_weights(
    folder: Path, tensors: Mapping[str, Tensor], *, shard_size: int | None = None, name: str = "model"
) -> None:
    """Write `model.safetensors`, or shards of at most `shard_size` bytes (a larger tensor is a shard by itself)."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    shards = _shards(plain, shard_size)
    if len(shards) == 1:
        write_safetensors(folder / f"{name}.safetensors", plain)
        return
    places: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        shard = f"{name}-{number:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(folder / shard, {each: plain[each] for each in names})
        places.update(dict.fromkeys(names, shard))
    total = sum(tensor.nbytes for tensor in plain.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    (folder / f"{name}.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def write_safetensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors to one file. The user's umask decides who may read it; `safetensors` would let nobody else."""
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    try:
        save_file(tensors, path, metadata={"format": "pt"})
        path.chmod(mode)
    except SafetensorError as error:
        code = re.search(r"\(os error (\d+)\)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from None


def _shards(tensors: Mapping[str, Tensor], shard_size: int | None) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    size = 0
    for name, tensor in tensors.items():
        if shard_size is not None and shards[-1] and size + tensor.nbytes > shard_size:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += tensor.nbytes
    return shards

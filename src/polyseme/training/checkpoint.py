"""Checkpoints: everything that is needed to resume a run, one folder per step, of which the last few are kept.

| in `checkpoints/step-00001000/` | |
|---|---|
| model.safetensors, or shards and their index | tensors by name: weights, the optimizer's state, memories |
| about.json | the step, what else the run wants to know, a checksum of each file and of this one |

A checkpoint is written beside and renamed, so that under its name it is whole. Should a disk damage one nevertheless,
the checksums show it, and the run resumes from the one before.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from polyseme.convert.weight_files import read_weights, write_weights
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.files.atomic import AnyPath, explained, whole_folder
from polyseme.files.checksums import digest_of, record_checksum
from polyseme.json_reading import load_json
from polyseme.training.device_group import whole
from polyseme.training.optimizers import Optimizer, Several

ABOUT = "about.json"
_NAME = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint as it was written, checked against its checksums."""

    step: int
    """Steps that were taken."""
    record: Mapping[str, Any]
    """What else the run wants to know."""
    tensors: Mapping[str, Tensor]
    """On the CPU, memory-mapped."""
    path: Path


class _DamagedError(Exception):
    """What is wrong with a checkpoint: its file, and words that follow the name."""

    def __str__(self) -> str:
        return " ".join(map(str, self.args))


def write_checkpoint(
    folder: AnyPath,
    step: int,
    tensors: Mapping[str, Tensor],
    record: Mapping[str, Any],
    *,
    keep: int = 2,
    lowest: int | None = None,
    passing: bool = False,
    shard_size: int | None = None,
) -> Path:
    """Write what a run is after `step` steps, whole or not at all; then remove all but it, the last `keep` and that of
    the step `lowest`, whose held-out loss was the lowest so far.

    One that is only `passing`, since the run was stopped there, does not count among the `keep`, and goes when the next
    is written.

    One process of a run writes. What a killed process left unfinished is removed first. A checkpoint of the same
    step that is whole stays as it is, since a step is the same however often it is taken; checkpoints of later steps
    go, since a run only goes back to a step when those could not be read.
    """
    folder = Path(folder)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    clear_up(folder)
    path = folder / f"step-{step:08d}"
    if not _is_whole(path):
        with whole_folder(path, force=True) as new:
            write_weights(new, tensors, shard_size=shard_size)
            sums = {file.name: digest_of(file) for file in sorted(new.iterdir())}
            written = json.loads(
                json.dumps({"format": 1, "step": step, "passing": passing, "about": dict(record), "files": sums})
            )
            written["checksum"] = record_checksum(written)
            (new / ABOUT).write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    steps = _steps(folder)
    last = [each for each in steps if each <= step and not _is_passing(folder, each)][-max(keep, 1) :]
    for each in sorted(set(steps) - {*last, step, lowest}):
        _remove(folder / f"step-{each:08d}")
    return path


def read_latest(folder: AnyPath) -> Checkpoint | None:
    """The last checkpoint that is in order; None where none was ever written.

    One that is cut short or altered is skipped, with a warning.
    """
    folder = Path(folder)
    damaged: list[_DamagedError] = []
    for step in reversed(_steps(folder)):
        try:
            checkpoint = _read(folder / f"step-{step:08d}")
        except _DamagedError as error:
            damaged.append(error)
            continue
        for wrong in damaged:
            warnings.warn(
                f"A checkpoint is left out: {wrong}. The run resumes from the one of step {checkpoint.step:,}.",
                PolysemeWarning,
                stacklevel=2,
            )
        return checkpoint
    if damaged:
        raise ModelError(
            f"No checkpoint in {folder} can be resumed from: {'; '.join(map(str, damaged))}. Put a good copy in its "
            "place, or start the run over."
        )
    return None


def last_step(folder: AnyPath) -> int:
    """The step of the last checkpoint, which may be damaged; 0 where there is none."""
    return max(_steps(Path(folder)), default=0)


def has_checkpoint(folder: AnyPath, step: int) -> bool:
    """Whether there is a checkpoint of a step that is not only passing."""
    return step in _steps(Path(folder)) and not _is_passing(Path(folder), step)


def read_step(folder: AnyPath, step: int) -> Checkpoint:
    """The checkpoint of one step, which must be whole."""
    try:
        return _read(Path(folder) / f"step-{step:08d}")
    except _DamagedError as error:
        raise ModelError(f"A checkpoint of the run cannot be used: {error}. Put a good copy in its place.") from None


def read_regular(folder: AnyPath) -> list[Checkpoint]:
    """The checkpoints that are there but for that of step 0 and passing ones; every one must be whole."""
    folder = Path(folder)
    return [read_step(folder, step) for step in _steps(folder) if step and not _is_passing(folder, step)]


def clear_up(folder: AnyPath) -> None:
    """Remove what a killed process left half written, or half removed."""
    for part in Path(folder).glob(".step-*.part"):
        shutil.rmtree(part, ignore_errors=True)


def _steps(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    names = (_NAME.fullmatch(each.name) for each in folder.iterdir() if each.is_dir())
    return sorted(int(name[1]) for name in names if name)


def _is_passing(folder: Path, step: int) -> bool:
    """Whether a checkpoint says so; one that says nothing is not."""
    try:
        return load_json(folder / f"step-{step:08d}" / ABOUT, kind=dict).get("passing") is True
    except (OSError, ValueError, AttributeError):
        return False


def _is_whole(path: Path) -> bool:
    with contextlib.suppress(_DamagedError):
        return bool(_read_about(path))
    return False


def _read(path: Path) -> Checkpoint:
    written = _read_about(path)
    try:
        tensors = read_weights(path)
    except ModelError as error:
        raise _DamagedError(path, f"cannot be read ({error})") from None
    return Checkpoint(step=written["step"], record=written["about"], tensors=tensors, path=path)


def _read_about(path: Path) -> dict[str, Any]:
    """What `about.json` says, after every checksum in it."""
    file = path / ABOUT
    try:
        written = load_json(file, kind=dict)
        expected = written.pop("checksum")
        sums = dict(written["files"])
    except OSError as error:
        raise _DamagedError(file, f"cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _DamagedError(file, "is cut short or damaged") from None
    if record_checksum(written) != expected:
        raise _DamagedError(file, "has been altered: its checksum is another")
    for name, checksum in sums.items():
        try:
            actual = digest_of(path / name)
        except OSError as error:
            raise _DamagedError(path / name, f"cannot be read ({error.strerror})") from None
        if actual != checksum:
            raise _DamagedError(path / name, "is cut short or has been altered: its checksum is another")
    return dict(written)


def _remove(path: Path) -> None:
    """Take a checkpoint's name away in one stroke, so that a half-removed one is never taken for a damaged one."""
    aside = path.with_name(f".{path.name}.removed.part")
    shutil.rmtree(aside, ignore_errors=True)
    with explained(path):
        path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def named_under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}


# --- an optimizer's state by the names of the parameters --------------------------------------------------------------


def optimizer_tensors(optimizer: Optimizer, names: Mapping[nn.Parameter, str]) -> dict[str, Tensor]:
    """What an optimizer keeps for each parameter, as `NAME/FIELD`; it is not copied, but put together under FSDP.

    By name, not by number, so that another division of the parameters among groups or processes can use it.
    Under FSDP all processes must call this.
    """
    return {
        f"{names[parameter]}/{field}": whole(value).detach()
        for each in _parts(optimizer)
        for group in each.param_groups
        for parameter in group["params"]
        for field, value in each.state.get(parameter, {}).items()
        if value is not None
    }


def put_optimizer_tensors(
    optimizer: Optimizer, names: Mapping[nn.Parameter, str], tensors: Mapping[str, Tensor]
) -> None:
    """Restore the state of an optimizer from what `optimizer_tensors` gave; tensors are copied.

    Parameters for which there is nothing have had no step yet.
    """
    states: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, field = key.rpartition("/")
        states.setdefault(name, {})[field] = tensor
    groups = [(each, group) for each in _parts(optimizer) for group in each.param_groups]
    unknown = sorted(set(states) - {names[parameter] for _, group in groups for parameter in group["params"]})
    if unknown:
        more = f" (and {len(unknown) - 3} more)" if len(unknown) > 3 else ""
        raise ModelError(
            f"The checkpoint keeps an optimizer's state of parameters that are not trained here: "
            f"{', '.join(unknown[:3])}{more}. It is of another model or of another objective."
        )
    for each, group in groups:
        on_device = bool(group.get("fused") or group.get("capturable"))
        for parameter in group["params"]:
            name = names[parameter]
            fields = {
                field: _place(f"{name}/{field}", tensor, parameter, counts_on_device=on_device)
                for field, tensor in states.get(name, {}).items()
            }
            if fields:
                each.state[parameter] = fields
            else:
                each.state.pop(parameter, None)


def _parts(optimizer: Optimizer) -> tuple[torch.optim.Optimizer, ...]:
    return optimizer.optimizers if isinstance(optimizer, Several) else (optimizer,)


def _place(name: str, tensor: Tensor, parameter: nn.Parameter, *, counts_on_device: bool) -> Tensor:
    """A copy of one field of the state where torch wants it: beside its parameter, but for counts of steps."""
    if name.endswith("/step"):
        return tensor.detach().to(parameter.device if counts_on_device else "cpu", copy=True)
    if tensor.shape != parameter.shape:
        raise ModelError(
            f"The checkpoint's {name} is {tuple(tensor.shape)} and should be {tuple(parameter.shape)}. It is of "
            "another model."
        )
    placed = tensor.detach().to(parameter.device, copy=True)
    if isinstance(parameter, DTensor):
        return distribute_tensor(placed, parameter.device_mesh, parameter.placements)
    return placed

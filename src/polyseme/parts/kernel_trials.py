"""Kernels in Triton are tried on the GPU before they are used.

Plain torch is the specification. If kernels cannot be loaded, compiled or started, or if their results differ from
torch's, torch runs instead, and a warning says why, once.
"""

from __future__ import annotations

import functools
import subprocess
import warnings
from collections.abc import Callable, Hashable
from types import ModuleType

import torch

from polyseme.errors import PolysemeWarning
from polyseme.extras import optional

LEAST_CAPABILITY = (8, 0)
LONGEST_REASON = 200
"""Characters of an error that a warning quotes."""


def gpu_capability(device: torch.device) -> tuple[int, int] | None:
    """The compute capability of a GPU; None for any other device."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def load_kernels(subject: str, module: str, device: torch.device) -> ModuleType | None:
    """A module of kernels that this device may run; None on a CPU, and after a warning where a GPU cannot run them.

    `subject` is what runs without them, as the warning names it.
    """
    capability = gpu_capability(device)
    if capability is None:
        return None
    if capability < LEAST_CAPABILITY:
        report_fallback(subject, "this GPU has compute capability {}.{}, and 8.0 is the least".format(*capability))
        return None
    try:
        kernels = optional(module)
    except Exception as error:  # noqa: BLE001 - Triton is there, and is of another version or damaged
        report_fallback(subject, f"Triton cannot be loaded ({one_line(error)})")
        return None
    if kernels is None:
        report_fallback(subject, "Triton is not installed, or cannot be loaded")
    return kernels


def try_kernels(
    subject: str, module: str, device: torch.device, trial: Callable[[ModuleType], float], most: float
) -> ModuleType | None:
    """A module of kernels that passes its `trial` on this device; None where torch runs instead, which is reported.

    The trial returns how far the kernels' results are from torch's, of which `most` is allowed.
    """
    kernels = load_kernels(subject, module, device)
    if kernels is None:
        return None
    failure = trial_failure(functools.partial(trial, kernels), most)
    if failure is not None:
        report_fallback(subject, failure)
        return None
    return kernels


class KernelModule:
    """A module of kernels that is tried once for each device and case, such as a precision or a number of tags."""

    def __init__(self, subject: str, module: str) -> None:
        self.subject = subject
        self.module = module
        self._results: dict[tuple[torch.device, Hashable], ModuleType | None] = {}

    def try_once(
        self, device: torch.device, case: Hashable, trial: Callable[[ModuleType], float], most: float
    ) -> ModuleType | None:
        """`try_kernels`, whose result is kept. Nothing is tried while a CUDA graph is captured: torch runs then."""
        key = (device, case)
        if key not in self._results:
            if gpu_capability(device) is None:
                return None
            if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
                return None
            self._results[key] = try_kernels(self.subject, self.module, device, trial, most)
        return self._results[key]


def trial_failure(trial: Callable[[], float], most: float) -> str | None:
    """Why kernels failed a trial, which returns how far their results are from torch's; None if they passed.

    Whatever is raised counts as a failure. Triton raises errors of every kind where there is no compiler or driver, or
    where its cache is damaged or was written by another version: RuntimeError, KeyError, ImportError and others.
    """
    try:
        worst = trial()
    except subprocess.CalledProcessError as error:  # its text names a temporary file, another one each time
        program = error.cmd if isinstance(error.cmd, str) else error.cmd[0]
        return f"{program} ended with exit code {error.returncode}"
    except Exception as error:  # noqa: BLE001 - reported, and torch runs
        return one_line(error)
    return None if worst <= most else f"on trial, results differed by {worst:.1e}, and {most:.0e} is allowed"


def one_line(error: Exception) -> str:
    """An error in one line, without the stop at its end."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_REASON].rstrip(".: ")


@functools.cache
def report_fallback(subject: str, reason: str) -> None:
    """Warn that `subject` runs without its kernels, once for each reason."""
    warnings.warn(f"{subject} runs without its Triton kernels, more slowly: {reason}.", PolysemeWarning, stacklevel=4)

"""Kernels in Triton are tried on the GPU before they are used.

Plain torch is the specification. If kernels cannot be loaded, compiled or started, or if their results differ from
torch's, torch runs instead, and a warning says why, once.
"""

from __future__ import annotations

import functools
import subprocess
import warnings
from collections.abc import Callable
from types import ModuleType

import torch

from polyseme.errors import PolysemeWarning
from polyseme.extras import optional

LEAST_CAPABILITY = (8, 0)


def load_kernels(module: str, device: torch.device) -> tuple[ModuleType | None, str]:
    """A module of kernels for this GPU; or None, and why there is none."""
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        return None, "this GPU has compute capability {}.{}, and 8.0 is the least".format(*capability)
    kernels = optional(module)
    return kernels, "" if kernels is not None else "Triton is not installed, or cannot be loaded"


def trial_failure(trial: Callable[[], float], most: float) -> str | None:
    """Why kernels failed a trial, which returns how far their results are from torch's; None if they passed."""
    try:
        worst = trial()
    except _failures() as error:
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return None if worst <= most else f"on trial, results differed by {worst:.1e}, and {most:.0e} is allowed"


def _failures() -> tuple[type[Exception], ...]:
    """What is raised where a kernel cannot be compiled or started: no compiler, too little room, a damaged cache."""
    triton = optional("triton")
    own = () if triton is None else (triton.TritonError,)
    return (*own, subprocess.SubprocessError, RuntimeError, OSError, ValueError)


@functools.cache
def report_fallback(subject: str, reason: str) -> None:
    """Warn that `subject` runs without its kernels, once for each reason."""
    warnings.warn(f"{subject} runs without its Triton kernels, more slowly: {reason}.", PolysemeWarning, stacklevel=4)

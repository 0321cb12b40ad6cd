"""The device that a user names."""

from __future__ import annotations

import torch

from polyseme.errors import OptionError, nearest


def find_device(name: str) -> str:
    """The device of this name, if it is there and works; auto is a GPU where there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        there = ["auto", "cpu", *(["cuda", "cuda:0"] if torch.cuda.is_available() else [])]
        raise OptionError(f"There is no device {name!r}. {nearest(name, there)}") from None
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise OptionError(f"The device {name!r} is not there: torch sees {torch.cuda.device_count()} GPUs. Use cpu.")
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise OptionError(f"The device {name!r} cannot be used here. Use cpu.") from None
    return name

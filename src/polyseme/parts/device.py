"""Where work runs: the device that a user names, and how many cores a batch gets on a CPU."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from polyseme.errors import OptionError, nearest

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_AT_ONCE = 8
"""Batches that run side by side; with more cores than that, each gets several."""


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


GPU_SHARE = 4
"""Data are kept in a GPU's memory if they take up at most one part in so many of what is free."""


def fits_on(device: torch.device, n_bytes: int) -> bool:
    """Whether so many bytes may be kept on a device, with room for the work on them; a CPU's memory takes all."""
    return device.type != "cuda" or n_bytes <= torch.cuda.mem_get_info(device)[0] // GPU_SHARE


def even_share(work: int, most: int) -> int:
    """How much of the work goes into a batch, `most` at most, so that threads side by side end together.

    >>> even_share(100, 1000) <= 100
    True
    """
    n_threads = min(torch.get_num_threads(), MOST_AT_ONCE)
    n_batches = n_threads * math.ceil(work / (most * n_threads))
    return math.ceil(work / n_batches)


@contextlib.contextmanager
def side_by_side() -> Iterator[Callable[[Callable[[Item], Result], Iterable[Item]], Iterator[Result]]]:
    """A `map` that divides the cores torch would use among threads of its own."""
    n_cores = torch.get_num_threads()
    n_threads = min(n_cores, MOST_AT_ONCE)
    each = max(n_cores // n_threads, 1)
    try:
        with ThreadPoolExecutor(n_threads, "polyseme", initializer=torch.set_num_threads, initargs=(each,)) as pool:
            yield pool.map
    finally:
        torch.set_num_threads(n_cores)


@contextlib.contextmanager
def cpu_threads(number: int | None) -> Iterator[None]:
    """Within this block torch uses so many threads on a CPU; None: as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_core() -> contextlib.AbstractContextManager[None]:
    """Within this block torch uses one core: for very little work, waking the others takes longer than doing it."""
    return cpu_threads(1)

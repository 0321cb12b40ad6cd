"""How many cores a batch gets on a CPU: all of them, one each for batches side by side, or one for very little work.

A product that is over quickly gains little from being shared among cores: in bf16 the sharing costs as much as the
product. Then each core takes batches of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextlib.contextmanager
def a_core_each() -> Iterator[Callable[[Callable[[Item], Result], Iterable[Item]], Iterator[Result]]]:
    """A `map` that runs on as many threads as torch would use, each with torch to itself on one core."""
    n_cores = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(n_cores, "polyseme-core", initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool.map
    finally:
        torch.set_num_threads(n_cores)


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Within this block torch uses one core: for very little work, waking the others takes longer than doing it."""
    n_cores = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_cores)

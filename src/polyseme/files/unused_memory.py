"""Free memory of the C library, returned to the operating system.

Chunks of many sizes, computed by several threads, leave holes in glibc's heaps, which it reuses but does not return:
over millions of rows a process would hold twice the memory that it uses.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


@functools.cache
def _trim() -> Callable[[int], object]:
    """`malloc_trim` of glibc; a function without effect for other C libraries."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda pad: None


def return_unused_memory() -> None:
    """Return free memory. This takes milliseconds: call it once per chunk, not once per batch."""
    _trim()(0)

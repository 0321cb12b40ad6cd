"""Free memory that the C library keeps, returned to the operating system.

Chunks of many sizes, computed by several threads, leave glibc's heaps full of holes, which it fills again but does not
return: a process over millions of rows would come to hold twice the memory that it uses.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


@functools.cache
def _trim() -> Callable[[int], object]:
    """`malloc_trim` of glibc; nothing where the C library is another one."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda pad: None


def return_unused_memory() -> None:
    """Return what is free. It takes milliseconds, so once per chunk is right and once per batch is not."""
    _trim()(0)

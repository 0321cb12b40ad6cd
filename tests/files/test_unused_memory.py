"""Free memory goes back to the operating system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

HOLES = """
import ctypes
from pathlib import Path

from polyseme.files.unused_memory import return_unused_memory


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
size = 64 << 10
places = [libc.malloc(size) for _ in range(1024)]
for place in places:
    ctypes.memset(place, 1, size)
for place in places[:-1]:  # the last one stays, above all the holes
    libc.free(place)
before = resident()
return_unused_memory()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="The C library is not glibc.")
def test_holes_below_memory_in_use_are_returned() -> None:
    found = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    assert int(found.stdout) > 32 << 20

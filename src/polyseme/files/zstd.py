"""`.zst` files, unpacked by Arrow, which is here anyway; several packed end to end are one."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

import pyarrow as pa

BLOCK = 1 << 18
"""Bytes unpacked at a time."""


def unpacked(packed: BinaryIO) -> io.BufferedReader:
    """The bytes in a Zstandard file. Where they end too soon, or are none, reading raises an OSError."""
    return io.BufferedReader(_Unpacked(packed), BLOCK)


class _Unpacked(io.RawIOBase):
    """What Arrow unpacks, as Python's own streams have it."""

    def __init__(self, packed: BinaryIO) -> None:
        self._stream = pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n_bytes: int = self._stream.readinto(buffer)
        return n_bytes

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()

"""Damage as disks do it."""

from __future__ import annotations

from pathlib import Path


def flip_bit(path: Path, at: float = 0.5) -> None:
    """Turn one bit of a file over, so far from its beginning; its size and its time stay."""
    content = bytearray(path.read_bytes())
    content[int(at * (len(content) - 1))] ^= 4
    path.write_bytes(content)

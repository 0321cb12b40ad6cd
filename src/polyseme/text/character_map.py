"""The table by which SentencePiece replaces characters, as its `.model` files hold it.

The table is a trie over UTF-8 in a double array: the children of a node are found by its offset XOR their byte, and a
leaf holds where its replacement begins among texts that end with NUL. The longest key at a place counts. Such a table
may have 200,000 keys, of which a text needs a few, so it is never unpacked; steps through it are cached.
"""

from __future__ import annotations

import struct
from functools import cached_property

from polyseme.errors import ModelError

_CACHE_SIZE = 200_000
"""Steps in the cache; when it is full it is cleared."""
_ASCII = range(1, 0x80)


class CharacterMap:
    """The replacements of characters; an empty table has none."""

    def __init__(self, table: bytes) -> None:
        size = int.from_bytes(table[:4], "little")
        if table and (not 0 < size < len(table) - 4 or size % 4):
            raise _damaged(f"it should have {size:,} bytes, and has {len(table) - 4:,}")
        self._units = struct.unpack(f"<{size // 4}I", table[4 : 4 + size])
        self._replacements = table[4 + size :]
        self._steps: dict[tuple[int, str], tuple[int, str | None] | None] = {}

    def longest(self, text: str, start: int) -> tuple[str, int] | None:
        """The replacement of the longest key that begins here, and the end of the key; None if no key begins here."""
        steps, node, result = self._steps, self._root, None
        for end in range(start, len(text)):
            key = (node, text[end])
            try:
                step = steps[key]
            except KeyError:
                step = self._step(*key)
            if step is None:
                break
            node, replacement = step
            if replacement is not None:
                result = replacement, end + 1
        return result

    @cached_property
    def changed_ascii(self) -> str:
        """The ASCII characters that are replaced, alone or together with an ASCII character after them."""
        changed = []
        for char in map(chr, _ASCII):
            step = self._step(self._root, char)
            if step is not None and (step[1] not in (None, char) or any(map(self._child, [step[0]] * 127, _ASCII))):
                changed.append(char)
        return "".join(changed)

    @cached_property
    def _root(self) -> int:
        return _offset(self._units[0]) if self._units else 0

    def _step(self, node: int, char: str) -> tuple[int, str | None] | None:
        """The node below one that a character leads to, and the replacement that ends there."""
        if len(self._steps) > _CACHE_SIZE:
            self._steps.clear()
        below: int | None = node
        unit = 0
        for byte in char.encode():
            below = None if below is None else self._child(below, byte)
            if below is not None:
                unit = self._units[below]
                below ^= _offset(unit)
        result = None if below is None else (below, self._replacement(below) if unit >> 8 & 1 else None)
        self._steps[node, char] = result
        return result

    def _child(self, node: int, byte: int) -> int | None:
        """The index of the child of a node; NUL has none."""
        index = node ^ byte
        if index >= len(self._units) or not byte:
            return None
        return index if self._units[index] & 0x8000_00FF == byte else None

    def _replacement(self, node: int) -> str:
        if node >= len(self._units):
            raise _damaged("it ends before its last entry")
        start = self._units[node] & 0x7FFF_FFFF
        end = self._replacements.find(b"\0", start)
        try:
            return self._replacements[start : end if end >= 0 else None].decode()
        except UnicodeDecodeError:
            raise _damaged("some of it is not text in UTF-8") from None


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 0x200) >> 6)


def _damaged(reason: str) -> ModelError:
    return ModelError(f"The SentencePiece model's table of characters is damaged: {reason}. Get the file again.")

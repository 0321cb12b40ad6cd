"""Hostile files: each is a sound one, spoilt in one way by the code that says how."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile.sound import Sound

Spoil = Callable[[Path], object]
"""What changes a copy of a sound thing; it may return another path to read."""


@dataclass(frozen=True)
class Hostile:
    """A thing that must be refused by every one of the commands."""

    name: str
    sound: str
    """What it is a copy of (`Sound.path`)."""
    spoil: Spoil
    commands: tuple[str, ...]
    """Names in `commands.COMMANDS`."""
    may_work: bool = False
    """Whether the damage may be without effect: in what is not used, or where any content is a model."""

    def make(self, sound: Sound, place: Path) -> Path:
        """Make it in a folder that is empty, and return what is to be read."""
        copy = sound.copy(self.sound, place / Path(self.sound).name)
        other = self.spoil(copy)
        return other if isinstance(other, Path) else copy


# --- spoiling ---------------------------------------------------------------------------------------------------------


def write(name: str, content: bytes | str) -> Spoil:
    """Other content for a file of a folder; no name: for the file itself."""
    data = content.encode() if isinstance(content, str) else content
    return lambda place: (place / name if name else place).write_bytes(data)


def edit_json(name: str, change: Callable[[Any], Any]) -> Spoil:
    """A changed JSON file of a folder; the change may be in place, or return other content."""

    def spoil(place: Path) -> None:
        path = place / name if name else place
        content = json.loads(path.read_text(encoding="utf-8"))
        changed = change(content)
        path.write_text(json.dumps(content if changed is None else changed), encoding="utf-8")

    return spoil


def set_json(name: str, *keys: str | int, value: Any) -> Spoil:
    """One entry of a JSON file with another value."""

    def change(content: Any) -> None:
        inner = content
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return edit_json(name, change)


def edit_bytes(name: str, change: Callable[[bytearray], bytes | bytearray]) -> Spoil:
    """Changed bytes of a file."""

    def spoil(place: Path) -> None:
        path = place / name if name else place
        path.write_bytes(change(bytearray(path.read_bytes())))

    return spoil


def cut(share: float) -> Callable[[bytearray], bytearray]:
    """The first bytes of a file."""
    return lambda content: content[: int(len(content) * share)]


def flip(seed: int, count: int = 8) -> Callable[[bytearray], bytearray]:
    """A few bytes changed, at places and to values that follow from the seed."""

    def change(content: bytearray) -> bytearray:
        state = seed * 2654435761 + 1
        for _ in range(count):
            state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            content[(state >> 20) % len(content)] ^= 1 + (state >> 8) % 255
        return content

    return change


def pipe_instead(name: str) -> Spoil:
    """A named pipe that nobody writes to."""

    def spoil(place: Path) -> None:
        (place / name).unlink()
        os.mkfifo(place / name)

    return spoil


def folder_instead(name: str) -> Spoil:
    """A folder of the name."""

    def spoil(place: Path) -> None:
        (place / name).unlink()
        (place / name).mkdir()

    return spoil


DEEP = 100_000
JSON_FAULTS: dict[str, bytes] = {
    "nested lists": b"[" * DEEP + b"]" * DEEP,
    "nested objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "nested, and cut short": b'{"a": ' + b"[" * DEEP,
    "nested 900 deep": b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}",
    "empty": b"",
    "cut short": b'{"a": 1, "b',
    "a list": b"[1, 2]",
    "a text": b'"a"',
    "null": b"null",
    "a number of 5,000 digits": b'{"a": ' + b"1" * 5000 + b"}",
    "NUL": bytes(64),
    "not UTF-8": b'{"a": "\xff\xfe"}',
}
"""What may stand in any file of JSON."""


def json_faults(
    group: str, sound: str, name: str, commands: tuple[str, ...], but: tuple[str, ...] = ()
) -> Iterator[Hostile]:
    """Every fault of JSON in one file, and what else may be in its place; `but`: those that are sound there."""
    for fault, content in JSON_FAULTS.items():
        if fault not in but:
            yield Hostile(f"{group}: {Path(name or sound).name}: {fault}", sound, write(name, content), commands)

"""Optional packages, with the command that installs a missing one; and lazy loading of modules and tables."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Generic, TypeVar

from polyseme.errors import MissingPackageError

Home = TypeVar("Home")
Entry = TypeVar("Entry")

FROZEN_BY_PYTHON = 1000
"""Fewer frozen objects than this are the interpreter's own: Python 3.12 starts with 375, and the smallest program that
calls `gc.freeze` has 4,000."""


def require(package: str, *, extra: str) -> ModuleType:
    """Import an optional `package`, or raise an error that names the extra of polyseme that installs it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        missing = package.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != missing:
            raise
        raise MissingPackageError(
            f"The package {missing!r} is needed here and is not installed. "
            f"Install it with: pip install 'polyseme[{extra}]'"
        ) from None


def optional(module: str) -> ModuleType | None:
    """A module that may be missing, or that is slow to load and seldom needed; None if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def later(module: str) -> Any:
    """A module of polyseme that is loaded when first needed, to keep startup fast.

    The garbage collector is paused meanwhile: loading torch creates some hundred thousand permanent objects, and
    traversing them repeatedly takes a tenth of the time. Freezing and unfreezing moves all of them to the oldest
    generation; what the program has frozen itself stays frozen.
    """
    if module in sys.modules or not gc.isenabled():
        return importlib.import_module(module)
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        if gc.get_freeze_count() < FROZEN_BY_PYTHON:
            gc.freeze()
            gc.unfreeze()
        gc.enable()


class LateTable(Mapping[str, Entry], Generic[Home, Entry]):
    """A table with the location of each entry, which loads an entry on first access.

    Names can be listed and tested without loading anything; iterating over values loads all of them.
    """

    def __init__(self, homes: Mapping[str, Home], load: Callable[[Home], Entry]) -> None:
        self._homes = homes
        self._load = load
        self._loaded: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        if name not in self._loaded:
            self._loaded[name] = self._load(self._homes[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)

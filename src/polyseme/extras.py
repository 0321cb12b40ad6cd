"""Optional packages, asked for by name and missed with the command that installs them; and what is loaded late."""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Generic, TypeVar

from polyseme.errors import MissingPackageError

Home = TypeVar("Home")
Entry = TypeVar("Entry")


def require(package: str, *, extra: str) -> ModuleType:
    """Import an optional `package`, or say which extra of polyseme brings it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        missed = package.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != missed:
            raise
        raise MissingPackageError(
            f"The package {missed!r} is needed here and is not installed. "
            f"Install it with: pip install 'polyseme[{extra}]'"
        ) from None


def optional(module: str) -> ModuleType | None:
    """A module that may not be there, or that only some work needs and takes long to load; None if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def later(module: str) -> Any:
    """A module of ours that is loaded when it is needed, so that nobody waits for what he does not use."""
    if module in sys.modules:
        return importlib.import_module(module)
    with _uncollected():
        return importlib.import_module(module)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Pause the garbage collector while modules are loaded, and count what they made among what lasts.

    Torch makes some hundred thousand objects as it is loaded, all of them to stay; going through them again and again
    takes a tenth of the time. To freeze and unfreeze is to put all objects into the oldest generation, unseen.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()
        gc.enable()


class LateTable(Mapping[str, Entry], Generic[Home, Entry]):
    """A table that names where each entry stands, and loads an entry when it is first asked for.

    Names can be listed and looked for without loading anything; going through the values loads them all.
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

"""Optional packages, asked for by name and missed with the command that installs them; and what is loaded late."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from polyseme.errors import MissingPackageError


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
    """A module of ours that few methods need, loaded when one does, so that the first vector need not wait for it."""
    return importlib.import_module(module)

"""What tests of the command line get from a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Ended(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]
Refuse = Callable[..., str]

"""Rows that cannot be read, where they are to be left out; and texts that are null, where they are read as empty."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

from polyseme.errors import InputError, PolysemeWarning

Value = TypeVar("Value")


class LostInputError(InputError):
    """What cannot be skipped: the rest of the input has gone with it."""


class BadRows:
    """Reports rows that are skipped, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def attempt(self, make: Callable[[], Value]) -> Value | None:
        """What is made of a row; None where it cannot be made."""
        try:
            return make()
        except LostInputError:
            raise
        except InputError as error:
            self.count += 1
            warnings.warn(f"Skipped: {error}", PolysemeWarning, stacklevel=2)
            return None

    def summary(self) -> None:
        """Report how many there were, if any."""
        if self.count:
            rows = "1 row was" if self.count == 1 else f"{self.count:,} rows were"
            warnings.warn(f"{rows} skipped, as reported above.", PolysemeWarning, stacklevel=2)


class NullTexts:
    """Counts texts that are null."""

    def __init__(self) -> None:
        self.count = 0

    def summary(self) -> None:
        """Report how many there were, if any."""
        if self.count:
            texts = "1 text is null and was" if self.count == 1 else f"{self.count:,} texts are null and were"
            warnings.warn(f"{texts} read as empty.", PolysemeWarning, stacklevel=2)

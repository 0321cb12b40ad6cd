"""The exceptions of polyseme, in one tree.

    PolysemeError               anything polyseme refuses; the command line prints it and leaves with code 2
    ├── InputError              what the user gave cannot be read: a file, a text, a list of words
    ├── OutputError             what was asked for cannot be written
    ├── OptionError             an option or argument has a value it cannot have
    ├── ModelError              a model folder, its config, weights or tokenizer is not in order
    └── MissingPackageError     an optional package is not installed

What is unusual but no error (something unknown, repaired or left out) is said once as a `PolysemeWarning`.

Every message is one paragraph: what, where, what was given, what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PolysemeError(Exception):
    """Something polyseme refuses, in words meant for the user."""


class InputError(PolysemeError):
    """A file, text or list of words cannot be read as what it should be."""


class OutputError(PolysemeError):
    """A result cannot be written where, or as, it was asked for."""


class OptionError(PolysemeError):
    """An option or argument has a value it cannot have."""


class ModelError(PolysemeError):
    """A model's folder, config, weights or tokenizer is not in order."""


class MissingPackageError(PolysemeError, ImportError):
    """An optional package is needed and not installed."""


class PolysemeWarning(UserWarning):
    """Something unusual that was dealt with, and is said once."""


def nearest(given: str, known: Iterable[str]) -> str:
    """The sentence that names what `given` was probably meant to be, and everything there is.

    >>> nearest("men", ["first", "mean"])
    "Did you mean 'mean'? There are: first, mean."
    """
    known = list(known)
    close = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    guess = f"Did you mean {close[0]!r}? " if close else ""
    return f"{guess}There are: {', '.join(known)}."

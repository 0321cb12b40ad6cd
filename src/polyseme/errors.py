"""The exceptions of polyseme, in one tree.

    PolysemeError               anything polyseme refuses; the command line prints it and exits with code 2
    ├── InputError              an input cannot be read: a file, a text, a list of words
    ├── OutputError             an output cannot be written
    ├── OptionError             an option or argument has a value it cannot have
    ├── ModelError              a model folder, its config, weights or tokenizer is not in order
    ├── ClusterError            a cluster of machines is not there, or cannot do the work
    └── MissingPackageError     an optional package is not installed

Anything unusual that is no error (unknown, repaired or left out) is reported once as a `PolysemeWarning`.

Every message is one paragraph: what, where, what was given, what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from polyseme.printable import visible


@dataclass(frozen=True)
class Advice:
    """What to do with an option, for users whose verb has it; another sentence, or none, for the others."""

    option: str
    """Its name in Python."""
    sentence: str
    """With `{}` in the place of the option."""
    value: str = "…"
    otherwise: str | Advice = ""

    def text(self, flags: Mapping[str, str] | None) -> str:
        """The sentence for a verb with these options, by name; None: for one that is not known.

        >>> Advice("source", "Name it with {}.").text({"source": "--in"})
        'Name it with --in (source=…).'
        >>> Advice("quotes", "Say so with {}.", "none").text({"source": "--in"})
        ''
        """
        if flags is not None and self.option not in flags:
            return self.otherwise if isinstance(self.otherwise, str) else self.otherwise.text(flags)
        flag = f"--{self.option.replace('_', '-')}" if flags is None else flags[self.option]
        keyword = f"{self.option}={self.value if self.value == '…' or self.value.isdecimal() else repr(self.value)}"
        typed = flag if self.value == "…" else f"{flag} {self.value}"
        return self.sentence.format(f"{typed} ({keyword})" if flag else keyword)


class PolysemeError(Exception):
    """The base of all errors that polyseme raises on purpose: input, options or models that it refuses.

    The message is for the user: what is wrong, where, what was given, and what to do. Control characters of names and
    texts in it are escaped, so that it can be printed. `Advice` on an option is part of the message only if the
    called function has this option: the function adds its options (`flags`) to the errors that it raises.
    """

    flags: Mapping[str, str] | None = None
    """The options of the verb by name, with the flags that the command line has for them."""

    def __init__(self, message: object = "", *advice: Advice) -> None:
        super().__init__(message, *advice)
        self._message = message
        self._advice = advice

    def __str__(self) -> str:
        return visible(" ".join(filter(None, [str(self._message), *(each.text(self.flags) for each in self._advice)])))


class InputError(PolysemeError):
    """A file, text or list of words cannot be read as what it should be."""


class OutputError(PolysemeError):
    """An output cannot be written at the requested path or in the requested format."""


class OptionError(PolysemeError):
    """An option or argument has a value it cannot have."""


class ModelError(PolysemeError):
    """A model's folder, config, weights or tokenizer is not in order."""


class ClusterError(PolysemeError):
    """A cluster of machines is not there, or cannot do the work."""


class MissingPackageError(PolysemeError, ImportError):
    """An optional package is needed and not installed."""


class PolysemeWarning(UserWarning):
    """Something unusual that was handled, reported once; as errors are, it is safe to print."""

    def __str__(self) -> str:
        return visible(super().__str__())


def add_note(error: BaseException, note: str) -> None:
    """Add a sentence that is printed after an error: that something was kept, and where (Python 3.11's `add_note`)."""
    error.__notes__ = [*getattr(error, "__notes__", ()), note]  # type: ignore[attr-defined]


MOST_LISTED = 40
"""Known names that are listed beside a suggestion."""


def nearest(name: object, known: Iterable[str]) -> str:
    """A sentence that names the known name closest to `name`, and all known names unless they are many.

    >>> nearest("men", ["first", "mean"])
    "Did you mean 'mean'? There are: first, mean."
    >>> nearest("n12", [f"n{number}" for number in range(100)])
    "Did you mean 'n12'?"
    """
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    suggestion = f"Did you mean {close[0]!r}? " if close else ""
    if close and len(known) > MOST_LISTED:
        return suggestion.rstrip()
    return f"{suggestion}There are: {', '.join(known)}."

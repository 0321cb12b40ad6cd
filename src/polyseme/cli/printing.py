"""The one place from which the command line prints; a test holds every other file to it.

Text for people (tables, notes, messages, progress) has no character in it that a terminal would obey (`printable`),
wherever it goes. Data (JSON, generated text) goes to a pipe or a file as it is, and is shown like text on a terminal;
JSON has its own escapes for such characters, and means the same with them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from polyseme.printable import visible, visible_json

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


class BoldText(str):
    """A part of a line that is bold on a terminal."""


class Dim(str):
    """A part of a line that is dim on a terminal."""


_STYLES: dict[type, dict[str, bool]] = {BoldText: {"bold": True}, Dim: {"dim": True}}


def print_text(*parts: str, err: bool = False, nl: bool = True) -> None:
    """Print text for people, on standard output or on standard error; its parts follow each other."""
    styled = [(visible(each), _STYLES.get(type(each), {})) for each in parts]
    _echo("".join(click.style(text, **style) if style else text for text, style in styled), err=err, nl=nl)


def print_data(text: str, *, nl: bool = True) -> None:
    """Print data: as it is, unless standard output is a terminal."""
    if sys.stdout.isatty():
        _echo(visible(text), err=False, nl=nl)
    else:
        sys.stdout.write(_encodable(f"{text}{chr(10) * nl}", sys.stdout))  # click would take colors out


def print_json(content: Any, **settings: Any) -> None:
    """Print JSON, records and all."""
    _echo(visible_json(json.dumps(content, default=_as_json, **settings)), err=False, nl=True)


def print_message(text: str) -> None:
    """Print on standard error if anybody listens there."""
    with contextlib.suppress(OSError):
        print_text(text, err=True)


def progress_display(*columns: ProgressColumn) -> Progress:
    """A display of progress on standard error, which goes when the work is done."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True)


def description_column() -> ProgressColumn:
    """What is being done, as it is called: without markup, and without anything that a terminal would obey."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Description(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(visible(task.description))

    return Description()


def _echo(text: str, *, err: bool, nl: bool) -> None:
    """Print what was made safe."""
    click.echo(_encodable(text, sys.stderr if err else sys.stdout), err=err, nl=nl)


def _encodable(text: str, stream: TextIO) -> str:
    """The text with escapes for what the encoding of a stream lacks."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _as_json(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else str(value)

"""A record of options (`polyseme.options`) as options of the command line: names, defaults and help come from it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from polyseme.errors import OptionError
from polyseme.options import Options, doc_of, fields_of

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")

TYPES: Mapping[str, type] = {"int": int, "float": float, "bool": bool}
"""Types that the command line reads, as annotations spell them; everything else is a string."""
FIRST = ("output", "model")
"""Options that every verb lists first."""
SEVERAL = ("files", "several", "pairs")
"""Parsers of options that may be given several times."""


def options_of(record: type[Options]) -> Callable[[Decorated], Decorated]:
    """One option for every field of a record that is neither positional nor a callback."""

    def decorate(command: Decorated) -> Decorated:
        fields = sorted(fields_of(record), key=lambda field: field.name not in FIRST)
        for field in reversed(fields):
            if field.kw_only and not doc_of(field).only_python:
                command = _option(field)(command)
        return command

    return decorate


def _option(field: dataclasses.Field[Any]) -> Callable[[Decorated], Decorated]:
    about = doc_of(field)
    flags = about.flags.split() or [f"--{field.name.replace('_', '-')}"]
    settings: dict[str, Any] = {"help": f"{about.help}{f'  [default: {about.default}]' if about.default else ''}"}
    kind = TYPES.get(str(field.type).removesuffix(" | None"), str)
    if about.parse:
        settings["callback"] = _callback(PARSERS[about.parse], flags[-1])
    if about.parse in SEVERAL:
        settings["multiple"] = True
    elif field.default is dataclasses.MISSING:
        settings["required"] = True
    elif kind is bool:
        settings |= {"default": field.default} | ({} if "/" in flags[-1] else {"is_flag": True})
    elif field.default not in (None, ()):
        spelled = _SPELLED.get(about.parse, {}).get(field.default, field.default)
        settings |= {"default": str(spelled) if kind is str else spelled, "show_default": True}
    if kind is not bool:
        settings |= {"metavar": about.metavar, "type": str if about.parse else kind}
    return click.option(*flags, field.name, **settings)


def _callback(parse: Callable[[Any, str], Any], flag: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    return lambda context, parameter, value: parse(value, flag)


# --- how values are read that are more than a word or a number --------------------------------------------------------


def _names(text: str | None, flag: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def _column(text: str | None, flag: str) -> str | int | None:
    """A name, or a number from 1 on."""
    return int(text) if text is not None and text.isdecimal() else text


def _columns(text: str | None, flag: str) -> tuple[str | int | None, ...] | str | int | None:
    """Names or numbers with commas between them."""
    columns = tuple(_column(name, flag) for name in _names(text, flag))
    return (columns[0] if len(columns) == 1 else columns) if text is not None else None


def _seeds(text: str, flag: str) -> int | list[int]:
    """How many, or which, with commas between them."""
    try:
        numbers = [int(each) for each in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"must be a number of seeds, or seeds with commas between them. Got {text!r}."
        ) from None
    return numbers if "," in text else numbers[0]


def _pairs(texts: tuple[str, ...], flag: str) -> dict[str, Any] | None:
    """NAME=VALUE, where a value that is JSON is read as such, and otherwise as a string."""
    pairs: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise OptionError(f"{flag} wants NAME=VALUE. Got {text!r} instead.")
        try:
            pairs[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            pairs[name.replace("-", "_")] = value
    return pairs or None


def _files(names: tuple[str, ...], flag: str) -> Any:
    """None, one, or several."""
    return names[0] if len(names) == 1 else names or None


_EARLY_STOPPING: Mapping[str, bool | str] = {"off": False, "on": True, "never": "never"}
_SPELLED: Mapping[str, Mapping[Any, str]] = {"early_stopping": {False: "off"}}

PARSERS: Mapping[str, Callable[[Any, str], Any]] = {
    "names": _names,
    "column": _column,
    "columns": _columns,
    "seeds": _seeds,
    "pairs": _pairs,
    "files": _files,
    "several": lambda names, flag: names,
    "early_stopping": lambda text, flag: _EARLY_STOPPING.get(text, text),
}
"""What `OptionDoc.parse` names."""

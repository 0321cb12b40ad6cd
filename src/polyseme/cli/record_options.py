"""A record of options (`polyseme.options`) as a command: arguments, options, defaults and help come from it."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import click

from polyseme.errors import Advice, OptionError, PolysemeError
from polyseme.files.in_memory import file_or_text
from polyseme.files.source_paths import FileName
from polyseme.options import Options, doc_of, fields_of, flags, section_of


class _FileName(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic in click 8.3 only
    """A file, and never a text."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> FileName:
        return FileName(value)


class _FileOrText(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic in click 8.3 only
    """A file, or a text that is typed at the command line."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return file_or_text(value)


FILE_NAME = _FileName()
FILE_OR_TEXT = _FileOrText()
TYPES: Mapping[str, type] = {"int": int, "float": float, "bool": bool}
"""Types that the command line reads, as annotations spell them; everything else is a string."""
FIRST = ("output", "model")
"""Options that every verb lists first."""
SEVERAL = ("files", "several", "pairs", "grid", "rows")
"""Parsers of options that may be given several times."""
OWN = "Options"
"""The section of a verb's own options in its help, which comes first."""
SHARED = ("Reading the input", "Vectors", "Computation")
"""Sections of options that many verbs have, which come last, in this order."""


MEMORY_ADVICE = (
    Advice("batch_pieces", "Take fewer pieces at a time with {}."),
    Advice("micro_batch_size", "Take fewer rows at a time with {}."),
    Advice("batch_size", "Take smaller batches with {}."),
    Advice("device", "Where that of the GPU has run out, compute with {}.", "cpu"),
)
"""What helps against a lack of memory, where a command has the option."""


def command_of(record: type[Options], *, json: bool = False) -> Callable[[Callable[..., int | None]], click.Command]:
    """A command with an argument or option for every field of a record but callbacks, and `--json` on request."""
    return click.command(cls=Command, params=parameters_of(record, json=json))


def parameters_of(record: type[Options], *, json: bool = False) -> list[click.Parameter]:
    """The arguments and options of a record but callbacks, and `--json` on request."""
    fields = sorted(fields_of(record), key=lambda field: field.name not in FIRST)
    parameters = [
        _option(field, section_of(record, field)) if field.kw_only else _argument(field)
        for field in fields
        if not doc_of(field).only_python
    ]
    if json:
        help = "Print JSON instead of a table."
        parameters.append(click.Option(["--json", "as_json"], is_flag=True, help=help))
    return parameters


class SectionOption(click.Option):
    """An option under a heading of its command's help."""

    def __init__(self, *settings: Any, section: str, **more: Any) -> None:
        super().__init__(*settings, **more)
        self.section = section


class Command(click.Command):
    """A command whose help lists its options by section, and whose errors name its own options.

    It refuses an option with one value if it is given twice; click would drop the first in silence.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {OWN: []}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if row is not None:
                sections.setdefault(getattr(parameter, "section", "") or OWN, []).append(row)
        own = [section for section in sections if section not in SHARED]
        for section in (*own, *(each for each in SHARED if each in sections)):
            with formatter.section(section):
                formatter.write_dl(sections[section])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PolysemeError as error:
            error.flags = self._flags()
            raise
        except (MemoryError, RuntimeError) as error:
            if not is_lack_of_memory(error):
                raise
            refusal = PolysemeError("There is not enough memory for this. Use a smaller model.", *MEMORY_ADVICE)
            refusal.flags = self._flags()
            raise refusal from error

    def _flags(self) -> dict[str, str]:
        return {str(each.name): each.opts[-1] if isinstance(each, click.Option) else "" for each in self.params}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        *_, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in order:
            if not isinstance(parameter, click.Option) or parameter.multiple or parameter.is_flag:
                continue
            if order.count(parameter) > 1:
                raise OptionError(
                    f"{parameter.opts[-1]} was given {order.count(parameter)} times, and takes one value. Give it once."
                )
        return super().parse_args(ctx, args)


def is_lack_of_memory(error: BaseException) -> bool:
    """Python's own, or torch's, which is not imported here; or an error that followed from one.

    Where memory runs out while a CUDA graph is captured, the end of the capture raises another error.
    """
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "can't allocate memory" in str(error)
        or (error.__context__ is not None and is_lack_of_memory(error.__context__))
    )


def _argument(field: dataclasses.Field[Any]) -> click.Parameter:
    metavar = doc_of(field).metavar
    n_values = -1 if metavar.endswith("...") else 1
    required = field.default is dataclasses.MISSING
    settings: dict[str, Any] = {}
    if "Sources" in str(field.type):
        settings["type"] = FILE_OR_TEXT if doc_of(field).parse == "files or texts" else FILE_NAME
    if n_values == 1 and not required:
        settings["default"] = field.default
    return click.Argument([field.name], metavar=metavar or None, nargs=n_values, required=required, **settings)


def _option(field: dataclasses.Field[Any], section: str) -> click.Parameter:
    doc = doc_of(field)
    names = flags(field)
    settings: dict[str, Any] = {"help": f"{doc.help}{f'  [default: {doc.default}]' if doc.default else ''}"}
    kind = TYPES.get(str(field.type).removesuffix(" | None"), str)
    if doc.parse:
        settings["callback"] = _callback(PARSERS[doc.parse], names[-1])
    if doc.parse in SEVERAL:
        settings |= {"multiple": True, "required": field.default is dataclasses.MISSING}
    elif field.default is dataclasses.MISSING:
        settings["required"] = True
    elif kind is bool:
        settings |= {"default": field.default} | ({} if "/" in names[-1] else {"is_flag": True})
    elif field.default not in (None, ()):
        spelled = _SPELLED.get(doc.parse, {}).get(field.default, field.default)
        settings |= {"default": str(spelled) if kind is str else spelled, "show_default": True}
    if kind is not bool:
        settings |= {"metavar": doc.metavar, "type": str if doc.parse else kind}
    if "Sources" in str(field.type):
        settings["type"] = FILE_NAME
    return SectionOption([*names, field.name], section="" if field.name in FIRST else section, **settings)


def _callback(parse: Callable[[Any, str], Any], flag: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    return lambda context, parameter, value: parse(value, flag)


# --- how values are read that are more than a word or a number --------------------------------------------------------


def _names(text: str | None, flag: str) -> tuple[str, ...]:
    """Names with commas between them."""
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if text is not None and not names:
        raise OptionError(f"{flag} wants one or more names, with commas between them. Got {text!r} instead.")
    return names


def _numbers(text: str | None, flag: str) -> tuple[float, ...] | None:
    """Numbers with commas between them."""
    try:
        return None if text is None else tuple(map(float, text.split(",")))
    except ValueError:
        raise OptionError(f"{flag} wants numbers with commas between them. Got {text!r} instead.") from None


def _whole_numbers(text: str | None, flag: str) -> tuple[int, ...] | None:
    """Whole numbers with commas between them."""
    try:
        return None if text is None else tuple(map(int, text.split(",")))
    except ValueError:
        raise OptionError(f"{flag} wants whole numbers with commas between them. Got {text!r} instead.") from None


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
        pairs[name.replace("-", "_")] = _value(value)
    return pairs or None


def _values(text: str) -> list[Any]:
    """Values with commas between them, or a list of JSON; one that is JSON is read as such, others are strings.

    >>> _values("0.05,0.15"), _values("adamw,muon"), _values('["glove.txt,char-cnn", null]'), _values("[2,2],[3,3]")
    ([0.05, 0.15], ['adamw', 'muon'], ['glove.txt,char-cnn', None], [[2, 2], [3, 3]])
    """
    for spelling in (text, f"[{text}]"):
        try:
            values = json.loads(spelling)
        except ValueError:
            continue
        if isinstance(values, list):
            return values
    return [_value(each.strip()) for each in text.split(",") if each.strip()]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _grid(texts: tuple[str, ...], flag: str) -> dict[str, list[Any]] | None:
    """NAME=VALUES, each name once."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not name or not equals:
            raise OptionError(f"{flag} wants NAME=VALUE,VALUE. Got {text!r} instead.")
        if name in grid:
            raise OptionError(f"{flag} has {name!r} twice. Give all of its values at once: {name}=VALUE,VALUE.")
        grid[name] = _values(values)
    return grid or None


def _rows(texts: tuple[str, ...], flag: str) -> dict[str, dict[str, Any]] | None:
    """NAME: SETTING=VALUE SETTING=VALUE."""
    rows: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, colon, settings = text.partition(":")
        name = name.strip()
        if not name or not colon:
            raise OptionError(f"{flag} wants 'NAME: SETTING=VALUE …'. Got {text!r} instead.")
        if name in rows:
            raise OptionError(f"{flag} has two rows {name!r}. Give each its own name.")
        rows[name] = _pairs(tuple(shlex.split(settings)), flag) or {}
    return rows or None


def _files(names: tuple[str, ...], flag: str) -> Any:
    """None, one, or several."""
    return names[0] if len(names) == 1 else names or None


_EARLY_STOPPING: Mapping[str, bool | str] = {"off": False, "on": True, "never": "never"}
_SPELLED: Mapping[str, Mapping[Any, str]] = {"early_stopping": {False: "off"}}

PARSERS: Mapping[str, Callable[[Any, str], Any]] = {
    "names": _names,
    "numbers": _numbers,
    "whole numbers": _whole_numbers,
    "column": _column,
    "columns": _columns,
    "seeds": _seeds,
    "pairs": _pairs,
    "grid": _grid,
    "rows": _rows,
    "files": _files,
    "several": lambda names, flag: names,
    "early_stopping": lambda text, flag: _EARLY_STOPPING.get(text, text),
}
"""What `OptionDoc.parse` names."""

"""Options, written once.

A verb's options are a record: a frozen dataclass whose fields carry a default and a line of documentation. From it come
the flat signature that callers see and type checkers check (`flat`), the documentation of the arguments, the options of
the command line (`cli.record_options`) and the parameters of the estimators. Records that several verbs share are bases
of theirs. This module and every module with records are light: `polyseme VERB --help` loads neither torch nor numpy.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import numbers
import os
import reprlib
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from polyseme.config import Config
from polyseme.errors import InputError, OptionError, PolysemeError, nearest

P = ParamSpec("P")
Value = TypeVar("Value")
Owner = TypeVar("Owner")
Record = TypeVar("Record")
Result = TypeVar("Result")

LARGEST_SEED = 2**32 - 1
"""The largest that every generator of random numbers takes."""
_DOC = "option"
_WIDTH = 120


@dataclass(frozen=True, kw_only=True)
class OptionDoc:
    """What is known of an option besides its name, type and default."""

    help: str
    """A text that stands alone, without its default."""
    metavar: str = ""
    """What the command line calls its value."""
    default: str = ""
    """In words, the value that None, or an empty sequence, stands for: "the recipe's"."""
    flags: str = ""
    """Its flags on the command line, as click writes them; empty: `--name`."""
    parse: str = ""
    """Its parser on the command line, a name in `cli.record_options.PARSERS`; empty: by its type."""
    only_python: bool = False
    """Whether the command line has no such option: callbacks."""


def check_seed(seed: object) -> None:
    """Refuse a number that no generator of random numbers takes."""
    if isinstance(seed, int) and not 0 <= seed <= LARGEST_SEED:
        raise OptionError(f"A seed is a whole number from 0 to {LARGEST_SEED}. Got {seed} instead.")


class Options(Config):
    """A record of options. Subclasses check their values in `__post_init__`, and call that of their bases."""

    section: ClassVar[str] = ""
    """The heading under which `--help` lists the options that a record brings itself; not inherited. Empty: with those
    of the verb."""

    def __post_init__(self) -> None:
        """Check the seed, where there is one."""
        check_seed(getattr(self, "seed", None))

    def values(self, of: type[Options] | None = None) -> dict[str, Any]:
        """The options by name: all of them, or those that the base `of` brings."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(of or self)}

    def changed(self, of: type[Options] | None = None) -> dict[str, Any]:
        """Those options that differ from their defaults, by name."""
        defaults = {each.name: each.default for each in dataclasses.fields(of or self)}
        return {name: value for name, value in self.values(of).items() if not _is_default(value, defaults[name])}


def _is_default(value: Any, default: Any) -> bool:
    """Whether a value is the default, also where it may be a number or a name: the command line has both as strings.

    >>> _is_default(-1, -1), _is_default("-1", -1), _is_default("None", None)
    (True, True, False)
    """
    spelled = isinstance(value, str) and isinstance(default, int)
    return bool(value == (str(default) if spelled else default))


def option(value: Value, help: str, metavar: str = "", **settings: str) -> Value:
    """A field of a record: its default value, and what is known of it (`OptionDoc`)."""
    return dataclasses.field(default=value, metadata=doc(help, metavar, **settings))


def output_option(help: str, *, default: str = "printed only") -> Any:
    """A field of a record for a file or folder that is written on request."""
    return option(None, help, "OUTPUT", default=default, flags="-o --output")


def column_option(help: str, *, default: str = "by the task") -> Any:
    """A field of a record for a column: a name, or a number counted from 1."""
    return option(None, help, "COLUMN", default=default, parse="column")


def callback(help: str) -> Any:
    """A field of a record for a function that is called as the work goes on."""
    metadata = {_DOC: OptionDoc(help=help, only_python=True)}
    return dataclasses.field(default=None, repr=False, compare=False, metadata=metadata)


def doc(help: str, metavar: str = "", **settings: str) -> Mapping[str, OptionDoc]:
    """The metadata of a field that is written with `dataclasses.field`: one without a default, or a positional one."""
    return {_DOC: OptionDoc(help=help, metavar=metavar, **settings)}  # type: ignore[arg-type]


def same(record: Any, name: str) -> Any:
    """A field with the default and the documentation of another record's."""
    field = {each.name: each for each in dataclasses.fields(record)}[name]
    return dataclasses.field(default=field.default, metadata=field.metadata)


def doc_of(field: dataclasses.Field[Any]) -> OptionDoc:
    """What is known of a field of a record."""
    return field.metadata[_DOC]  # type: ignore[no-any-return]


def flags_of(record: Any) -> dict[str, str]:
    """The options of a record by name, with the long flag that the command line has for each; "" where it has none."""
    return {
        each.name: flags(each)[-1] if each.kw_only and not doc_of(each).only_python else ""
        for each in fields_of(record)
    }


def flags(field: dataclasses.Field[Any]) -> list[str]:
    """The flags of an option on the command line, the long one last."""
    return doc_of(field).flags.split() or [f"--{field.name.replace('_', '-')}"]


def fields_of(record: Any) -> list[dataclasses.Field[Any]]:
    """The fields of a record: positional ones, then its own, then those of its bases, from left to right."""
    fields = {each.name: each for each in dataclasses.fields(record) if each.init}
    names = dict.fromkeys(name for base in record.__mro__ for name in inspect.get_annotations(base))
    callbacks = [name for name in names if name in fields and doc_of(fields[name]).only_python]
    ordered = [fields[name] for name in names if name in fields and name not in callbacks]
    positional = [each for each in ordered if not each.kw_only]
    return [*positional, *(each for each in ordered if each.kw_only), *(fields[name] for name in callbacks)]


def section_of(record: Any, field: dataclasses.Field[Any]) -> str:
    """The heading of an option in `--help`: that of the record in which it is written."""
    owner = next(base for base in record.__mro__ if field.name in inspect.get_annotations(base))
    return str(vars(owner).get("section", ""))


def flat(record: Callable[P, Record]) -> Callable[[Callable[[Record], Result]], Callable[P, Result]]:
    """Make a function of one record into one that takes the record's fields as arguments.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Greeting(Options):
    ...     name: str = dataclasses.field(kw_only=False, metadata=doc("Who is greeted."))
    ...     polite: bool = option(False, "Whether a title is used.")
    >>> @flat(Greeting)
    ... def greet(options: Greeting) -> str:
    ...     '''Greet somebody.'''
    ...     return f"Hello, {'Ms ' * options.polite}{options.name}"
    >>> greet("Ada", polite=True)
    'Hello, Ms Ada'
    >>> inspect.signature(greet).parameters["polite"].default
    False
    >>> greet("Ada", polit=True)
    Traceback (most recent call last):
    polyseme.errors.OptionError: greet() has no option 'polit'. Did you mean 'polite'? There are: name, polite.
    >>> greet(3)
    Traceback (most recent call last):
    polyseme.errors.InputError: greet(): name must be a string. Got 3 (int) instead.
    """
    return functools.partial(_flatten, record, owners=[])


def flat_method(
    record: Callable[P, Record],
) -> Callable[[Callable[[Owner, Record], Result]], Callable[Concatenate[Owner, P], Result]]:
    """As `flat`, of a method."""
    return functools.partial(_flatten, record, owners=["self"])


def _flatten(record: Any, function: Any, *, owners: list[str]) -> Any:
    """A function that takes its `owners` (of a method, `self`) and a record's fields instead of the record."""
    signature = signature_of(record, returns=function.__annotations__.get("return"))

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        check_names(function.__name__, options, signature.parameters)
        first, others = args[: len(owners)], args[len(owners) :]
        arguments = signature.bind(*others, **options)
        if function.__name__ != "__init__":  # estimators check when they are fitted, as scikit-learn has it
            check_types(function.__name__, arguments)
        try:
            return function(*first, record(*others, **options))
        except PolysemeError as error:
            error.flags = flags_of(record)
            raise

    owned = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in owners]
    call.__signature__ = signature.replace(parameters=[*owned, *signature.parameters.values()])  # type: ignore[attr-defined]
    call.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{arguments_doc(record)}"
    del call.__wrapped__  # or its signature would be shown
    return call


def signature_of(record: Any, *, returns: Any = None) -> inspect.Signature:
    """The signature of a function that takes a record's fields."""
    kinds = {True: inspect.Parameter.KEYWORD_ONLY, False: inspect.Parameter.POSITIONAL_OR_KEYWORD}
    parameters = [
        inspect.Parameter(
            each.name,
            kinds[bool(each.kw_only)],
            default=inspect.Parameter.empty if each.default is dataclasses.MISSING else each.default,
            annotation=each.type,
        )
        for each in fields_of(record)
    ]
    return inspect.Signature(parameters, return_annotation=returns)


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        raise OptionError(f"There is no {name} {value!r}. {nearest(str(value), choices)}")


def check_names(function: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse an option that a function does not have."""
    for name in options:
        if name not in known:
            raise OptionError(f"{function}() has no option {name!r}. {nearest(name, known)}")


_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a string", lambda value: isinstance(value, str)),
    "AnyPath": ("a path", lambda value: isinstance(value, str | os.PathLike)),
    "int": (
        "a whole number",
        lambda value: isinstance(value, numbers.Integral) or (isinstance(value, float) and value.is_integer()),
    ),
    "float": ("a number", lambda value: isinstance(value, numbers.Real)),
    "None": ("None", lambda value: value is None),
    "Model": ("a loaded Model", lambda value: "Model" in _classes(value)),
    "TaskData": ("a task's data", lambda value: "TaskData" in _classes(value)),
    "Mapping[str, Any]": ("a mapping", lambda value: isinstance(value, Mapping)),
    "Sequence[str]": ("a list of strings", lambda value: not isinstance(value, str) and isinstance(value, Iterable)),
}
"""The annotations of fields whose values are checked: what each is in words, and whether a value is one.

Classes go by their names, since records are light and know no more of them.
"""


def check_types(function: str, arguments: inspect.BoundArguments) -> None:
    """Refuse a value of a type that its field does not have. Aliases and containers are checked where they are read."""
    for name, value in arguments.arguments.items():
        parameter = arguments.signature.parameters[name]
        wrong = wrong_type(value, str(parameter.annotation))
        if isinstance(value, str) and not value and "AnyPath" in str(parameter.annotation):
            wrong = "must be the name of a file or folder, and is empty. Name one, or leave it out."
        if wrong is not None:
            error = OptionError if parameter.kind is inspect.Parameter.KEYWORD_ONLY else InputError
            raise error(f"{function}(): {name} {wrong}")


def wrong_type(value: object, annotation: str) -> str | None:
    """What a value must be that has not the type of its field, as the end of a sentence; None: nothing is wrong.

    >>> wrong_type("wide", "int | None")
    "must be a whole number or None. Got 'wide' (str) instead."
    """
    kinds = annotation.split(" | ")
    if any(kind not in _TYPES or _TYPES[kind][1](value) for kind in kinds):
        return None
    allowed = " or ".join(dict.fromkeys(_TYPES[kind][0] for kind in kinds))
    return f"must be {allowed}. Got {reprlib.repr(value)} ({type(value).__name__}) instead."


def _classes(value: object) -> list[str]:
    return [each.__name__ for each in type(value).__mro__]


def arguments_doc(record: Any) -> str:
    """The fields of a record as the `Args:` of a docstring."""
    lines = ["Args:"]
    for each in fields_of(record):
        described = doc_of(each)
        absent = "None" if each.default is None else "Empty"
        text = f"{each.name}: {described.help}{f' {absent}: {described.default}.' if described.default else ''}"
        lines += textwrap.wrap(text, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False)
    return "\n".join(lines)

"""Options that several verbs share: the model is always `-m`, the output always `-o`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from polyseme.errors import OptionError

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

model = click.option(
    "-m",
    "--model",
    metavar="MODEL",
    help="A model folder, a run's folder, or hub:owner/name.  [default: minilm, of the extra 'demo']",
)
device = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="DEVICE",
    help="auto (a GPU where there is one), cpu, cuda, cuda:N.",
)
force = click.option("--force", is_flag=True, help="Replace the output if it exists.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def output(help: str, *, required: bool = True) -> Callable[[Decorated], Decorated]:
    """The `-o` of a verb."""
    return click.option("-o", "--output", required=required, metavar="OUTPUT", help=help)


def source(*, required: bool = True) -> Callable[[Decorated], Decorated]:
    """The `--in` of a verb whose argument is something else; Python keeps the word for itself."""
    help = "The texts in which to look for uses: a file, folder or pattern as for embed, or - for standard input."
    return click.option("--in", "source", required=required, metavar="INPUT", help=help)


SIDES = {
    "source": "One side of texts in pairs, a text a line: what is to be translated.",
    "target": "The other side, line by line: the translations.",
    "held_source": "Pairs that are held out, instead of a share of the others.",
    "held_target": "Their other side.",
}
"""The options that name texts in pairs."""


def sides(command: Decorated) -> Decorated:
    """Texts in pairs; each side may be several files."""
    for name, help in reversed(SIDES.items()):
        option = f"--{name.replace('_', '-')}"
        command = click.option(option, multiple=True, metavar="FILE", help=help)(command)
    return command


def named_sides(settings: dict[str, Any]) -> dict[str, Any]:
    """The files of each side as the function takes them: None, one, or several."""
    given = {name: settings[name] for name in SIDES}
    return {name: files[0] if len(files) == 1 else files or None for name, files in given.items()}


field = click.option("--field", metavar="NAME", help="The field or column of INPUT with the text.")
layer = click.option(
    "--layer",
    default="-1",
    show_default=True,
    metavar="LAYER",
    help="A number (0 is the token layer, -1 the top), sum:a:b, mean:a:b, concat:a:b, mix, mix:last3:0.2,0.3,0.5.",
)
stack = click.option(
    "--stack",
    default="encoder",
    show_default=True,
    metavar="STACK",
    help="Whose layers, of a model that has two stacks: encoder, or decoder, with the text on both sides.",
)
pool = click.option(
    "--pool",
    default="mean",
    show_default=True,
    metavar="POOLING",
    help="How the pieces of a word become one: first, last, mean, max; ends, of two-way models.",
)
dtype = click.option(
    "--dtype",
    default="fp32",
    show_default=True,
    metavar="DTYPE",
    help="What is computed in: fp32, bf16, fp16, fp64, int8.",
)
batch_pieces = click.option(
    "--batch-pieces", type=int, metavar="N", help="Pieces that run together.  [default: 2048, on a GPU 65536]"
)


def names(context: click.Context, option: click.Parameter, given: str | None) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in given.split(",") if name.strip()) if given else ()


_FIELDS = click.option(
    "--fields",
    callback=names,
    metavar="NAMES",
    help="Other fields of INPUT to keep beside the results, with commas between them, or all.",
)
_READING = (
    field,
    click.option("--id-field", metavar="NAME", help="The field of INPUT with the id of a text.  [default: its number]"),
    click.option(
        "--format",
        metavar="FORMAT",
        help="What INPUT is, where its ending does not say it: text, jsonl, csv, tsv, parquet, conll, conllu.",
    ),
    click.option(
        "--words",
        default="syntactic",
        show_default=True,
        metavar="WORDS",
        help="Words of CoNLL-U: syntactic (do n't) or surface (don't).",
    ),
    click.option(
        "--split",
        default="line",
        show_default=True,
        metavar="UNIT",
        help="What is a text in plain text: line, sentence (lines are split further), paragraph, document.",
    ),
    click.option(
        "--quotes",
        default="double",
        show_default=True,
        metavar="QUOTES",
        help="What encloses fields of CSV and TSV: double quotes, or none.",
    ),
    click.option("--delimiter", metavar="CHARACTER", help="What separates the fields of CSV and TSV."),
    click.option(
        "--no-check-text",
        "check_text",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Take CoNLL-U sentences whose words do not add up to their text.",
    ),
)


def reading(command: Decorated) -> Decorated:
    """How INPUT is read: the options of `polyseme.files.row_reader`."""
    return reading_alone(_FIELDS(command))


def reading_alone(command: Decorated) -> Decorated:
    """The same for verbs that keep nothing beside the text."""
    for option in reversed(_READING):
        command = option(command)
    return command


def pairs(given: tuple[str, ...], option: str) -> dict[str, Any] | None:
    """NAME=VALUE, where a value that is JSON is taken so, and otherwise as a string."""
    found: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise OptionError(f"{option} wants NAME=VALUE. Got {pair!r} instead.")
        try:
            found[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            found[name.replace("-", "_")] = value
    return found or None

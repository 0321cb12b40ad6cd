"""The command line: a file a verb, loaded when it is called.

What polyseme refuses is printed as one paragraph, and the exit code is 2; what it has to say besides goes to standard
error as notes. `polyseme --help` loads no verb, and so neither torch nor numpy.
"""

from __future__ import annotations

import importlib
import sys
import textwrap
import warnings
from collections.abc import Mapping
from typing import Any, TextIO

import click

from polyseme import __version__
from polyseme.errors import PolysemeError, PolysemeWarning, nearest

VERBS: Mapping[str, str] = {
    "embed": "Embed every word of a text file: one vector a word.",
    "show": "Show what a model is and what it can do.",
    "pieces": "Show a text in a model's pieces.",
    "fill": "Guess what stands at [MASK].",
    "next": "Say how likely one sentence follows another.",
    "convert": "Load a model and save it in today's layout.",
}
"""Verb → what it does; `cli/VERB.py` holds it as `command`."""


class Verbs(click.Group):
    """The verbs, each loaded from its file when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            raise click.UsageError(f"There is no verb {cmd_name!r}. {nearest(cmd_name, VERBS)}", ctx)
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _say
            warnings.simplefilter("once", PolysemeWarning)
            try:
                return super().invoke(ctx)
            except PolysemeError as error:
                _refuse(str(error))
            except MemoryError:
                _refuse("There is not enough memory for this. Use a smaller --batch-pieces, or cut the input.")


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="polyseme")
def main() -> None:
    """A word has as many vectors as it has contexts.

    \b
    Examples:
      polyseme embed reviews.txt -o vectors.parquet
      polyseme embed reviews.txt --layer concat:-4:-1 --pool first -m path/to/bert -o vectors.npz
      polyseme show -m path/to/bert
    """


def _refuse(message: str) -> None:
    click.echo(textwrap.fill(f"polyseme: {message}", 100, break_long_words=False, break_on_hyphens=False), err=True)
    sys.exit(2)


def _say(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Notes for the user as plain lines; warnings of other libraries as Python shows them."""
    if issubclass(category, PolysemeWarning):
        text = textwrap.fill(f"note: {message}", 100, break_long_words=False, break_on_hyphens=False)
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line).rstrip()
    click.echo(text, err=True)

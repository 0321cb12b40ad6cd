"""Options that several verbs share: the model is always `-m`, the output always `-o`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

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

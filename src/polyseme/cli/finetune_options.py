"""What the verbs that fit a model to a task share: their options, and how training is shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from polyseme.cli.progress import Bar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from polyseme.transfer.train_seed import Told

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def _column(context: click.Context, option: click.Parameter, given: str | None) -> str | int | None:
    """A name, or a number from 1 on."""
    return int(given) if given is not None and given.isdecimal() else given


def _columns(
    context: click.Context, option: click.Parameter, given: str | None
) -> tuple[str | int, ...] | str | int | None:
    """Names or numbers with commas between them."""
    if given is None:
        return None
    names = tuple(int(name) if name.isdecimal() else name for name in map(str.strip, given.split(",")) if name)
    return names[0] if len(names) == 1 else names


def _seeds(context: click.Context, option: click.Parameter, given: str) -> int | list[int]:
    """How many, or which, with commas between them."""
    try:
        numbers = [int(each) for each in given.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"must be a number of seeds, or seeds with commas between them. Got {given!r}."
        ) from None
    return numbers if "," in given else numbers[0]


data = click.option("--data", metavar="FOLDER", help="The folder with the data of a benchmark.")

text = click.option(
    "--text", callback=_column, metavar="COLUMN", help="The column with the text: a name, or counted from 1."
)
second = click.option(
    "--second", callback=_column, metavar="COLUMN", help="The second text of a pair; the question of a span."
)
label = click.option("--label", callback=_column, metavar="COLUMN", help="The column with the label.")

choices = click.option(
    "--choices", callback=_columns, metavar="COLUMNS", help="The choices, with commas, or a column of lists."
)
marks = click.option(
    "--marks", callback=_column, metavar="COLUMN", help="A number a word: 1 at the predicate of roles."
)

_COLUMNS = (
    text,
    second,
    label,
    choices,
    click.option("--start", callback=_column, metavar="COLUMN", help="The character at which an answer starts."),
    marks,
    click.option("--regression/--labels", "regression", default=None, help="Whether labels are numbers on a scale."),
    click.option("--separator", metavar="TEXT", help="What stands between several labels of one row."),
    click.option("--scheme", metavar="SCHEME", help="What tags of spans are turned into: BIO, BIOES, IOB1."),
    click.option("--repair", is_flag=True, help="Write invalid tags anew and look for misplaced answers."),
    click.option(
        "--unseen", default="refuse", show_default=True, metavar="HOW", help="Labels that train lacks: refuse or keep."
    ),
    click.option("--format", metavar="FORMAT", help="What files are, where their ending does not say it."),
    click.option(
        "--quotes", default="double", show_default=True, metavar="QUOTES", help="In CSV and TSV: double, none."
    ),
    click.option("--delimiter", metavar="CHARACTER", help="What separates the fields of CSV and TSV."),
)
_SETTINGS = (
    click.option("--frozen/--tuned", default=False, help="Whether the encoder stays as it is.  [tuned]"),
    click.option("--layer", metavar="LAYER", help="As for embed; mix is learned.  [-1; with --frozen, mix]"),
    click.option("--stack", metavar="STACK", help="Whose layers: encoder, or decoder with the text on both sides."),
    click.option("--pool", metavar="POOLING", help="first, last, mean, max, ends.  [first; with --frozen, mean]"),
    click.option("--readout", metavar="NAME", help="What stands for a text: first, pooled, last, mean, max, concat."),
    click.option(
        "--head", metavar="NAME", help="bilstm-crf, bilstm-attention, bilstm, crf, mlp, linear; text: write labels."
    ),
    click.option("--inner-width", type=int, metavar="N", help="Of the head's own layer."),
    click.option("--reread-inputs", is_flag=True, help="Let the head read the words' vectors at its output, too."),
    click.option("--inputs", metavar="NAME", help="char-cnn: word vectors that are learned with the head."),
    click.option("--epochs", type=int, metavar="N", help="How often train is gone through."),
    click.option("--batch-size", type=int, metavar="N", help="Items of a step.  [32]"),
    click.option("--learning-rate", type=float, metavar="RATE", help="The highest learning rate.  [by the encoder]"),
    click.option("--head-learning-rate", type=float, metavar="RATE", help="That of what is new.  [the same]"),
    click.option(
        "--layer-decay", default=1.0, show_default=True, metavar="X", help="The rate's fall from layer to layer."
    ),
    click.option(
        "--schedule", default="linear", show_default=True, metavar="NAME", help="linear, slanted-triangular, constant …"
    ),
    click.option(
        "--warmup", default=0.1, show_default=True, metavar="SHARE", help="Of the steps, in which rates rise."
    ),
    click.option("--gradual-unfreezing", is_flag=True, help="Let layers learn one after another, from the top."),
    click.option("--reinit-layers", default=0, show_default=True, metavar="N", help="Top layers that are drawn anew."),
    click.option("--weight-decay", default=0.01, show_default=True, metavar="X", help="Of matrices."),
    click.option(
        "--max-grad-norm", default=1.0, show_default=True, metavar="NORM", help="The largest norm of all gradients."
    ),
    click.option("--dropout", type=float, metavar="X", help="Of the head."),
    click.option("--dtype", default="auto", show_default=True, metavar="DTYPE", help="auto, fp32, bf16."),
    click.option("--compile/--no-compile", default=None, help="Record steps as CUDA graphs.  [on a GPU]"),
    click.option(
        "--seeds", default="1", show_default=True, callback=_seeds, metavar="N", help="How many runs, or which."
    ),
    click.option("--max-pieces", type=int, metavar="N", help="Of a row; longer texts are cut, which is said."),
    click.option("--stride", default=128, show_default=True, metavar="N", help="Pieces by which windows overlap."),
    click.option("--evaluations", default=1, show_default=True, metavar="N", help="How often an epoch dev is scored."),
    click.option("--cache", metavar="FOLDER", help="Keep frozen vectors here, for other runs."),
    click.option(
        "--checkpoint-seconds", default=60.0, show_default=True, metavar="S", help="Between checkpoints, at least."
    ),
    click.option(
        "--rates", multiple=True, metavar="NAME=VALUE", help="What energy costs: kg_per_kwh=0.05, price_per_kwh=0.2."
    ),
)


def columns(command: Decorated) -> Decorated:
    """How files of one's own are read."""
    for option in reversed(_COLUMNS):
        command = option(command)
    return command


def settings(command: Decorated) -> Decorated:
    """How a model is fitted."""
    for option in reversed(_SETTINGS):
        command = option(command)
    return command


class TuningLine:
    """A line that moves on a terminal, a line an evaluation elsewhere."""

    def __init__(self, about: str = "") -> None:
        self.about = about
        self.bar = Bar("setting up", then="computing frozen vectors", at_last="setting up", what="texts")
        self._shown: tuple[Progress, TaskID] | None = None
        self._last = 0.0
        self._dev: dict[int, str] = {}

    def __enter__(self) -> TuningLine:
        self.bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.__exit__(kind, error, trace)
        if self._shown is not None:
            self._shown[0].stop()

    def progress(self, done: int, total: int | None) -> None:
        """Be told how many texts have their vectors."""
        self.bar(done, total)

    def report(self, told: Told) -> None:
        """Be told how training goes."""
        if told.dev is not None:
            name, value = next(iter(told.dev.items()))
            self._dev[told.seed] = f"  loss {told.loss:.3f}  dev {name} {100 * value:.1f}"
        if not sys.stderr.isatty():
            if told.dev is not None:
                click.echo(self._line(told), err=True)
            return
        if time.monotonic() - self._last < 0.1 and told.dev is None:
            return
        self._last = time.monotonic()
        if self._shown is None:
            self.bar.__exit__(None, None, None)
            self._shown = self._begin()
        progress, task = self._shown
        progress.update(task, description=self._line(told))

    def _line(self, told: Told) -> str:
        about = f"{self.about}, " if self.about else ""
        return f"{about}seed {told.seed}, step {told.done:,}/{told.n_steps:,}{self._dev.get(told.seed, '')}"

    def _begin(self) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import Progress, TextColumn

        progress = Progress(TextColumn("{task.description}"), console=Console(stderr=True), transient=True)
        progress.start()
        return progress, progress.add_task("", total=None)

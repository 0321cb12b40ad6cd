"""`polyseme sweep`."""

from __future__ import annotations

import copy
import functools
import shlex
from typing import Any

import click

import polyseme
from polyseme.cli.printing import print_json, print_text
from polyseme.cli.record_options import Command, parameters_of
from polyseme.cli.terminal import SweepLine, print_table
from polyseme.errors import OptionError, nearest
from polyseme.extras import later
from polyseme.verb_options.sweep_options import SweepOptions

SWEPT = {
    "pretrain": "Pretrain models on [TEXTS]… over a grid of settings and seeds.",
    "finetune": "Fit models to TASK over a grid of settings and seeds.",
}
DECIDED = ("output", "force", "stop_after", "seed", "seeds", "resume", "dry_run", "train_share", "scratch", "as_json")
"""Options of the commands that a sweep sets itself, or has itself."""
FOLLOWING = ("evaluate", "benchmark", "finetune")
SOME_FAILED = 1


class _Swept(click.Group):
    """The commands that can be swept; their options are the sweep's own and those of the command itself."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SWEPT)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SWEPT:
            raise click.UsageError(f"There is no command {cmd_name!r} to sweep. {nearest(cmd_name, SWEPT)}", ctx)
        return swept_command(cmd_name)


def swept_command(verb: str) -> click.Command:
    """The command of a sweep over a verb."""
    theirs = [copy.copy(each) for each in _command_of(verb).params if each.name not in DECIDED]
    for each in theirs:
        each.required = False  # it may vary
    arguments = [each for each in theirs if isinstance(each, click.Argument)]
    others = [each for each in theirs if each not in arguments]
    own = parameters_of(SweepOptions, json=True)
    help = f"{SWEPT[verb]}\n\nOptions are those of sweep, then those of {verb} itself, which all runs have."
    return Command(verb, params=[*arguments, *own, *others], callback=functools.partial(_sweep, verb), help=help)


def _command_of(verb: str) -> click.Command:
    command: click.Command = later(f"polyseme.cli.{verb}").command
    return command


def _sweep(verb: str, as_json: bool, then: tuple[str, ...], **settings: Any) -> int:
    first = next(each.name for each in _command_of(verb).params if isinstance(each, click.Argument))
    argument = settings.pop(str(first)) or None
    options = {name: value for name, value in _set(click.get_current_context()).items() if name in settings}
    options["then"] = [_parse_following(each) for each in then]
    with SweepLine() as line:
        result = polyseme.sweep(verb, argument, **options, on_report=line.report, progress=line.bar)
    if as_json:
        print_json(result.to_json())
    else:
        print_table(result.rows(), header=result.columns)
        for text in result.lines():
            print_text(text, err=True)
    return SOME_FAILED if result.of_state("failed") else 0


def _set(context: click.Context) -> dict[str, Any]:
    """The options that were given, by name."""
    source = click.core.ParameterSource.COMMANDLINE
    return {name: value for name, value in context.params.items() if context.get_parameter_source(name) is source}


def _parse_following(line: str) -> tuple[str, dict[str, Any]]:
    """A command that follows each run, and the options that it is given."""
    verb, *words = shlex.split(line) or [""]
    if verb not in FOLLOWING:
        raise OptionError(f"--then wants a command that follows each run. Got {line!r}. {nearest(verb, FOLLOWING)}")
    command = _command_of(verb)
    options = _set(command.make_context(verb, words))
    options.pop("as_json", None)
    return verb, options


@click.group(cls=_Swept, invoke_without_command=True, subcommand_metavar="pretrain|finetune …")
@click.pass_context
def command(context: click.Context) -> None:
    """Run pretrain or finetune over a grid of settings and seeds, and compare the runs in one table and picture.

    --over varies any option of the command, setting of the objective, or setting of the encoder's config; --row names
    a set of settings. Everything else is given as for the command itself. The corpus is built once. Every run has its
    own folder in NAME.runs/, and runs are executed in parallel. The same command resumes a stopped sweep; with more
    values, rows or seeds it adds runs. If a run fails, it is reported, the others continue, and the exit code is 1.

    \b
    Examples:
      polyseme sweep pretrain texts/ --recipe bert-tiny --over mask_rate=0.05,0.15,0.4 --seeds 2 -o sweep.html
      polyseme sweep pretrain texts/ --budget 500steps --over recipe=bert-tiny,gpt-tiny --over n_layers=2,4 -o grid.html
      polyseme sweep pretrain texts/ --row "BERT: recipe=bert-tiny" --row "GPT: recipe=gpt-tiny" -o rows.html
      polyseme sweep finetune sst2 --data data/tasks -m models/mine --over learning_rate=1e-5,3e-5 -o rates.html
      polyseme sweep pretrain --help
    """
    if context.invoked_subcommand is None:
        print_text(context.get_help())

"""The command line: one file per verb, loaded when it is called.

`polyseme --help` loads no verb, and so neither torch nor numpy. How a command ends, and with which exit code, is in
`signals`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from polyseme import __version__
from polyseme.cli import signals
from polyseme.cli.printing import print_text
from polyseme.errors import nearest
from polyseme.extras import later

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Words": {
        "embed": "Embed every word of text files: one vector per word.",
        "similar": "Find the nearest uses of a word in its context.",
        "senses": "Group the uses of a word by sense, with examples and a map.",
        "concordance": "Show every match of a word, a lemma or a pattern in its context.",
        "compare": "Compare how a word, or every word, is used in two corpora.",
        "pieces": "Show how a model tokenizes a text.",
    },
    "Pretraining": {
        "pretrain": "Pretrain a model on raw text, in one command.",
        "recipes": "List what can be pretrained, and how training is fitted to a budget.",
        "distill": "Train a small student to imitate a larger model.",
        "corpus": "Build a tokenized corpus for pretraining from raw text.",
        "sweep": "Pretrain or fine-tune over a grid of settings, in one table.",
        "claims": "Test claims of the literature, each with its rule and verdict.",
    },
    "Transfer": {
        "finetune": "Fit a model to a task, frozen or fine-tuned.",
        "predict": "Predict with a task model.",
        "tradeoffs": "Compare smaller forms of a task model: scores, seconds, bytes.",
        "benchmark": "Fit a model to a suite of tasks, such as GLUE, in one table.",
        "prune": "Remove the attention heads that matter least.",
    },
    "Writing and scoring": {
        "generate": "Continue a prompt.",
        "score": "Score texts: the probability of each word, piece or byte.",
        "interpolate": "Mix language models, with weights fitted to held-out text.",
        "evaluate": "Evaluate a model: BLiMP, agreement, LAMBADA, BLEU, your own data.",
        "fill": "Predict the piece or word at [MASK].",
        "next": "Predict whether one sentence follows another.",
    },
    "Looking inside": {
        "probe": "Train probes on every layer, for words, spans or pairs of spans.",
        "attention": "Show where words look, in every layer and head.",
        "lens": "Show what each layer would predict (logit lens).",
        "geometry": "Measure how similar word vectors are, layer by layer.",
        "heads": "Find the attention heads that follow dependency relations.",
        "attribute": "Show how much each word contributes to a task model's score.",
        "uses": "Compare the uses of a word, layer by layer.",
        "patch": "Show which states carry an answer (activation patching).",
        "cells": "Show what single cells of a recurrent model track.",
    },
    "Models": {
        "models": "List the packaged models, and the verbs that use them.",
        "published": "Show published tables: scores, costs, sizes, with sources.",
        "show": "Show what a model is and what it can do.",
        "convert": "Convert a model to the current layout, or another library's.",
    },
}
"""The verbs with what they do, as `--help` groups them; `cli/VERB.py` holds each as `command`."""

SPINS = "10000"
"""How often a waiting thread of OpenMP looks for work before it sleeps, unless the user's environment says otherwise.
By default it looks for milliseconds, and on a machine that others use, too, threads then wait for each other's turns:
with two threads on two busy cores, steps of a small model took five times as long as with one thread."""

VERBS: Mapping[str, str] = {verb: help for verbs in GROUPS.values() for verb, help in verbs.items()}


class Verbs(click.Group):
    """The verbs, each loaded from its file when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            raise click.UsageError(f"There is no verb {cmd_name!r}. {nearest(cmd_name, VERBS)}", ctx)
        command: click.Command = later(f"{__name__}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, verbs in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl(list(verbs.items()))

    def invoke(self, ctx: click.Context) -> Any:
        with signals.written_to_the_end():
            return super().invoke(ctx)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Parse and run the command line; in standalone mode the process ends here, with its exit code."""

        def carry_out() -> Any:
            return super(Verbs, self).main(args, prog_name, complete_var, standalone_mode=False, **extra)

        if not standalone_mode:
            return carry_out()
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # read when torch is loaded
        sys.exit(signals.exit_code(carry_out))


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    subcommand_metavar="VERB …",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="polyseme", help="Show the version.")
@click.pass_context
def main(context: click.Context) -> None:
    """A word has as many vectors as it has contexts.

    \b
    Examples:
      polyseme embed reviews.txt -o vectors.parquet
      polyseme embed reviews.txt --layer concat:-4:-1 --pool first -m path/to/bert -o vectors.npz
      polyseme pretrain texts/ --budget 20min -o models/mine
      polyseme fill "The vase [MASK] into pieces."
      polyseme show -m path/to/bert
      polyseme embed --help
    """
    if context.invoked_subcommand is None:
        print_text(context.get_help())

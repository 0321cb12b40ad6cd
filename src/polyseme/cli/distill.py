"""`polyseme distill`."""

from __future__ import annotations

import time
from typing import Any

import click

import polyseme
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import PretrainLine
from polyseme.verb_options.distill_options import DistillOptions


@command_of(DistillOptions)
def command(sources: tuple[str, ...], **settings: Any) -> None:
    """Train a small student to predict what a larger teacher predicts (-m), on [TEXTS]....

    The student begins with some layers of the teacher (--layers), or is another model (--student, --recipe) with the
    same tokenizer. It learns as DistilBERT did: the teacher's distributions at masked pieces (or of next pieces), the
    pieces themselves, and the direction of the last states. The rest is as in pretrain: one folder for the run,
    settings fitted to the budget, an interrupted run resumed by the same command.

    \b
    Examples:
      polyseme distill texts/ -m models/mine --layers 3 --budget 5min -o models/small
      polyseme distill texts/ -m english-encoder --objective soft_at=all --dry-run
      polyseme distill texts/ -m models/mine --recipe modern-mini --budget 20min -o models/narrow
    """
    started = time.perf_counter()  # before torch is imported
    with PretrainLine() as line:
        result = polyseme.distill(
            sources or None, **settings, on_report=line.report, progress=line.bar, started=started
        )
    for text in result.lines():
        click.echo(text, err=True)

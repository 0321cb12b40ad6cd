"""`polyseme distill`."""

from __future__ import annotations

import time
from typing import Any

import polyseme
from polyseme.cli.printing import print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import DistillLine
from polyseme.verb_options.distill_options import DistillOptions


@command_of(DistillOptions)
def command(sources: tuple[str, ...], **settings: Any) -> None:
    """Train a small student to imitate a larger teacher (-m), on [TEXTS]... or on the data of a task.

    The student is initialized with some layers of the teacher (--layers), or is another model (--student, --recipe)
    with the same tokenizer. A language model is distilled on raw text, as DistilBERT was: the student learns the
    teacher's distributions at masked pieces (or of next pieces), the pieces themselves, and the direction of the last
    states. A task model written by finetune is distilled on its task: the student learns the teacher's scores and the
    labels; [TEXTS]... are then unlabeled texts. The same command resumes interrupted work.

    \b
    Examples:
      polyseme distill texts/ -m models/mine --layers 3 --budget 5min -o models/small
      polyseme distill texts/ -m english-encoder --objective soft_at=all --dry-run
      polyseme distill texts/ -m models/mine --recipe modern-mini --budget 20min -o models/narrow
      polyseme distill -m models/stars --layers 3 --train reviews.csv -o models/small-stars
      polyseme distill more.txt -m models/stars --student models/small --train reviews.csv --match states -o models/s
      polyseme distill -m models/rte --data data/tasks --match relations --epochs 10 -o models/small-rte
    """
    started = time.perf_counter()  # before torch is imported
    with DistillLine() as line:
        result = polyseme.distill(
            sources or None, **settings, on_report=line.report, progress=line.bar, started=started
        )
    for text in result.lines():
        print_text(text, err=True)

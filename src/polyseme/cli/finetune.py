"""`polyseme finetune`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.printing import print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import FinetuneLine
from polyseme.verb_options.task_options import FinetuneTaskOptions


@command_of(FinetuneTaskOptions, json=True)
def command(task: str, as_json: bool, **settings: Any) -> None:
    """Fit a model to TASK: the name of a benchmark, or classify, pair, tag, span, choose or edge for your own files.

    The whole encoder is fine-tuned; with --frozen its vectors are computed once and only a head is trained. The best
    step and seed are selected on dev; test is scored once. The same command resumes interrupted work.

    \b
    Examples:
      polyseme finetune rte -m models/mine --data data/tasks -o models/rte
      polyseme finetune sst2 --data data/tasks --seeds 5 --json
      polyseme finetune classify --train reviews.csv --text review --label stars -o models/stars
      polyseme finetune tag --train train.conll --dev dev.conll --label 2 --head bilstm-crf --frozen -o models/ner
      polyseme finetune span --train squad.json -o models/qa
      polyseme finetune wnut17 -m none --inputs char-cnn --data data/tasks
      polyseme finetune sst2 --data data/tasks --train-share 1%,10%,100% --scratch --seeds 3 -o models/curve
      polyseme finetune imdb --data data/tasks -m models/forwards,models/backwards --ulmfit -o models/both
    """
    with FinetuneLine() as line:
        report = polyseme.finetune(task, **settings, on_report=line.report, progress=line.bar)
    if as_json:
        print_json(report.to_json())
        return
    if settings["output"] is not None:
        content = f"the model of seed {report.best_seed}, the best on dev"
        if report.ensemble:
            content = "of each model the seed that is best on dev"
        print_text(f"{settings['output']}: {content}")
    for text in report.lines():
        print_text(text)

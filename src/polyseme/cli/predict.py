"""`polyseme predict`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.printing import print_json
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_cost
from polyseme.verb_options.evaluation_options import PredictOptions


@command_of(PredictOptions)
def command(sources: tuple[str, ...], **settings: Any) -> None:
    """Predict every text of INPUT... (as for embed) with a task model written by finetune.

    Predictions are in the order of the texts, with their probabilities. Fields default to those used in training; a
    question-answering model also reads SQuAD's JSON. The same command resumes interrupted work.

    \b
    Examples:
      polyseme predict "A charming and often affecting journey." -m models/stars
      polyseme predict new.txt -m models/ner -o tagged.conll
      polyseme predict reviews.csv --field review -m models/stars -o stars.jsonl
      polyseme predict pairs.tsv --field premise --second hypothesis -m models/rte -o rte.parquet
      polyseme predict sentences.jsonl --marks predicate -m models/roles -o roles.jsonl
    """
    with Bar("loading the model", then="predicting") as bar:
        result = polyseme.predict(sources, **settings, progress=bar)
    for each in result.predictions:
        print_json(each.record(), ensure_ascii=False)
    print_cost(result.cost.line(), settings["output"])

"""`polyseme tradeoffs`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.evaluate import print_lines
from polyseme.cli.printing import print_json
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_cost
from polyseme.verb_options.evaluation_options import TradeoffsOptions


@command_of(TradeoffsOptions, json=True)
def command(name: str, as_json: bool, **settings: Any) -> None:
    """Compare forms of a task model on NAME|FILE: scores with sampling errors, seconds, and bytes.

    The forms are full, bf16, int8 and onnx, as `polyseme convert` writes them, and other models (--also), such as
    pruned or distilled ones. They predict the same items in turn, on a CPU. Forms that the model cannot have are
    skipped, with a note.

    \b
    Examples:
      polyseme tradeoffs reviews.csv -m models/stars
      polyseme tradeoffs reviews.csv -m models/stars --also models/pruned,models/small -o costs.html
      polyseme tradeoffs sst2 --data data/tasks -m models/sst2 --items 500 --forms full,int8 -o costs.json
    """
    with Bar("loading the model", then="predicting", unit="done") as bar:
        report = polyseme.tradeoffs(name, **settings, progress=bar)
    if as_json:
        print_json({name: value for name, value in vars(report).items() if name != "items"})
        return
    from polyseme.metrics.evaluation_report import notes_of

    print_lines(report)
    for number, note in enumerate(notes_of(report)):
        print_cost(note, settings["output"] if number == 0 else None)

"""`polyseme prune`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.printing import print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_cost, print_table
from polyseme.verb_options.pruning_options import PruneOptions


@command_of(PruneOptions, json=True)
def command(as_json: bool, **settings: Any) -> None:
    """Remove the attention heads of a Transformer that matter least on held-out data.

    The weights of the heads are removed from the files, so the model is smaller and faster; all verbs can use it. A
    curve shows the score against the share of heads removed.

    \b
    Examples:
      polyseme prune -m models/stars --heads 50% --dev reviews.csv -o models/pruned
      polyseme prune -m models/qnli --heads 40% --dev qnli --data data/tasks --each-head -o models/pruned
      polyseme prune -m models/mine --heads 24 --dev held-out.txt -o models/smaller
      polyseme prune -m models/stars --heads 50% --method gates --train train.csv --dev dev.csv -o models/pruned
    """
    with Bar("loading the model", then="judging heads", unit="done") as bar:
        report = polyseme.prune(**settings, progress=bar)
    if as_json:
        print_json(report.to_json(), indent=2)
    else:
        print_text(report.summary())
        print_table(report.rows(), header=report.header())
    for note in report.notes:
        print_text(f"note: {note}", err=True)
    print_cost(report.cost.line(), settings["output"])

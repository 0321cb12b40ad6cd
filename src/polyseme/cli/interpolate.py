"""`polyseme interpolate`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.printing import print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_cost, print_table
from polyseme.verb_options.text_options import InterpolateOptions


@command_of(InterpolateOptions, json=True)
def command(as_json: bool, **settings: Any) -> None:
    """Mix models over the same tokenizer, with weights that maximize the likelihood of held-out text.

    The models must share a tokenizer: train one of them with `polyseme pretrain --tokenizer OTHER`. The mixture is a
    model folder for score, evaluate and generate.

    \b
    Examples:
      polyseme interpolate -m models/lstm -m models/kn5 --held-out valid.txt
      polyseme interpolate -m models/nnlm -m models/kn5 --held-out valid.txt -o models/mixed
    """
    with Bar("loading the models, scoring"):
        result = polyseme.interpolate(**settings)
    if as_json:
        names = ("names", "weights", "perplexities", "perplexity", "n_pieces", "n_steps", "notes")
        print_json({name: getattr(result, name) for name in names}, indent=2)
    else:
        print_table(result.rows(), header=("model", "weight", "perplexity per piece"))
    for note in result.notes:
        print_text(f"note: {note}", err=True)
    print_cost(result.cost.line(), settings["output"])

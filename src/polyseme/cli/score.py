"""`polyseme score`."""

from __future__ import annotations

import math
from typing import Any

import polyseme
from polyseme.cli.printing import print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import bar_over, print_cost, print_table
from polyseme.verb_options.text_options import ScoreOptions


@command_of(ScoreOptions, json=True)
def command(sources: tuple[str, ...], as_json: bool, **settings: Any) -> None:
    """Score every text of INPUT...: the probability of each word given its context. INPUT... are texts, or files,
    folders or patterns with one text per line, or - for standard input.

    A causal model predicts from left to right, a masked model from both sides, and a sequence-to-sequence model given
    a source. Scores are natural log-probabilities, and surprisals in bits; perplexities per word, piece and byte are
    also reported.

    \b
    Examples:
      polyseme score "The keys to the cabinet is on the table."
      polyseme score essay.txt
      polyseme score essay.txt --split document -o essay.html
      polyseme score essay.txt --word-probability corrected -o surprisals.csv
      polyseme score spans.txt --marked --by text -m path/to/gpt2 -o spans.csv
      polyseme score long.txt --split document --stride 256 -m path/to/gpt2 -o scores.parquet
      polyseme score long.txt --split document --neural-cache -m path/to/lstm
      polyseme score reviews.csv --field review --by byte -m path/to/bert -o scores.tsv
      polyseme score essay.txt --order both -m models/elmo
      polyseme score test.de --source test.en -m models/ende -o scores.tsv
    """
    with bar_over(sources, then="scoring") as bar:
        result = polyseme.score(sources, **settings, progress=bar)
    from polyseme.scoring import score_formats

    output, by = settings["output"], settings["by"]
    if as_json:
        texts = [score_formats.as_json(each, by, result.method) for each in result.texts]
        print_json({"how": result.method, "totals": result.totals.to_json(), "texts": texts})
    else:
        if output is None:
            header = ("id", by, "log-probability", "surprisal")
            print_table([row for each in result.texts for row in _rows(each, by)], header=header)
            print_text()
        totals = result.totals.to_json()
        print_table([(name.replace("_", " "), _format_score(value)) for name, value in totals.items()])
    for note in result.notes:
        print_text(f"note: {note}", err=True)
    print_cost(f"scored {result.method}; {result.cost.line()}", output)


def _rows(scored: Any, by: Any) -> list[tuple[str, str, str, str]]:
    from polyseme.scoring.score_formats import unit_log_probs, units
    from polyseme.scoring.text_scores import surprisal

    spelled, _ = units(scored, by)
    return [
        (
            scored.id,
            f"0x{unit:02x}" if by == "byte" else _visible(unit),
            "" if math.isnan(log_prob) else f"{log_prob:.4f}",
            "" if math.isnan(log_prob) else f"{surprisal(log_prob):.2f}",
        )
        for unit, log_prob in zip(spelled, unit_log_probs(scored, by).tolist(), strict=True)
    ]


def _visible(text: str) -> str:
    """Without what would move a terminal's cursor."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _format_score(value: float | int | None) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}"

"""`polyseme evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polyseme
from polyseme.cli.printing import print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_cost, print_table
from polyseme.verb_options.evaluation_options import EvaluateOptions

if TYPE_CHECKING:
    from polyseme.metrics.evaluation_report import Report

DEEPEST = 2
"""Depth of the groups that are printed: all, wide ones, and those within them."""


@command_of(EvaluateOptions, json=True)
def command(name: str, as_json: bool, **settings: Any) -> None:
    """Evaluate a language model on NAME|FILE: blimp, babylm, lambada, wikitext2, agreement, wsc, gap, wnli, cloze,
    or your own minimal pairs.

    With a task model written by `polyseme finetune`, FILE has labels as in training, or NAME is a benchmark.

    wsc and gap replace the pronoun with each mention, and compare the two readings: over the whole text (full), and
    after the mention (partial). wnli compares hypotheses behind their premise in the same way.

    cloze fills one [MASK] per line of JSON lines (LAMA's layout: masked_sentences and obj_label, or text and answer).

    bleu needs no model: it compares texts with their references, line by line.

    FILE with minimal pairs is a table (.csv, .tsv, .jsonl, .parquet) with the columns good and bad, and optionally
    group. The good side must have the higher score; a tie is wrong.

    \b
    Examples:
      polyseme evaluate blimp -m path/to/gpt2 --data data/tasks -o blimp.html
      polyseme evaluate blimp -m runs/mine --data data/tasks --curve --pairs 100 -o curve.svg
      polyseme evaluate babylm -m path/to/bert --data path/to/evaluation_data -o babylm.json
      polyseme evaluate lambada -m path/to/gpt2 --data lambada_test.jsonl
      polyseme evaluate wikitext2 -m models/kn5 --data data/tasks
      polyseme evaluate agreement -m path/to/bert --data data/tasks -o agreement.png
      polyseme evaluate wsc -m path/to/gpt2 --data data/tasks
      polyseme evaluate cloze -m path/to/bert --data P19.jsonl --among answers
      polyseme evaluate pairs.tsv -m path/to/bert --hide left-to-right -o pairs.json
      polyseme evaluate test.conll -m models/ner
      polyseme evaluate bleu --in test.hyp --reference test.de
    """
    with Bar("loading the model", then="scoring", unit="done") as bar:
        report = polyseme.evaluate(name, **settings, progress=bar)
    if as_json:
        print_json({name: value for name, value in vars(report).items() if name != "items"})
        return
    from polyseme.metrics.evaluation_report import notes_of

    deepest = 0 if report.curve else DEEPEST
    if report.curve:
        _print_curve(report)
    else:
        print_lines(report)
    if any(line.depth > deepest for line in report.lines):
        print_text("The report has narrower groups than these: see --output, --json.", err=True)
    for number, note in enumerate(notes_of(report)):
        print_cost(note, settings["output"] if number == 0 else None)


def print_lines(report: Report) -> None:
    """The table of a report, without the narrowest groups."""
    from polyseme.metrics.evaluation_report import format_figure

    print_table(
        [
            (
                line.level,
                line.name,
                f"{line.n:,}",
                *(format_figure(name, line.figures[name]) for name in report.columns),
            )
            for line in report.lines
            if line.depth <= DEEPEST
        ],
        header=("level", "name", "n", *(name.replace("_", " ") for name in report.columns)),
    )


def _print_curve(report: Report) -> None:
    """One line per model of a run: what it has seen, and the first figure of the widest groups."""
    from polyseme.metrics.evaluation_report import format_figure

    figure = next(iter(report.columns))
    names = [figure if line.name == "all" else f"{line.name} {figure}" for line in report.widest]
    print_table(
        [
            (
                *(f"{number:,}" for number in (point.words, point.pieces, point.step)),
                *(format_figure(figure, point.first_figure(line)) for line in report.widest),
            )
            for point in report.curve
        ],
        header=("words", "pieces", "step", *names),
    )

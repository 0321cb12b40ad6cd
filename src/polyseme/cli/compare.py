"""`polyseme compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polyseme
from polyseme.cli.printing import BoldText, print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_cost, print_table, print_uses
from polyseme.verb_options.word_options import CompareOptions

if TYPE_CHECKING:
    from polyseme.two_corpora.compare_word import Comparison
    from polyseme.two_corpora.compare_words import Differences


@command_of(CompareOptions, json=True)
def command(word: str | None, as_json: bool, **settings: Any) -> None:
    """Compare how [WORD] (in any case) is used in two corpora; without it, all words that are frequent in both.

    \b
    Examples:
      polyseme compare plane --in 1900s.txt --in 1990s.txt -o plane.html
      polyseme compare --in a.txt --in b.txt --top 50
      polyseme compare --in first/ --in second/ -o words.csv
      polyseme compare broke --in news.jsonl --in novels.jsonl --field text --group-by author
    """
    with Bar("counting words", then="embedding", at_last="comparing") as bar:
        result = polyseme.compare(word, **settings, progress=bar)
    if as_json:
        print_json(result)
        return
    from polyseme.two_corpora.compare_word import Comparison

    if isinstance(result, Comparison):
        _print_word(result)
    else:
        _print_words(result)
    print_cost(result.cost.line(), settings["output"])


def _print_word(result: Comparison) -> None:
    from polyseme.plots.comparison_pages import format_number, short_p
    from polyseme.two_corpora.comparison_files import measures_of, notes_of, verdict

    first, second = (
        f"{source} ({count:,} use{'' if count == 1 else 's'})"
        for source, count in zip(result.sources, result.counts, strict=True)
    )
    print_text(f"{result.word} in {first} and {second}: {result.headline}.\n")
    rows = [
        [
            each.name,
            format_number(each.value),
            format_number(each.expected),
            "" if each.low is None else f"{format_number(each.low)} to {format_number(each.high)}",
            short_p(each.p),
        ]
        for each in measures_of(result)
    ]
    print_table(rows, header=["", "value", "without a difference", "95% interval", "p"])
    for sense in sorted(result.senses, key=lambda sense: -abs(sense.change)):
        shares = " → ".join(f"{100 * share:.0f}%" for share in sense.shares)
        around = f" ({', '.join(sense.neighbors[:3])})" if sense.neighbors else ""
        heading = f"sense {sense.sense}{around}, {shares}" + (f", {verdict(sense)}" if len(result.senses) > 1 else "")
        print_text("\n", BoldText(heading))
        for source, examples in zip(result.sources, sense.examples, strict=True):
            print_text(source)
            print_uses([(result.uses[place].id, result.uses[place]) for place in examples])
    print_text()
    for note in notes_of(result):
        print_text(note, err=True)


def _print_words(result: Differences) -> None:
    from polyseme.plots.comparison_pages import format_number, short_p
    from polyseme.two_corpora.comparison_files import notes_of_words

    print_text(f"{result.sources[0]} and {result.sources[1]}: {result.headline}.\n")
    rows = [
        [
            each.word,
            f"{each.counts[0]:,}",
            f"{each.counts[1]:,}",
            *map(format_number, (each.effect, each.apd, each.prt, each.jsd)),
            short_p(each.p),
            short_p(each.p_adjusted),
        ]
        for each in result.listed
    ]
    print_table(rows, header=["word", "uses", "uses", "effect", "APD", "PRT", "JSD", "p", "adjusted p"])
    for note in notes_of_words(result):
        print_text(note, err=True)

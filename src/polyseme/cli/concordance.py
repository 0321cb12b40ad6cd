"""`polyseme concordance`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.printing import BoldText, print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar
from polyseme.verb_options.word_options import ConcordanceOptions


@command_of(ConcordanceOptions, json=True)
def command(query: str, as_json: bool, **settings: Any) -> None:
    """Show every match of QUERY in its context: one or more words (in any case), a lemma, or a pattern.

    \b
    Examples:
      polyseme concordance broke --in corpus.txt --width 60
      polyseme concordance "broke even" --in corpus/ --sort right -o broke.html
      polyseme concordance break --match lemma --in treebank.conllu --fields upos -o break.csv
      polyseme concordance "br(eak|oke)[a-z]*" --match pattern --in corpus.txt --sample 100
      polyseme concordance broke --in corpus.txt --like "Dawn [broke]."
      polyseme concordance broke --in corpus.txt --sort sense
    """
    with Bar("looking for matches", then="looking for matches") as bar:
        result = polyseme.concordance(query, **settings, progress=bar)
    if as_json:
        print_json(result)
        return
    from polyseme.keyword_in_context.concordance_files import text_lines

    if settings["output"] is None:
        for left, match, right in text_lines(result):
            print_text(left, BoldText(match), right)
    place = "" if settings["output"] is None else f"{settings['output']}: "
    notes = [f"{place}{result.headline}.", result.explanation, "" if result.cost is None else result.cost.line()]
    for note in filter(None, notes):
        print_text(note, err=True)

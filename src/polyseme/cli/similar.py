"""`polyseme similar`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.printing import BoldText, print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_uses
from polyseme.verb_options.word_options import SimilarOptions


@command_of(SimilarOptions, json=True)
def command(text: str, as_json: bool, **settings: Any) -> None:
    """Find the nearest uses of the word in [brackets] in TEXT: of the same word, and of others.

    A literal bracket is written \\[ or \\]; [MASK] is not a marked word.

    \b
    Examples:
      polyseme similar "A [crane] caught a fish." --in sentences.txt
      polyseme similar "A [crane] caught a fish." --in sentences.txt --against 0 -o crane.html
      polyseme similar "A [crane] caught a fish." --in sentences.txt --against glove.6B.50d.txt
      polyseme similar "We [broke] even." --in corpus.txt --index uses
      polyseme similar "Dawn [broke]." --index uses --same-word --top 20
      polyseme similar "Dawn [broke]." --in novel.txt --split sentence
    """
    with Bar("loading the model", then="embedding") as bar:
        result = polyseme.similar(text, **settings, progress=bar)
    if as_json:
        print_json(result)
        return
    from polyseme.word_senses.result_files import lists_of, notes_of

    for number, each in enumerate(lists_of(result)):
        print_text("\n" * (number > 0), BoldText(each.heading))
        print_uses(each.uses)
    for note in notes_of(result):
        print_text(note, err=True)
    print_text(result.cost.line(), err=True)

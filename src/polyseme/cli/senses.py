"""`polyseme senses`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.printing import BoldText, print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_cost, print_uses
from polyseme.verb_options.word_options import SensesOptions


@command_of(SensesOptions, json=True)
def command(word: str, as_json: bool, **settings: Any) -> None:
    """Group the uses of WORD (in any case) by sense: the number of senses, the evidence for it, and examples of each.

    \b
    Examples:
      polyseme senses broke --in sentences.txt -o broke.html
      polyseme senses broke --in sentences.txt --n-senses 3 -o broke.png
      polyseme senses crane --in corpus.txt --map tsne -o crane.svg
      polyseme senses crane --in vectors.parquet --wordnet /usr/share/wordnet
      polyseme senses crane --in corpus.txt -o crane.json
      polyseme senses crane --in new.txt --apply crane.json
    """
    with Bar("loading the model", then="embedding") as bar:
        result = polyseme.senses(word, **settings, progress=bar)
    if as_json:
        print_json(result)
        return
    from polyseme.word_senses.result_files import description_of, label_of

    print_text(f"{result.word} in {result.source}: {result.headline}. {result.explanation}")
    for note in result.notes:
        print_text(note)
    for number, (sense, examples) in enumerate(zip(result.senses, result.examples, strict=True), start=1):
        uses = f"{sense.n_uses:,} use{'' if sense.n_uses == 1 else 's'}"
        heading = f"sense {number}{f', {sense.name}' if sense.name else ''}, {uses} ({sense.id})"
        print_text("\n", BoldText(heading))
        for line in description_of(sense):
            print_text(line)
        print_uses([(label_of(result.uses[place]), result.uses[place]) for place in examples])
    print_cost(result.cost.line(), settings["output"])

"""`polyseme published`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.printing import BoldText, print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import print_table
from polyseme.papers import PublishedTable
from polyseme.verb_options.published_options import PublishedOptions


@command_of(PublishedOptions, json=True)
def command(as_json: bool, **settings: Any) -> None:
    """List the published tables of the papers, or show one, [TABLE]: each figure with its source, or a mark (?) if
    none was found.

    If two sources disagree, both figures are shown. Tables of costs and sizes also show our own counts, and explain
    differences.

    \b
    Examples:
      polyseme published
      polyseme published glue -o glue.html
      polyseme published cost --system BERT
      polyseme published ratios
      polyseme published sizes -o sizes.svg
      polyseme published family-tree -o tree.svg
    """
    result = polyseme.published(**settings)
    if isinstance(result, PublishedTable):
        if as_json:
            print_json(result.to_json(), indent=1)
        else:
            _print_one(result)
    elif as_json:
        print_json([each.to_json() for each in result], indent=1)
    else:
        table = result.table()
        print_table([tuple(map(str, row)) for row in table.rows], header=table.header)
        print_text("\nOne of them: polyseme published glue; as a page with its picture: -o glue.html")


def _print_one(table: PublishedTable) -> None:
    print_text(BoldText(table.title))
    for part in table.parts():
        print_text()
        if part.split:
            print_text(BoldText(f"on {part.split}"))
        print_table(part.rows, header=part.header)
    print_text()
    for line in (table.summary(), *table.lines()):
        print_text(line)

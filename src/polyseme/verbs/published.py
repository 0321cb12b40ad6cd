"""`published`: the papers' tables, with sources and with counts of polyseme.

Listing and printing load neither torch nor numpy; counts and pictures load what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from polyseme.errors import OptionError
from polyseme.extras import later
from polyseme.files.atomic import check_output, whole_file
from polyseme.options import flat
from polyseme.papers import PublishedTable, list_tables, read_table
from polyseme.result_tables import ResultList
from polyseme.verb_options.published_options import PublishedOptions

COUNTED = ("cost", "ratios", "sizes", "gpt-3")
"""Tables to which counts of polyseme are added."""


@flat(PublishedOptions)
def published(options: PublishedOptions) -> PublishedTable | ResultList[PublishedTable]:
    """A table of the papers, or the list of all: each figure with its source, or a mark if none was found.

    Tables of costs and sizes also have polyseme's own counts.

        >>> polyseme.published()                                                # doctest: +SKIP
        >>> pandas.DataFrame(polyseme.published("glue").records())              # doctest: +SKIP
        >>> polyseme.published("cost", systems="BERT", output="cost.html")      # doctest: +SKIP
    """
    if options.name is None:
        if options.changed():
            raise OptionError(
                f"The list of tables takes no options, so {', '.join(options.changed())} would have no effect. Name a "
                "table, as in: polyseme published glue."
            )
        return list_tables()
    table = read_table(options.name)
    write = None
    if options.output is not None:
        ending = Path(options.output).suffix.lower()
        if ending not in WRITTEN:
            raise OptionError(f"The output must end in {', '.join(WRITTEN)}. Got {str(options.output)!r} instead.")
        check_output(options.output, force=options.force)
        write = WRITTEN[ending]
    if options.name in COUNTED:
        table = later("polyseme.recipes.published_counts").with_counts(table)
    if options.systems:
        table = table.only(options.systems)
    if write is not None and options.output is not None:
        with whole_file(options.output, force=options.force) as path:
            path.write_text(write(table), encoding="utf-8")
    return table


def _page(table: PublishedTable) -> str:
    return later("polyseme.plots.published_page").published_page(  # type: ignore[no-any-return]
        table.title, _picture(table), table.parts(), [table.summary(), *table.lines()]
    )


def _picture(table: PublishedTable) -> str:
    return later("polyseme.verbs.published_pictures").picture(table)  # type: ignore[no-any-return]


WRITTEN: Mapping[str, Callable[[PublishedTable], str]] = {
    ".html": _page,
    ".svg": _picture,
    ".json": PublishedTable.json,
    ".csv": PublishedTable.csv,
    ".tsv": lambda table: table.csv("\t"),
    ".md": PublishedTable.markdown,
}
"""File suffix → the function that makes the text of the file."""

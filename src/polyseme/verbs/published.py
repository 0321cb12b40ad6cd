"""`published`: the papers' tables, with sources and with counts of polyseme.

Listing and printing load neither torch nor numpy; counts and pictures load what they need.
"""

from __future__ import annotations

from polyseme.errors import OptionError
from polyseme.extras import later
from polyseme.files.result_formats import Formats, check_result_output, write_result
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
    check_result_output(options.output, FORMATS, force=options.force)
    if options.name in COUNTED:
        table = later("polyseme.recipes.published_counts").with_counts(table)
    if options.systems:
        table = table.only(options.systems)
    write_result(table, options.output, FORMATS, force=options.force)
    return table


def _page(table: PublishedTable) -> str:
    pictures = later("polyseme.verbs.published_pictures")
    return later("polyseme.plots.published_page").published_page(  # type: ignore[no-any-return]
        table.title,
        pictures.picture(table),
        table.parts(),
        [table.summary(), *table.lines()],
        picture_first=pictures.leads(table),
    )


def _picture(table: PublishedTable) -> str:
    return later("polyseme.verbs.published_pictures").picture(table)  # type: ignore[no-any-return]


FORMATS: Formats = {
    ".html": _page,
    ".svg": _picture,
    ".json": PublishedTable.json,
    ".csv": PublishedTable.csv,
    ".tsv": lambda table: table.csv("\t"),
    ".md": PublishedTable.markdown,
}

"""The papers' tables as data: every figure with its system, task, metric and split, and where it was found.

`tables/*.json` are the data, a file per kind of table, and `papers.json` the papers. Where two sources disagree, both
stand. A figure that was found in a source says which; one from memory has none, and is shown with a mark.
"""

from __future__ import annotations

from polyseme.papers.figures import Figure, beside, figures_of, mean_over, table_names
from polyseme.papers.published_table import MARK, PublishedTable, head_of, list_tables, read_table

__all__ = [
    "MARK",
    "Figure",
    "PublishedTable",
    "beside",
    "figures_of",
    "head_of",
    "list_tables",
    "mean_over",
    "read_table",
    "table_names",
]

"""The papers' tables as data: every figure with its system, task, metric, split and source.

`tables/*.json` are the data, one file per kind of table, and `papers.json` the papers. If two sources disagree, both
figures are kept. A figure that was found in a source names it; a figure from memory names none, and is shown with a
mark.
"""

from __future__ import annotations

from polyseme.papers.figures import Figure, benchmark_figures, figures_of, mean_of_tasks, table_names
from polyseme.papers.published_table import MARK, PublishedTable, cell_text, column_head, list_tables, read_table

__all__ = [
    "MARK",
    "Figure",
    "PublishedTable",
    "benchmark_figures",
    "cell_text",
    "column_head",
    "figures_of",
    "list_tables",
    "mean_of_tasks",
    "read_table",
    "table_names",
]

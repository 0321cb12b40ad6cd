"""A hook of mkdocs: the reference page lists every public name, from `polyseme.__all__`.

Functions are inspected, not parsed: their signatures and arguments come from their records of options.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import polyseme

MARK = "<!-- public names -->"
PAGE = "reference.md"


def on_page_markdown(markdown: str, page: Any, **unused: Any) -> str:
    """What mkdocs calls for every page."""
    return with_public_names(markdown) if page.file.src_uri == PAGE else markdown


def with_public_names(markdown: str) -> str:
    """The page with an entry for each public name, except those of modules that it shows whole."""
    whole = set(re.findall(r"^::: (polyseme\S*)$", markdown, flags=re.MULTILINE))
    functions: list[str] = []
    classes: list[str] = []
    for name in polyseme.__all__:
        value = getattr(polyseme, name)
        if value.__module__ not in whole:
            entry = f"::: {value.__module__}.{name}\n    options:\n      force_inspection: true\n"
            (classes if inspect.isclass(value) else functions).append(entry)
    entries = ["## Functions\n", *functions, "## Classes\n", *classes]
    return markdown.replace(MARK, "\n".join(entries))

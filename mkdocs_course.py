"""A hook of mkdocs: each notebook of the course is a page, with the outputs that it was saved with.

Cells with the tag `solution` are folded. Links to pages of the documentation and between notebooks become links between
pages.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

NOTEBOOKS = Path(__file__).parent / "examples" / "course"
FOLDER = "course"
SOLUTION = "solution"
STYLE = "<style>.md-typeset pre > code { white-space: pre-wrap; overflow-wrap: anywhere }</style>"
"""Long lines of code and of output are wrapped, so that none is cut."""


def on_files(files: Files, config: Any) -> Files:
    """What mkdocs calls when it has listed the pages."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        page, pictures = page_of(json.loads(path.read_text(encoding="utf-8")), path.stem)
        files.append(File.generated(config, f"{FOLDER}/{path.stem}.md", content=page))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"{FOLDER}/{name}", content=picture))
    return files


def page_of(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by the names that the page has for them."""
    pictures: dict[str, bytes] = {}
    sections = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            section = with_links(source)
        else:
            outputs = (_shown(each, name, pictures) for each in cell["outputs"])
            section = "\n\n".join([f"```python\n{source}\n```", *outputs])
        sections.append(_folded(section) if SOLUTION in cell["metadata"].get("tags", ()) else section)
    download = f"*This page is the notebook `examples/course/{name}.ipynb`, as it was run.*"
    title, _, rest = sections[0].partition("\n")
    return "\n\n".join([title, STYLE, download, rest.strip(), *sections[1:]]) + "\n", pictures


def with_links(text: str) -> str:
    """Links as they are from the page: to pages of the documentation, and to other notebooks."""
    text = re.sub(r"\]\(\.\./\.\./docs/", "](../", text)
    return re.sub(r"\]\((\d\d_\w+)\.ipynb", r"](\1.md", text)


def _shown(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> str:
    if output["output_type"] == "stream":
        return _printed("".join(output["text"]))
    data = output["data"]
    if "image/png" in data:
        file = f"{name}_{len(pictures) + 1}.png"
        pictures[file] = base64.b64decode(data["image/png"])
        return f"![{_alternative(output)}]({file})"
    if "text/html" in data:
        page = "".join(data["text/html"])
        return f'<div class="output">{" ".join(page.split(chr(10)))}</div>'
    return _printed("".join(data["text/plain"]))


def _printed(text: str) -> str:
    return f"````text\n{text.rstrip()}\n````"


def _alternative(output: dict[str, Any]) -> str:
    """What a picture shows, in words: the titles of its figure."""
    return "".join(output["data"]["text/plain"]).replace("\n", " ")


def _folded(section: str) -> str:
    return f'<details class="solution" markdown="1">\n<summary>Solution</summary>\n\n{section}\n\n</details>'

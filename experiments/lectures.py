"""The table of what lectures describe, item by item, and the command that shows it: docs/lectures.md, from its data.

python experiments/lectures.py > docs/lectures.md
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

DATA = Path(__file__).parents[1] / "docs" / "lectures.json"
STATES = ("works", "partly", "missing", "out of scope")


def page() -> str:
    """The page."""
    content = json.loads(DATA.read_text(encoding="utf-8"))
    counts = Counter(item["state"] for item in content["items"])
    counted = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    lectures = ", ".join(f"{letter} {name}" for letter, name in content["lectures"].items())
    lines = [
        "# What lectures describe",
        "",
        "Five university lectures on contextual representations describe systems, tables, figures and claims: "
        f"{len(content['items'])} items, each with the command that shows it here.",
        "",
        f"**{counted}.** Lectures: {lectures}.",
        "",
        "*Partly* and *missing* say what is not there. Models and files are named as users would name theirs. QRNNs, "
        "multilingual pretraining (the corpus is English) and models of pictures and text are out of scope.",
        "",
        "| | lecture | item | state | shown by | remarks |",
        "|---|---|---|---|---|---|",
        *map(_row, content["items"]),
    ]
    return "\n".join([*lines, ""])


def _row(item: dict[str, str]) -> str:
    command = f"`{item['command']}`" if "command" in item else ""
    link = f"[{_title(item['page'])}]({item['page']})" if "page" in item else ""
    shown = " · ".join(filter(None, (command, link)))
    state = item["state"] if item["state"] == "works" else f"**{item['state']}**"
    cells = (item["item"], item["lecture"], item["title"], state, shown, item.get("note", ""))
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _title(name: str) -> str:
    """The heading of a page of the docs."""
    return (DATA.parent / name).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


if __name__ == "__main__":
    print(page(), end="")

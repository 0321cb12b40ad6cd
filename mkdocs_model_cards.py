"""A hook of mkdocs: the page about the packaged models shows their cards, from `models/english`."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parent / "models" / "english" / "src" / "polyseme_english"
MARK = "<!-- model cards -->"
PAGE = "english.md"


def on_page_markdown(markdown: str, page: Any, **unused: Any) -> str:
    """What mkdocs calls for every page."""
    return with_cards(markdown, MODELS) if page.file.src_uri == PAGE else markdown


def with_cards(markdown: str, models: Path) -> str:
    """The page with the cards, their headings one level down, without front matter, pictures in the page itself."""
    folders = [models / name for name in ("encoder", "decoder")]
    cards = [_section(folder) for folder in folders if (folder / "README.md").is_file()]
    return markdown.replace(MARK, "\n\n".join(cards))


def _section(folder: Path) -> str:
    card = (folder / "README.md").read_text(encoding="utf-8")
    card = re.sub(r"\A---\n.*?\n---\n", "", card, flags=re.DOTALL)
    card = re.sub(r"^(#+ )", r"#\1", card, flags=re.MULTILINE)
    return re.sub(r"\((\w+\.svg)\)", lambda match: f"({_inline(folder / match[1])})", card).strip()


def _inline(picture: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(picture.read_bytes()).decode()

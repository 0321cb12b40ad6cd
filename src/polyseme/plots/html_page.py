"""Self-contained HTML pages: one file, nothing fetched, and users' text is never executed.

Users' text is escaped, or passed as JSON to a script. A content security policy lets only the page's own script run,
identified by its hash, and lets nothing be loaded.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --ink: #1b2733; --faint: #6b7a89; --paper: #fff; --line: #dfe5ea; --soft: #f4f6f8 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf0; --faint: #93a1ae; --paper: #161c22; --line: #2c363f; --soft: #1e262d }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2rem 1.5rem; max-width: 76rem; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: break-word }
h1 { font-size: 1.7rem; margin: 0 0 .3rem } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem }
p { margin: .3rem 0; max-width: 60rem } .faint { color: var(--faint); font-size: .87rem }
b { font-weight: 650 }
table { border-collapse: collapse; width: 100%; table-layout: fixed }
td { padding: .18rem .3rem; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere }
td.number { width: 3.6rem; font-variant-numeric: tabular-nums; color: var(--faint) }
table.concordance { table-layout: auto }
.concordance td.number { width: 1%; max-width: 14rem; white-space: pre; overflow: hidden; text-overflow: ellipsis;
  padding-right: .8rem }
""".strip()

_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")
"""Control characters and lone surrogates. Browsers read a carriage return as a line end."""
_EMBEDDINGS, _ISOLATES = "\u202a\u202b\u202d\u202e", "\u2066\u2067\u2068"
_END_EMBEDDING, _END_ISOLATE = "\u202c", "\u2069"
_DIRECTION = re.compile(f"[{_EMBEDDINGS}{_ISOLATES}]")


def escaped(text: str) -> str:
    """A user's text, escaped for use between tags or in a quoted attribute.

    Characters unfit for pages are replaced, and marks of direction end with the text, so that what follows it on the
    page keeps its order.
    """
    return html.escape(_UNFIT.sub("\ufffd", with_ended_directions(text)))


def with_ended_directions(text: str) -> str:
    r"""The text with an end for each mark of direction that it leaves open.

    >>> with_ended_directions("plain"), ascii(with_ended_directions("\u202egnp.exe \u2067"))
    ('plain', "'\\u202egnp.exe \\u2067\\u2069\\u202c'")
    """
    if _DIRECTION.search(text) is None:
        return text
    ends: list[str] = []
    for character in text:
        if character in _EMBEDDINGS:
            ends.append(_END_EMBEDDING)
        elif character in _ISOLATES:
            ends.append(_END_ISOLATE)
        elif character == _END_EMBEDDING and ends[-1:] == [_END_EMBEDDING]:
            ends.pop()
        elif character == _END_ISOLATE and _END_ISOLATE in ends:  # it ends the embeddings inside it, too
            del ends[len(ends) - 1 - ends[::-1].index(_END_ISOLATE) :]
    return text + "".join(reversed(ends))


def data(content: Any) -> str:
    """A JSON value as an element that scripts read and browsers do not execute."""
    written = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="data">{written}</script>'


def framed_page(page: str, *, height: int = 560) -> str:
    """A whole page as an element for notebooks, apart from what is around it."""
    style = f"width:100%; height:{height}px; border:0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(page)}"></iframe>'


def page(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """A complete page; `body` is HTML in which users' text is already escaped."""
    allowed = f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" if script else "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escaped(title)}</title>",
            f"<style>{_STYLE}\n{style}</style>",
            "</head>",
            "<body>",
            body,
            *([f"<script>{script}</script>"] if script else []),
            "</body>",
            "</html>",
            "",
        ]
    )


def concordance(lines: list[tuple[str, tuple[str, str, str]]]) -> str:
    """A table of words in context: a first column, then the text before, the word, and the text after."""
    rows = [
        f'<tr><td class="number" title="{escaped(first)}">{escaped(first)}</td>'
        f'<td dir="auto">{escaped(before)}<b>{escaped(word)}</b>{escaped(after)}</td></tr>'
        for first, (before, word, after) in lines
    ]
    return f'<table class="concordance"><tbody>{"".join(rows)}</tbody></table>'

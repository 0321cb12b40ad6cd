"""Documents with words colored by their similarity to one use, for notebooks.

Self-contained HTML: no script, nothing fetched, users' text escaped. High values are dark on a light page and bright on
a dark page. A notebook's own theme takes precedence over the system's.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import InputError
from polyseme.files.atomic import AnyPath, whole_file
from polyseme.plots.colors import ink, ramp, to_hex
from polyseme.plots.html_page import escaped, page
from polyseme.plots.word_uses import Keyword, Use, format_cosine, scale_start
from polyseme.types import EmbeddedDocument, Word

MOST_WORDS = 2000
"""Words that are shown; the number of the others is reported."""
CONTEXT = 40
"""Characters on each side of the chosen use in the caption."""
N_LEVELS = 24
"""Color steps; there is one CSS rule per step, not one per word."""

_LIGHT_HOSTS = ('[data-jp-theme-light="true"]', ".vscode-light", '[theme="light"]')
_DARK_HOSTS = ('[data-jp-theme-light="false"]', ".vscode-dark", '[theme="dark"]')
"""Selectors for the themes of JupyterLab, VS Code and Colab."""
_STYLE = """
.polyseme-view { font: 15px/1.9 system-ui, sans-serif; max-width: 60rem; margin: .4rem 0; overflow-wrap: anywhere }
.polyseme-view p { margin: .3rem 0; white-space: pre-wrap }
.polyseme-view .caption { display: flex; flex-wrap: wrap; gap: 0 1.5em; align-items: center; margin: 0 0 .5rem;
  font-size: 13px; line-height: 1.6; white-space: normal }
.polyseme-view .scale { display: inline-flex; align-items: center; gap: .5em; font-variant-numeric: tabular-nums }
.polyseme-view .scale i { width: 9em; height: .75em; border-radius: 3px; background: var(--scale) }
.polyseme-view .note { font-size: 13px; opacity: .7 }
.polyseme-view p > span, .polyseme-view p > b { position: relative; padding: .14em .22em; border-radius: 4px }
.polyseme-view p > b { font-weight: 700; box-shadow: 0 0 0 2px var(--ring) }
.polyseme-view p > :focus-visible { outline: 2px solid var(--ring); outline-offset: 1px }
.polyseme-view p > :focus-visible::after { content: attr(title); position: absolute; left: 0; top: 100%; z-index: 1;
  padding: 0 .45em; border-radius: 4px; background: #101820; color: #fff; white-space: nowrap;
  font: 12px/1.7 system-ui, sans-serif }
""".strip()


class ColoredText(NamedTuple):
    """A text, its words, and their cosines to the chosen use."""

    text: str
    words: Sequence[Word]
    cosines: Sequence[float]
    """One per word; NaN for zero vectors."""
    chosen: int | None = None
    """The index of the chosen word, if it is in this text."""


@dataclass(frozen=True, eq=False)
class SimilarityView:
    """Words and their similarity to a chosen use; a notebook displays it as HTML."""

    word: str
    use: tuple[int, int]
    """The chosen use: the index of its document and of its word, counted from 0."""
    cosines: list[NDArray[Any]] = field(repr=False)
    """One per word, for each document; NaN for zero vectors."""
    html: str = field(repr=False)
    """The HTML that a notebook displays, self-contained and without scripts."""

    def _repr_html_(self) -> str:
        return self.html

    def save(self, path: AnyPath, *, force: bool = False) -> None:
        """Write a self-contained HTML page."""
        with whole_file(path, force=force) as file:
            file.write_text(page(f"Cosines to {self.word}", self.html), encoding="utf-8")


def view(
    documents: EmbeddedDocument | Iterable[EmbeddedDocument], *, to: str | int | tuple[int, int]
) -> SimilarityView:
    """Show documents in a notebook, with each word colored by its cosine to one use.

    Args:
        documents: What `Model.embed` returned.
        to: The use: a word, for its first occurrence (in any case, if it does not occur as written); the position of a
            word in the first document; or a pair, the number of a document and the position in it. All count from 0.

        >>> polyseme.view(model.embed("Dawn broke, and so did the vase."), to="broke")          # doctest: +SKIP
    """
    docs = (
        [documents]
        if isinstance(documents, EmbeddedDocument) or not isinstance(documents, Iterable)
        else list(documents)
    )
    _check(docs)
    number, position = _place(docs, to)
    chosen = docs[number]
    word = chosen.words[position]
    cosines = [_cosines(each.vectors, chosen.vectors[position]) for each in docs]
    if not np.isfinite(cosines[number][position]):
        raise InputError(f"The vector of {str(word)!r} is zero, so that nothing can be compared with it.")
    shown = _choose_texts(docs, cosines, number, position)
    n_words, n_shown = (sum(len(each.words) for each in texts) for texts in (docs, shown))
    n_uses = len(_places(docs, word))
    html = colored_texts(
        shown,
        least=scale_start(cosine for each in shown for cosine in each.cosines if math.isfinite(cosine)),
        use=Use(chosen.text, word.start, word.end).keyword(CONTEXT),
        more=f", one of its {n_uses:,} uses here" if n_uses > 1 else "",
        note="" if n_shown == n_words else f"{n_shown:,} of {n_words:,} words are shown.",
    )
    return SimilarityView(str(word), (number, position), cosines, html)


def html_of(document: EmbeddedDocument) -> str | None:
    """What a notebook shows of a document that is not viewed: its words, compared with the one that tells most.

    That is the longest of those that are used twice or more, or else of all. None where there is nothing to compare.
    """
    if document.vectors.ndim != 2 or len(document.words) != len(document.vectors):
        return None
    forms = [word.casefold() for word in document.words]
    n_uses = Counter(forms)
    comparable = [at for at, vector in enumerate(document.vectors) if np.isfinite(vector).all() and vector.any()]
    if not comparable:
        return None
    return view(document, to=max(comparable, key=lambda at: (n_uses[forms[at]] > 1, len(forms[at]), -at))).html


def _check(documents: Sequence[Any]) -> None:
    for number, each in enumerate(documents):
        if not isinstance(each, EmbeddedDocument):
            raise InputError(
                f"What is viewed must be documents with vectors, as embed returns them. Got a {type(each).__name__} "
                f"at {number}."
            )
        if each.vectors.ndim != 2:
            raise InputError("The words have a vector for every layer, and are compared by one. Embed with one layer.")
        if each.vectors.shape[1] != documents[0].vectors.shape[1]:
            raise InputError(
                f"Document {number} has vectors of width {each.vectors.shape[1]}, and the first of width "
                f"{documents[0].vectors.shape[1]}. Embed them with one model and one layer."
            )
    if not any(each.words for each in documents):
        raise InputError("There are no words to view.")


def _place(documents: Sequence[EmbeddedDocument], to: str | int | tuple[int, int]) -> tuple[int, int]:
    """The indices of the chosen use: of its document, and of its word."""
    if isinstance(to, str):
        if places := _places(documents, to):
            return places[0]
        known = {str(each) for document in documents for each in document.words}
        close = difflib.get_close_matches(to, known, n=3, cutoff=0.5)
        guess = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise InputError(f"The word {to!r} is not among the words to view.{guess}")
    number, position = to if isinstance(to, tuple) else (0, to)
    if not 0 <= number < len(documents):
        raise InputError(f"There is no document {number}: there are {len(documents):,}, counted from 0.")
    if not 0 <= position < len(documents[number].words):
        raise InputError(
            f"There is no word {position} in document {number}: it has {len(documents[number].words):,}, counted "
            "from 0."
        )
    return number, position


def _places(documents: Sequence[EmbeddedDocument], word: str) -> list[tuple[int, int]]:
    """All uses of a word: with the same case or, if there are none, in any case."""
    every = [
        (str(each), (number, position))
        for number, document in enumerate(documents)
        for position, each in enumerate(document.words)
    ]
    exact = [place for each, place in every if each == word]
    return exact or [place for each, place in every if each.casefold() == word.casefold()]


def _cosines(vectors: NDArray[Any], to: NDArray[Any]) -> NDArray[Any]:
    """[n]; NaN for zero vectors."""
    vectors, to = vectors.astype(np.float64), to.astype(np.float64)
    with np.errstate(invalid="ignore"):
        cosines: NDArray[Any] = vectors @ to / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(to))
    return cosines


def _choose_texts(
    documents: Sequence[EmbeddedDocument], cosines: Sequence[NDArray[Any]], number: int, position: int
) -> list[ColoredText]:
    """The texts to show, up to `MOST_WORDS`: the document of the chosen use, around it, then the others in order."""
    ends: dict[int, tuple[int, int]] = {}
    room = MOST_WORDS
    for each in [number, *(other for other in range(len(documents)) if other != number)]:
        n_words = len(documents[each].words)
        n_shown = min(n_words, room)
        start = min(max(position - n_shown // 2, 0), n_words - n_shown) if each == number else 0
        if n_shown or not n_words:
            ends[each] = (start, start + n_shown)
        room -= n_shown
    return [
        ColoredText(
            documents[each].text,
            documents[each].words[start:end],
            cosines[each][start:end].tolist(),
            position - start if each == number else None,
        )
        for each, (start, end) in sorted(ends.items())
    ]


# --- HTML -------------------------------------------------------------------------------------------------------------


def colored_texts(texts: Sequence[ColoredText], *, least: float, use: Keyword, more: str = "", note: str = "") -> str:
    """The texts one below the other, with a color scale from `least` to 1; everything is escaped here.

    Above them is the use that words are compared with, followed by `more`; below them a note.
    """
    before, word, after = map(escaped, use)
    scale = f'<span class="scale">{format_cosine(least)}<i></i>{format_cosine(1)}</span>'
    return "\n".join(
        [
            f'<div class="polyseme-view"><style>{_style()}</style>',
            f'<div class="caption"><span>cosine to “{before}<b>{word}</b>{after}”{escaped(more)}</span>{scale}</div>',
            *(f'<p dir="auto">{_words(each, least)}</p>' for each in texts),
            *([f'<div class="note">{escaped(note)}</div>'] if note else []),
            "</div>",
        ]
    )


def _words(shown: ColoredText, least: float) -> str:
    """The words and the text between them; words that overlap follow each other."""
    parts: list[str] = []
    place = shown.words[0].start if shown.words else 0
    for number, (word, cosine) in enumerate(zip(shown.words, shown.cosines, strict=True)):
        parts.append(escaped(shown.text[place : word.start]))
        tag = "b" if number == shown.chosen else "span"
        parts.append(f'<{tag} tabindex="0" {_look(float(cosine), least)}>{escaped(word)}</{tag}>')
        place = max(place, word.end)
    return "".join(parts)


def _look(cosine: float, least: float) -> str:
    if not math.isfinite(cosine):
        return 'title="no cosine: the vector is zero"'
    share = min(max((cosine - least) / (1 - least), 0.0), 1.0)
    return f'class="s{round(share * N_LEVELS)}" title="{format_cosine(cosine)}"'


@cache
def _style() -> str:
    """CSS rules for every step, for light pages and, reversed, for dark ones."""
    light, dark = _colors(dark=False), _colors(dark=True)
    steps = [
        f".polyseme-view .s{level} {{ background: var(--b{level}); color: var(--i{level}) }}"
        for level in range(N_LEVELS + 1)
    ]
    return "\n".join(
        [
            f".polyseme-view {{ {light} }}",
            f"@media (prefers-color-scheme: dark) {{ .polyseme-view {{ {dark} }} }}",
            f"{', '.join(f'{host} .polyseme-view' for host in _LIGHT_HOSTS)} {{ {light} }}",
            f"{', '.join(f'{host} .polyseme-view' for host in _DARK_HOSTS)} {{ {dark} }}",
            _STYLE,
            *steps,
        ]
    )


def _colors(*, dark: bool) -> str:
    """The ramp as CSS variables, reversed on dark pages."""
    steps = [ramp((N_LEVELS - level if dark else level) / N_LEVELS) for level in range(N_LEVELS + 1)]
    colors = [f"--b{level}: {to_hex(step)}; --i{level}: {ink(step)}" for level, step in enumerate(steps)]
    scale = ", ".join(to_hex(step) for step in steps)
    ring = "#f2a33a" if dark else "#e07b00"
    return "; ".join([*colors, f"--scale: linear-gradient(to right, {scale})", f"--ring: {ring}"])

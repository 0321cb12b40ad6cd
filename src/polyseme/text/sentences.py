"""Raw text to sentences, by rules.

A sentence ends at a line's end, and at whitespace between two tokens of which the first ends like a sentence and
the second begins like one:

- `.`, `!`, `?` end a sentence, also with quotes and brackets after them, unless the next token begins with a small
  letter (`"Why?" she asked.`).
- A point does not after a title or an abbreviation that needs something after it (`Dr.`, `e.g.`, `Fig.`), nor after an
  initial (`J. Smith`), nor after a number at the beginning of a sentence (`2. The second point`). Points
  inside (`3.14`, `example.com`) never do.
- After an abbreviation that may well be the last word (`etc.`, `Inc.`, `U.S.`, `a.m.`) and after an ellipsis, it does
  if one of the commonest words at the beginning of an English sentence follows (`The`, `However`).
- The stops of scripts without capitals (`。`, `！`, `？`, `।`, `؟` and the like) end a sentence whatever follows; in
  Chinese and Japanese no whitespace is needed.

Every character other than whitespace is in exactly one sentence. The list of abbreviations is English, with a few
of other languages. Known errors: an initial as the last word (`Plan B. Then …`), abbreviations that are not in
the list, text all in small letters, Thai, which has no stops, and lines that were broken at a fixed width, unless
`lines` is False.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Classes = NDArray[np.uint8]

# How a token between whitespace ends.
CONTINUES, STOPS, MAY_STOP, COUNTS, STOPS_ALWAYS = range(5)
# How it begins.
SMALL, CAPITAL, STARTER = range(3)


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


_NEEDS_MORE = _listed(
    "mr mrs ms mx dr prof rev hon sr st ste mt fr gen col lt capt sgt cpl pvt maj cmdr adm gov pres sen rep messrs "
    "mme mlle vs viz cf e.g i.e eg ie fig figs eq eqs secs chap vol vols nos nr pp eds al ca approx dept univ assn "
    "bros ibid z.b d.h bzw"
)
_MAY_BE_LAST = _listed(
    "etc inc ltd co corp llc plc jr a.m p.m am pm b.c a.d b.c.e c.e ph.d m.d b.a m.a d.c u.s u.k u.n e.u jan feb mar "
    "apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun ave blvd rd ft in lb lbs oz kg "
    "km cm mm hr hrs min no sec ch par est op cit ed art trans usw u.a"
)
_STARTERS = _listed(
    "The This That These Those There Then They We He She It Its His Her Their Our My You Your If In On At As By For "
    "From With When While Where What Who Why How After Before During Since Until Although Though Because However "
    "Moreover Therefore Thus But And Or Yet So Also Another Some Many Most Several Each Every Both No Not Now Here "
    "Once Two Three Such Today Later Meanwhile Finally First Second A An One"
)
_OPENING = "\"'([{<«‹“”„‘’‚「『（【《〈¿¡*_#–—-`"
_CLOSING = "\"')]}>»›”“’‘」』）】》〉*_`"
_STOPS = "!?‼⁇⁈⁉"
_ALWAYS = "。！？｡．।॥؟۔։።៕។။"
_ELLIPSIS = re.compile(r"(?:\.{2,}|…\.?)\Z")
_INITIALS = re.compile(r"(?:[^\W\d_]\.){2,}\Z")
_NUMBER = re.compile(r"(?:\d{1,3}|[ivxIVX]{1,5}|[a-zA-Z])[.)]\Z")
_INNER = re.compile(rf"[{_ALWAYS}]+[{re.escape(_CLOSING)}]*(?=[^\s{_ALWAYS}{re.escape(_CLOSING)}])")
_TOKEN = re.compile(r"\S+")


def split_sentences(text: str, *, lines: bool = True) -> list[tuple[int, int]]:
    """The offsets of the sentences of `text`, in order, without the whitespace around them.

    `lines` is whether the end of a line ends a sentence.

    >>> text = 'Dr. Lee paid $3.50. "Why?" she asked.'
    >>> [text[start:end] for start, end in split_sentences(text)]
    ['Dr. Lee paid $3.50.', '"Why?" she asked.']
    """
    spans = [match.span() for match in _TOKEN.finditer(text)]
    if not spans:
        return []
    tokens = [text[start:end] for start, end in spans]
    ends = np.fromiter(map(ending, tokens), np.uint8, len(spans))
    begins = np.fromiter(map(beginning, tokens), np.uint8, len(spans))
    on_new_line = np.array([lines and "\n" in text[a:b] for (_, a), (b, _) in pairwise(spans)], np.bool_)
    new = sentence_starts(ends, begins, np.concatenate([[True], on_new_line]))
    starts: list[int] = []
    stops: list[int] = []
    for (start, end), token, is_new in zip(spans, tokens, new.tolist(), strict=True):
        if is_new:
            starts.append(start)
            stops.append(end)
        for inner in inner_starts(token):
            stops[-1] = start + inner
            starts.append(start + inner)
            stops.append(end)
        stops[-1] = end
    return list(zip(starts, stops, strict=True))


def sentence_starts(ends: Classes, begins: Classes, on_new_line: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which tokens begin a sentence, by how each ends and begins; those of `on_new_line` do in any case."""
    new: NDArray[np.bool_] = on_new_line.copy()
    before, after = ends[:-1], begins[1:]
    new[1:] |= before == STOPS_ALWAYS
    new[1:] |= (before == STOPS) & (after != SMALL)
    new[1:] |= (before == MAY_STOP) & (after == STARTER)
    new[1:] |= (before == COUNTS) & (after != SMALL) & ~new[:-1]  # a number that begins a sentence is a label
    return new


def ending(token: str) -> int:
    """How a token between whitespace ends: one of the constants above."""
    last = token[-1]
    if last.isalnum():
        return CONTINUES
    core = token.rstrip(_CLOSING)
    if not core:
        return CONTINUES
    last = core[-1]
    if last in _STOPS:
        return STOPS
    if last in _ALWAYS:
        return STOPS_ALWAYS
    if last not in ".…":
        return COUNTS if token[-1] == ")" and _NUMBER.match(token.lstrip("(")) else CONTINUES
    return _ending_of_point(core.lstrip(_OPENING))


def beginning(token: str) -> int:
    """How a token between whitespace begins: one of the constants above."""
    first = token[0]
    if first.islower():
        return SMALL
    core = token if first.isalnum() else token.lstrip(_OPENING)
    if not core:
        return CAPITAL
    if core[0].islower():
        return SMALL
    word = core.rstrip(",;:")
    return STARTER if word in _STARTERS else CAPITAL


def inner_starts(token: str) -> list[int]:
    """The offsets inside a token between whitespace at which a new sentence begins."""
    return [] if token.isascii() else [match.end() for match in _INNER.finditer(token)]


def _ending_of_point(core: str) -> int:
    if _ELLIPSIS.search(core):
        return MAY_STOP
    word = core[:-1]
    if _NUMBER.match(core):
        is_initial = word.isalpha() and len(word) == 1
        return CONTINUES if is_initial else COUNTS
    lowered = word.lower()
    if lowered in _NEEDS_MORE:
        return CONTINUES
    if lowered in _MAY_BE_LAST or _INITIALS.match(core):
        return MAY_STOP
    if len(word) == 1 and unicodedata.category(word) == "Lu":
        return CONTINUES
    return STOPS

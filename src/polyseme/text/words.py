"""Raw text to words with offsets.

The definition of a word follows Unicode's default word boundaries (UAX #29), with a few choices of our own:

- Adjacent letters, digits and underscores are one word: `A4`, `naïve`, `snake_case`.
- An apostrophe, point or middle dot between two letters, and an apostrophe, point, comma or the like between two
  digits, stays inside the word: `don't`, `U.S`, `example.com`, `3.14`, `1,000`. A colon does not (UAX #29 leaves that
  to the language), nor does a hyphen.
- Marks and format characters (accents, vowel signs, joiners, the soft hyphen, direction marks) belong to the word they
  follow. Where they follow none they belong to the word after them; all by themselves they are a word. A zero width
  space belongs to the word it follows and ends it.
- Each Han character is a word. A run of Kana is a word, and so is a run of Thai, Lao, Khmer or Myanmar letters, since
  those scripts put no blanks between words and finding them would take a dictionary.
- An emoji is one word with all that is joined to it: skin tones, joined sequences, flags, keycaps.
- A run of one and the same mark is a word: an ellipsis `...`, a dash `--`, quotes `''`, `!!!`, a rule `=====`. That
  holds for ASCII punctuation other than brackets, for dashes and for the ellipsis.
- Every other character is a word by itself.

Whitespace and control characters are in no word; every other character is in exactly one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import groupby

from polyseme.types import Word

# Scripts written without blanks between words; ranges for a character class.
_HAN = "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = (
    "\u3031-\u3035\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
    "\U0001aff0-\U0001afff\U0001b000-\U0001b16f"
)
_THAI_LAO_KHMER_MYANMAR = (
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd-\u0ec6\u0edc-\u0edf"
    "\u1000-\u102a\u103f\u1050-\u108e\u109a-\u109d\u1780-\u17b3\u17d7\u17dc\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"
)

# UAX #29's MidNumLet and Single_Quote go between letters and between digits, MidLetter (without the colons) between
# letters, MidNum between digits.
_BETWEEN_BOTH = "'.\u2018\u2019\u2024\ufe52\uff07\uff0e"
_BETWEEN_LETTERS = _BETWEEN_BOTH + "\u00b7\u0387\u055f\u05f4\u2027"
_BETWEEN_DIGITS = _BETWEEN_BOTH + ",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b"
_LETTER = rf"[^\W\d_{_HAN}{_KANA}{_THAI_LAO_KHMER_MYANMAR}]"
# Inside a word, the character before is a letter or its mark if it is neither a digit nor an underscore.
_INSIDE = rf"(?<![\d_])[{_BETWEEN_LETTERS}](?={_LETTER})|(?<=\d)[{_BETWEEN_DIGITS}](?=\d)"
_INSIDE_HEBREW = '(?<=[\u05d0-\u05f2])"(?=[\u05d0-\u05f2])'

_RUN_OF_MARKS = r"([!-'*-/:-@\\^`|~\u2010-\u2015\u2026])\1*"
_CONTROL = r"\x00-\x1f\x7f-\x9f"
_REGIONAL = "[\U0001f1e6-\U0001f1ff]"
_SKIN_TONES = "\U0001f3fb-\U0001f3ff"
_ZERO_WIDTH_SPACE = "\u200b"
_ZERO_WIDTH_JOINER = "\u200d"

# Latin, Greek, Cyrillic and common punctuation: no marks, no format characters, no script or emoji with rules of its
# own. Text of nothing else is split by a pattern that is quicker to make and to run, with the same result.
_NOT_SIMPLE = re.compile("[^\x00-\xac\xae-\u02ff\u0370-\u0482\u048a-\u052f\u2010-\u2027\u2030-\u205e\u20a0-\u20bf]")
_SIMPLE = re.compile(rf"\w(?:\w+|{_INSIDE})*|{_RUN_OF_MARKS}|[^\s{_CONTROL}]")


def split_words(text: str) -> list[Word]:
    """The words of `text`, in order, each with its offsets.

    >>> split_words("Don't pay $3.50!")
    ["Don't", 'pay', '$', '3.50', '!']
    """
    return [word for stretch in _stretches(text) for word in _words_at(text, *stretch)]


def _words_at(text: str, start: int, end: int, pattern: re.Pattern[str]) -> Iterator[Word]:
    new = str.__new__  # Word(…) itself costs as much as finding the word
    for match in pattern.finditer(text, start, end):
        word = new(Word, match[0])
        word.start, word.end = match.span()
        yield word


def _stretches(text: str) -> Iterator[tuple[int, int, re.Pattern[str]]]:
    """The text in stretches, each with its pattern: lines with any unusual character need the full rules."""
    start = 0
    while unusual := _NOT_SIMPLE.search(text, start):
        line = text.rfind("\n", start, unusual.start()) + 1 or start
        line_end = text.find("\n", unusual.end())
        line_end = line_end if line_end >= 0 else len(text)
        yield start, line, _SIMPLE
        yield line, line_end, _general_pattern()
        start = line_end
    yield start, len(text), _SIMPLE


@cache
def _general_pattern() -> re.Pattern[str]:
    """The full rules; compiled when first needed, since that takes some hundredths of a second."""
    classes = _categories()
    mark = _ranges(classes, "Mn", "Mc", "Me", "Cf") + _SKIN_TONES
    symbol = _ranges(classes, "So", "Sm") + "\U0001f000-\U0001faff"
    letters = rf"[0-9A-Za-z]+|[^\W{_HAN}{_KANA}{_THAI_LAO_KHMER_MYANMAR}]+"
    return re.compile(
        rf"[{mark}{_ZERO_WIDTH_SPACE}]*"
        "(?:"
        rf"(?:{letters})(?:{letters}|[{mark}]+|{_INSIDE}|{_INSIDE_HEBREW})*"
        rf"|[{_HAN}]"
        rf"|[{_KANA}][{_KANA}{mark}]*"
        rf"|[{_THAI_LAO_KHMER_MYANMAR}][{_THAI_LAO_KHMER_MYANMAR}{mark}]*"
        rf"|{_RUN_OF_MARKS}"
        rf"|{_REGIONAL}{{2}}"
        rf"|[{symbol}](?:[{mark}]*(?<={_ZERO_WIDTH_JOINER})[{symbol}])*"
        rf"|[^\s{_CONTROL}]"
        ")"
        rf"[{mark}]*{_ZERO_WIDTH_SPACE}*"
    )


def _categories() -> dict[str, list[tuple[int, int]]]:
    """The first and last characters of all ranges of one general category, by category.

    Only planes that have marks, format characters or symbols are read: 0, 1, and the beginning of 14. The zero
    width space, which ends a word, is left out of the format characters.
    """
    ranges: dict[str, list[tuple[int, int]]] = {}
    for first, end in ((0x0, 0x200B), (0x200C, 0x20000), (0xE0000, 0xE0200)):
        for category, stretch in groupby(map(unicodedata.category, map(chr, range(first, end)))):
            length = sum(1 for _ in stretch)
            ranges.setdefault(category, []).append((first, first + length - 1))
            first += length
    return ranges


def _ranges(classes: Mapping[str, list[tuple[int, int]]], *categories: str) -> str:
    """The inside of a character class with all characters of the categories.

    >>> _ranges({"Nd": [(0x30, 0x39)], "Nl": [(0x2160, 0x2162)]}, "Nd", "Nl")
    '0-9Ⅰ-Ⅲ'
    """
    stretches = sorted(stretch for category in categories for stretch in classes[category])
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in stretches)

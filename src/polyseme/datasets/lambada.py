"""LAMBADA (Paperno et al. 2016): passages whose last word is to be guessed from all that goes before."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyseme.errors import InputError
from polyseme.files.rows import read_rows
from polyseme.text.words import split_words
from polyseme.types import Document, Word

FILES = ("lambada_test*.jsonl",)
_LAST = re.compile(r"\S+\s*\Z")


@dataclass(frozen=True)
class LastWord:
    """A passage; the last of its words, up to a blank, is the one to guess."""

    document: Document


def read_lambada(files: Sequence[Path]) -> list[LastWord]:
    """The passages, whatever field holds them: the official files have `text` and nothing else."""
    passages = []
    for file in files:
        with read_rows(file) as rows:
            for row in rows:
                text = row.content if isinstance(row.content, str) else " ".join(row.content)
                last = _LAST.search(text)
                if last is None or not text[: last.start()].strip():
                    raise InputError(
                        f"{row.place}: the passage is {'empty' if last is None else 'one word long'}. A last word is "
                        "predicted from what comes before it."
                    )
                text = text.rstrip()
                words = [word for word in split_words(text) if word.end <= last.start()]
                target = Word(text[last.start() :], last.start(), len(text))
                passages.append(LastWord(Document(text=text, words=[*words, target], id=row.id)))
    return passages

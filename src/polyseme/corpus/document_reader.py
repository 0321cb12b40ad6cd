r"""Users' files to documents, in stretches: lists of texts in UTF-8, each of about the same size whatever comes in.

Plain text is read in blocks of bytes, since line by line is several times slower. It has to be UTF-8 without NULs.
Line ends become `\n`. Records (JSON Lines, CSV, TSV, Parquet) come through `files.rows`, one document each.
"""

from __future__ import annotations

import codecs
import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

from polyseme.corpus.shards import SIDE
from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.atomic import AnyPath
from polyseme.files.lines import refuse_binary
from polyseme.files.readers import ENDINGS, READERS
from polyseme.files.rows import read_rows
from polyseme.files.source import READ_ERRORS, STANDARD_INPUT, Source, open_source, suffixes
from polyseme.files.source_paths import InputFiles, Sources, find_files, list_names

Documents = Literal["blank-lines", "file", "line", "record"]

STRETCH = 1 << 21
"""Bytes of text in a stretch, about."""
LONGEST = 1 << 23
"""Bytes of the longest document; longer ones are cut, at the end of a line where there is one."""

_BLOCK = 1 << 20
_LINE = re.compile(rb"\n")
_BLANK_LINES = re.compile(rb"\n(?:[ \t\r\v\f]*\n)+")
_EMPTY = re.compile(rb"\s*\Z")
_TEXT = "text"
"""The name of sources without one."""
_WEIGHTED = re.compile(r"(?P<name>\w[\w.-]*)=(?P<weight>[^:/\\*?\[]*):(?P<path>.+)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass
class Tally:
    """Oddities met while reading that are reported."""

    empty: int = 0
    """Documents with nothing in them, which are left out."""
    cut: int = 0
    """Documents longer than `LONGEST`, which are cut."""
    surrogates: int = 0
    """Documents with halves of characters, which are read as U+FFFD."""


class DocumentStretch(NamedTuple):
    """Some documents, one after another in their source."""

    texts: list[bytes]
    done: int
    """How many bytes of the source's files had been read then, as they lie on the disk."""


@dataclass
class TextSource:
    """Files that belong together, and how they are to be read."""

    name: str
    weight: float
    paths: InputFiles
    documents: Documents | None = None
    field: str | None = None
    format: str | None = None
    held_out: float | None = None
    """The share of its documents that is held out for evaluation; None: the share of the whole corpus."""
    tally: Tally = dataclasses.field(default_factory=Tally)

    @property
    def sides(self) -> Sequence[str]:
        return (SIDE,)

    @property
    def total(self) -> int:
        """Bytes of the files, as they lie on the disk."""
        return self.paths.total or 0

    def stretches(self) -> Iterator[DocumentStretch]:
        """The documents, those that are empty left out."""
        self.tally = Tally()
        return in_stretches(((part,), done) for text, done in self._documents() for part in _cut(text, self.tally))

    def _documents(self) -> Iterator[tuple[bytes, int]]:
        before = 0
        for name, size in zip(self.paths.names, self.paths.sizes, strict=True):
            kind = _kind(name, self.format)
            reading = self._texts(name) if kind == "text" else self._records(name)
            for text, done in reading:
                if _EMPTY.match(text):
                    self.tally.empty += kind != "text" or self.documents in ("line", "file")
                else:
                    yield text.strip(b"\n"), before + done
            before += size or 0

    def _records(self, name: str) -> Iterator[tuple[bytes, int]]:
        with read_rows(name, field=self.field, format=self.format) as rows:
            for row in rows:
                text = row.content if isinstance(row.content, str) else " ".join(row.content)
                try:
                    raw = text.encode()
                except UnicodeEncodeError:
                    self.tally.surrogates += 1
                    raw = _SURROGATE.sub("\ufffd", text).encode()
                yield raw.replace(b"\r\n", b"\n"), rows.done

    def _texts(self, name: str) -> Iterator[tuple[bytes, int]]:
        if self.documents == "line":
            yield from plain_lines(name)
            return
        source = open_source(name)
        try:
            blocks = _plain_text(source)
            yield from _whole(blocks, source) if self.documents == "file" else _split(blocks, source, _BLANK_LINES)
        finally:
            source.close()


def in_stretches(documents: Iterable[tuple[Sequence[bytes], int]]) -> Iterator[DocumentStretch]:
    """Documents, of one side or of several, and the reader's position after them, in stretches of about a size."""
    texts: list[bytes] = []
    size = done = 0
    for sides, done in documents:
        texts += sides
        size += sum(map(len, sides))
        if size >= STRETCH:
            yield DocumentStretch(texts, done)
            texts, size = [], 0
    if texts:
        yield DocumentStretch(texts, done)


def text_sources(
    sources: Sources | dict[str, tuple[Sources, float]], *, documents: str | None, field: str | None, format: str | None
) -> list[TextSource]:
    """What the user names, checked as far as it can be before anything is read."""
    if documents is not None and documents not in get_args(Documents):
        raise OptionError(f"Documents cannot be separated by {documents!r}. {nearest(documents, get_args(Documents))}")
    chosen = _format_named(format)
    named = sources if isinstance(sources, dict) else by_name(sources)
    result = []
    for name, (files, weight) in named.items():
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise OptionError(
                f"A source cannot be named {name!r}: a name has letters, digits, points, hyphens and underscores."
            )
        if not (isinstance(weight, int | float) and 0 < weight < float("inf")):
            raise OptionError(f"The weight of the source {name!r} must be a number above 0. Got {weight!r} instead.")
        paths = find_files(files, endings=ENDINGS if chosen is None else None)
        for file in paths.names:
            _check_documents(file, chosen, documents)
        by = cast(Documents | None, documents)
        result.append(TextSource(name, float(weight), paths, by, field, chosen))
    if not result:
        raise InputError("There is nothing to read: no file, folder or pattern was named.")
    names = [file for source in result for file in source.paths.names]
    if field is not None and all(_kind(name, chosen) == "text" for name in names):
        subject = f"{names[0]} is" if len(names) == 1 else f"all {len(names):,} files are"
        raise OptionError(f"The option 'field' is for records, and {subject} read as plain text. Leave it out.")
    return result


def by_name(sources: Sources) -> dict[str, tuple[Sources, float]]:
    """Sources named as NAME=WEIGHT:PATH by their names, and the rest together as `text`."""
    named: dict[str, tuple[list[AnyPath], float]] = {}
    for one in list_names(sources):
        name, weight, path = _TEXT, 1.0, one
        match = _WEIGHTED.fullmatch(one)
        if match is not None and not Path(one).exists():
            name, weight, path = match["name"], _weight(match["weight"], one), match["path"]
        paths, before = named.setdefault(name, ([], weight))
        if before != weight:
            raise OptionError(f"The source {name!r} was given two weights, {before:g} and {weight:g}. Give it one.")
        paths.append(path)
    return {name: (paths, weight) for name, (paths, weight) in named.items()}


def _weight(text: str, argument: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise OptionError(
            f"The weight in {argument} must be a number above 0. Got {text!r} instead. (There is no file of "
            "that name, so it was read as NAME=WEIGHT:PATH.)"
        )
    return weight


def _format_named(format: str | None) -> str | None:
    if format is None:
        return None
    name = format.lower().removeprefix(".")
    name = ENDINGS.get(f".{name}", name)
    if name not in READERS:
        raise OptionError(f"There is no format {format!r}. {nearest(name, READERS)}")
    return name


def _kind(file: str, format: str | None) -> str:
    return format or ("text" if file == STANDARD_INPUT else ENDINGS.get(suffixes(file)[0], "text"))


def _check_documents(file: str, format: str | None, documents: str | None) -> None:
    kind = _kind(file, format)
    if kind == "text":
        if documents == "record":
            raise OptionError(
                f"{file} is read as plain text, which has no records. Take blank lines, files or lines instead."
            )
    elif documents not in (None, "record"):
        raise OptionError(
            f"{file} is read as {kind}, one document per record. Documents by {documents!r} are for plain "
            "text: leave the option out."
        )


def _cut(text: bytes, tally: Tally) -> Iterator[bytes]:
    """A document, in parts if it is too long to be handled in one."""
    if len(text) <= LONGEST:
        yield text
        return
    tally.cut += 1
    start = 0
    while len(text) - start > LONGEST:
        end = _place_to_cut(text, start, start + LONGEST)
        yield text[start:end]
        start = end
    yield text[start:]


def _place_to_cut(text: bytes, start: int, most: int) -> int:
    """Where a text longer than `most` is cut, after `start`: before a line's end, else a blank, else a character."""
    place = max(text.rfind(b"\n", start + 1, most), 0) or max(text.rfind(b" ", start + 1, most), 0)
    if not place:
        place = most
        while text[place] & 0xC0 == 0x80:
            place -= 1
    return place


# --- plain text ------------------------------------------------------------------------------------------------------


def plain_lines(name: str) -> Iterator[tuple[bytes, int]]:
    """The lines of a file of plain text, and how many of its bytes were read by then."""
    source = open_source(name)
    try:
        yield from _split(_plain_text(source), source, _LINE)
    finally:
        source.close()


def _plain_text(source: Source) -> Iterator[bytes]:
    """The blocks of a file of plain text; one that is empty, or looks to be something else, is refused."""
    refuse_binary(source)
    return _checked(source)


def _checked(source: Source) -> Iterator[bytes]:
    """The bytes of a source, block by block, with line feeds for line ends; what is not UTF-8 is refused."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    n_bytes = n_lines = 0
    held = b""
    first = True
    while True:
        try:
            block = source.stream.read(_BLOCK)
        except READ_ERRORS as error:
            raise source.explain(error) from error
        _check(block, decoder, source.name, n_bytes, n_lines)
        if not block:
            break
        n_bytes += len(block)
        n_lines += block.count(b"\n")
        if first and block.startswith(codecs.BOM_UTF8):
            block = block[len(codecs.BOM_UTF8) :]
        first = False
        block = held + block
        held = b"\r" if block.endswith(b"\r") else b""
        yield block[: len(block) - len(held)].replace(b"\r\n", b"\n")
    if held:
        yield held


def _check(block: bytes, decoder: codecs.IncrementalDecoder, name: str, n_bytes: int, n_lines: int) -> None:
    before = decoder.getstate()[0]
    try:
        decoder.decode(block, final=not block)
    except UnicodeDecodeError as error:
        place = error.start - len(before)
        line = n_lines + block[: max(place, 0)].count(b"\n") + 1
        raise InputError(
            f"{name}, line {line}: byte {n_bytes + place} of the text (0x{error.object[error.start]:02X}) is not "
            "UTF-8. Convert the file with the encoding it has, for instance: iconv -f LATIN1 -t UTF-8 FILE > NEW"
        ) from error
    nul = block.find(b"\0")
    if nul >= 0:
        line = n_lines + block[:nul].count(b"\n") + 1
        raise InputError(f"{name}, line {line}: byte {n_bytes + nul} of the text is a NUL. Take it out: tr -d '\\0'")


def _whole(blocks: Iterator[bytes], source: Source) -> Iterator[tuple[bytes, int]]:
    """A file as one document, or as several where it is too long for one."""
    held: list[bytes] = []
    size = 0
    for block in blocks:
        held.append(block)
        size += len(block)
        if size > 2 * LONGEST:
            text = b"".join(held)
            place = _place_to_cut(text, 0, 2 * LONGEST)
            yield text[:place], source.done
            held, size = [text[place:]], len(text) - place
    yield b"".join(held), source.done


def _split(blocks: Iterator[bytes], source: Source, between: re.Pattern[bytes]) -> Iterator[tuple[bytes, int]]:
    """The documents of a file, which a pattern separates."""
    held: list[bytes] = []
    size = 0
    for block in blocks:
        last = held[-1] if held else b""
        held.append(block)
        size += len(block)
        if size <= 2 * LONGEST and not between.search(last + block):
            continue
        *texts, rest = between.split(b"".join(held))
        if not texts:
            place = _place_to_cut(rest, 0, 2 * LONGEST)
            texts, rest = [rest[:place]], rest[place:]
        for text in texts:
            yield text, source.done
        held, size = [rest], len(rest)
    if rest := b"".join(held):
        yield rest, source.done


def describe_files(paths: InputFiles) -> Sequence[str]:
    """The files of a source as they were named."""
    return [Path(name).as_posix() for name in paths.names]


def within_limit(stretches: Iterator[DocumentStretch], limit: int | None) -> Iterator[DocumentStretch]:
    """The stretches until there is enough."""
    size = 0
    for stretch in stretches:
        yield stretch
        size += sum(map(len, stretch.texts))
        if limit is not None and size >= limit:
            return

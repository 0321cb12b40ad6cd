"""The inputs of growth.py: rows, models, corpora and indexes, each made once and kept in a folder.

Texts are cut into rows of eight words, a row from each file in turn. Models have random weights, and one narrow layer
unless a job asks for more.
"""

from __future__ import annotations

import itertools
import json
import lzma
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import polyseme
from polyseme.files.vector_files import open_writer, read_provenance
from polyseme.text.documents import to_document
from polyseme.types import EmbeddedDocument

WORDS_PER_ROW = 8
QUERY = "The keys were [in] the drawer of the desk."
WIDTH_OF_USES = 384
"""Of the vectors in an index: as wide as MiniLM's."""
USES_PER_SHARD, ROWS_TOGETHER = 100_000, 512
KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "bert": ("wordpiece", ()),
    "gpt2": ("byte-bpe", ("causal",)),
}
"""Of each family its kind of tokenizer and its outputs."""


@dataclass
class Place:
    """The folder of inputs, each made when it is first asked for, and of outputs."""

    folder: Path
    texts: list[Path]

    def made(self, name: str, make: Callable[[Path], object]) -> Path:
        """A file or folder of this name, whole or not there: written beside, then renamed."""
        path = self.folder / name
        if not path.exists():
            part = Path(tempfile.mkdtemp(dir=self.folder, prefix="part-")) / name
            make(part)
            part.rename(path)
            part.parent.rmdir()
        return path

    def output(self, name: str) -> Path:
        """A path for an output, in a folder of its own."""
        return Path(tempfile.mkdtemp(dir=self.folder, prefix="out-")) / name

    def clear(self) -> None:
        """Remove outputs, and what was left half made."""
        for each in (*self.folder.glob("out-*"), *self.folder.glob("part-*")):
            shutil.rmtree(each)

    # --- texts --------------------------------------------------------------------------------------------------------

    def lines(self, n: int) -> list[str]:
        """So many rows of eight words."""
        rows = list(itertools.islice(in_turn(map(rows_of, self.texts)), n))
        if len(rows) < n:
            raise SystemExit(
                f"The texts have {len(rows):,} rows of {WORDS_PER_ROW} words, and {n:,} are needed. Name more files "
                "with --texts, or leave out larger sizes with --most."
            )
        return rows

    def long_texts(self, n: int, n_words: int) -> list[str]:
        """So many texts of so many words each."""
        each = n_words // WORDS_PER_ROW
        rows = self.lines(n * each)
        return [" ".join(rows[start : start + each]) for start in range(0, len(rows), each)]

    def rows(self, n: int) -> Path:
        """Rows, one per line."""
        return self.made(f"rows-{n}.txt", lambda path: write_lines(path, self.lines(n)))

    def labeled(self, n: int) -> Path:
        """Rows with a label that can be learned: whether "the" is among the words."""

        def record(row: str) -> str:
            return json.dumps({"text": row, "label": "yes" if "the" in row.split() else "no"})

        return self.made(f"labeled-{n}.jsonl", lambda path: write_lines(path, map(record, self.lines(n))))

    # --- models -------------------------------------------------------------------------------------------------------

    def tokenizer(self, kind: str, frame: str) -> Path:
        """The folder of a tokenizer with 4,000 pieces."""
        from polyseme.corpus.tokenizer_training import train_tokenizer

        def make(path: Path) -> None:
            path.mkdir()
            train_tokenizer(kind, self.lines(20_000), vocab_size=4_000, frame=frame).save(str(path))

        return self.made(f"tokenizer-{kind}", make)

    def model(self, family: str, *, width: int = 32, n_layers: int = 1) -> Any:
        """A model with random weights."""

        def make(path: Path) -> None:
            import torch

            from polyseme.api import Model
            from polyseme.bundle import new_bundle
            from polyseme.convert.families import FAMILIES
            from polyseme.text.tokenizer_files import load_tokenizer

            torch.manual_seed(0)
            (kind, outputs), each = KINDS[family], FAMILIES[family]
            tokenizer = load_tokenizer(self.tokenizer(kind, each.frame), frame=each.frame)
            shape = {"width": width, "inner_width": width, "n_layers": n_layers, "n_heads": max(width // 32, 1)}
            config = each.base().replace(n_pieces=tokenizer.n_pieces, max_positions=128, **shape)
            Model(new_bundle(each, config, outputs, tokenizer).eval()).save(path)

        return polyseme.load(self.made(f"{family}-{n_layers}x{width}", make), device="cpu")

    def finetune(self, n: int, *, frozen: bool, output: Path | None = None) -> object:
        """Fit the narrow encoder to labeled rows."""
        settings: dict[str, Any] = {"text": "text", "label": "label", "epochs": 1, "device": "cpu", "frozen": frozen}
        train, dev = self.labeled(n), self.labeled(200)
        return polyseme.finetune("classify", train=train, dev=dev, model=self.model("bert"), output=output, **settings)

    def task_model(self) -> Any:
        """A head over the frozen narrow encoder."""
        return polyseme.load(
            self.made("task", lambda path: self.finetune(1_000, frozen=True, output=path)), device="cpu"
        )

    # --- corpora and indexes ------------------------------------------------------------------------------------------

    def corpus(self, n: int, tokenizer: str, vocab_size: int, **options: Any) -> Path:
        """A corpus of rows, with a tokenizer trained on it."""
        settings = {"tokenizer": tokenizer, "vocab_size": vocab_size, "documents": "line", "workers": 1, **options}

        def make(path: Path) -> None:
            polyseme.build_corpus(self.rows(n), output=path, **settings)

        return self.made(f"corpus-{tokenizer}-{vocab_size}-{n}", make)

    def vectors(self, n: int) -> Path:
        """Shards of vectors as embed writes them, of so many words, with vectors that are drawn at random."""

        def make(path: Path) -> None:
            provenance = read_provenance(self.made("embedded.parquet", self._embed_few))
            rows, size = self.lines(n // WORDS_PER_ROW), USES_PER_SHARD // WORDS_PER_ROW
            path.mkdir()
            shards = []
            for number, start in enumerate(range(0, len(rows), size)):
                shard, part = path / f"part-{number:05}.parquet", rows[start : start + size]
                shards.append(partial(write_vectors, shard, part, provenance, start))
            in_processes(shards)

        return self.made(f"vectors-{n}", make)

    def _embed_few(self, path: Path) -> None:
        polyseme.embed(self.rows(1_000), output=path, model=self.model("bert", width=WIDTH_OF_USES))

    def build_index(self, n: int, folder: Path) -> None:
        """Write an index of so many uses, from their vectors, and query it once."""
        model = self.model("bert", width=WIDTH_OF_USES)
        polyseme.similar(QUERY, source=self.vectors(n), index=folder, model=model)

    def index(self, n: int) -> Path:
        """The folder of an index of so many uses."""
        return self.made(f"index-{n}", lambda path: self.build_index(n, path))


def write_vectors(path: Path, rows: Sequence[str], provenance: Mapping[str, Any], start: int) -> None:
    """Rows with vectors: half of each is its word's, half is drawn for each use."""
    rng = np.random.default_rng(start)
    of_words: dict[str, Any] = {}
    with open_writer(path, provenance=provenance) as writer:
        documents: list[EmbeddedDocument] = []
        for number, row in enumerate(rows, start=start + 1):
            document = to_document(row.split(), number)
            for word in document.words:
                if word not in of_words:
                    own = np.random.default_rng([*word.encode()])
                    of_words[word] = own.standard_normal(WIDTH_OF_USES, dtype=np.float32)
            vectors = np.stack([of_words[word] for word in document.words])
            vectors += rng.standard_normal(vectors.shape, dtype=np.float32)
            offsets = np.array([(word.start, word.end) for word in document.words])
            about = {"text": document.text, "words": document.words, "id": str(number)}
            documents.append(EmbeddedDocument(**about, offsets=offsets, vectors=vectors))
            if len(documents) == ROWS_TOGETHER or number == start + len(rows):
                writer.write(documents)
                documents = []


def in_processes(works: Iterable[Callable[[], object]]) -> None:
    """Do each of these in a forked process, all at once; end if one fails."""
    pids = []
    for work in works:
        pids.append(os.fork())
        if not pids[-1]:
            try:
                work()
            except BaseException:  # noqa: BLE001 - nothing may leave a forked process but its exit code
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]  # all are waited for
    if any(statuses):
        raise SystemExit(1)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """A text file."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def rows_of(path: Path) -> Iterator[str]:
    """Stretches of eight words of a text file, which may be compressed as `.xz`."""
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
        for line in file:
            words = line.split()
            for start in range(0, len(words) - WORDS_PER_ROW + 1, WORDS_PER_ROW):
                yield " ".join(words[start : start + WORDS_PER_ROW])


def in_turn(sources: Iterable[Iterator[str]]) -> Iterator[str]:
    """An item of each source in turn; one that has ended is left out.

    >>> list(in_turn([iter("abc"), iter("12")]))
    ['a', '1', 'b', '2', 'c']
    """
    left = list(sources)
    while left:
        still = []
        for source in left:
            for item in itertools.islice(source, 1):
                still.append(source)
                yield item
        left = still

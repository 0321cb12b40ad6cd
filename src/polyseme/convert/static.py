"""Static vectors: files of GloVe, word2vec and fastText, and folders of our own that hold what was read from them.

A folder has config.json with our config, model.safetensors with the table and the vector of unknown words, and
vocabulary.txt (`text.word_tokenizer`); it is mapped into memory, not read. A file is read whole, but for fastText's
dense tables, which are mapped as they stand.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyseme.config import EncoderConfig
from polyseme.convert.config_file import model_type, read_json, read_native_config, write_own
from polyseme.convert.conversion_table import Rule, Table
from polyseme.convert.family import HUGGING_FACE, Family, ModelFile
from polyseme.convert.fasttext_files import MAGIC, read_fasttext
from polyseme.convert.word_vector_files import HEAD, packed_as, read_words, recognize
from polyseme.encoders.static import StaticConfig
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.text import word_tokenizer
from polyseme.text.character_ngrams import CharacterNgrams
from polyseme.text.word_tokenizer import UNKNOWN, WordTokenizer
from polyseme.types import Tokenizer

NAME = "static"


def has_files(path: Path) -> bool:
    """A folder whose config.json has the family's name, or a file that holds word vectors, packed or not."""
    if path.is_file():
        head = _head(path)
        return head.startswith(MAGIC) or packed_as(head) is not None or recognize(head) is not None
    config = path / "config.json"
    return config.is_file() and model_type(read_json(config)) == NAME


def read_file(path: Path) -> ModelFile:
    """The words and vectors of a file, in whatever format it is."""
    head = _head(path)
    packed, words_file = packed_as(head), recognize(head)
    ngrams = None
    if packed is not None:
        raise ModelError(
            f"The file {path} is compressed ({packed}). Unpack it, and name the file of word vectors in it."
        )
    if head.startswith(MAGIC):
        model = read_fasttext(path)
        spelled, table, ngrams = model.words, model.table, model.ngrams
    elif words_file is not None:
        spelled, table = read_words(path, words_file)
    else:
        raise ModelError(f"The file {path} holds no word vectors of GloVe, word2vec or fastText.")
    words = _decode_words(spelled, path)
    _warn_of_duplicates(words, path)
    lowercase = ngrams is None and not any(word != word.lower() for word in words)
    tokenizer = WordTokenizer(words, lowercase=lowercase, ngrams=ngrams)
    unknown = np.zeros(table.shape[1], np.float32)
    row = tokenizer.row(UNKNOWN)
    if row is not None and ngrams is None:
        unknown = table[row].copy()
    config = StaticConfig(
        n_pieces=tokenizer.n_pieces,
        width=table.shape[1],
        n_words=len(words),
        lowercase=lowercase,
        **_spelling_config(ngrams),
    )
    return ModelFile(config, {"table": torch.from_numpy(table), "unknown": torch.from_numpy(unknown)}, tokenizer)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEAD)
    except OSError as error:
        raise ModelError(f"The file {path} cannot be read ({error.strerror}).") from None


def _decode_words(words: Sequence[bytes], path: Path) -> list[str]:
    """Words as text; what is no UTF-8 in them is replaced, and reported once."""
    try:
        return [word.decode() for word in words]
    except UnicodeDecodeError:
        pass
    texts = [word.decode("utf-8", "replace") for word in words]
    broken = [number for number, word in enumerate(words) if word != texts[number].encode()]
    warnings.warn(
        f"{path}: not valid UTF-8 in {len(broken):,} of {len(words):,} words; the broken bytes are read as U+FFFD. The "
        f"first is word {broken[0] + 1:,}, {texts[broken[0]]!r}.",
        PolysemeWarning,
        stacklevel=2,
    )
    return texts


def _warn_of_duplicates(words: Sequence[str], path: Path) -> None:
    n_again = len(words) - len(set(words))
    if not n_again:
        return
    seen: set[str] = set()
    first = next(word for word in words if word in seen or seen.add(word))  # type: ignore[func-returns-value]
    warnings.warn(
        f"{path}: {n_again:,} of {len(words):,} lines repeat a word ({first!r} is the first); the first vector of each "
        "word is used.",
        PolysemeWarning,
        stacklevel=2,
    )


def _spelling_config(ngrams: CharacterNgrams | None) -> dict[str, Any]:
    if ngrams is None:
        return {}
    return {name: getattr(ngrams, name) for name in ("min_ngram", "max_ngram", "n_buckets")}


# --- folders ---------------------------------------------------------------------------------------------------------


def read_config(theirs: Mapping[str, Any], where: str) -> StaticConfig:
    config: StaticConfig = read_native_config(StaticConfig, theirs, where)
    return config


def table(config: StaticConfig, tied: bool) -> Table:
    rules = [Rule((name,), (f"encoder.{name}",)) for name in ("table", "unknown")]
    return Table(prefix="", n_sets=0, body=rules, outputs={})


def _tokenizer(folder: Path, frame: str, config: EncoderConfig) -> Tokenizer:
    path = folder / word_tokenizer.VOCABULARY
    words = word_tokenizer.read_words(path)
    if not isinstance(config, StaticConfig):
        raise ModelError(f"The model in {folder} has no settings of static vectors.")
    ngrams = None
    if config.max_ngram:
        pruned = folder / word_tokenizer.BUCKETS
        buckets = tuple(word_tokenizer.read_buckets(pruned)) if pruned.is_file() else None
        ngrams = CharacterNgrams(config.min_ngram, config.max_ngram, config.n_buckets, buckets)
    tokenizer = WordTokenizer(words, lowercase=config.lowercase, ngrams=ngrams)
    if (len(words), tokenizer.n_pieces) != (config.n_words, config.n_pieces):
        raise ModelError(
            f"The vocabulary {path} has {len(words):,} words and, with n-grams, {tokenizer.n_pieces:,} pieces; "
            f"config.json says {config.n_words:,} and {config.n_pieces:,}. The two do not belong together."
        )
    return tokenizer


FAMILY = Family(
    name=NAME,
    kind="static",
    has_files=has_files,
    read_file=read_file,
    read_config=read_config,
    write_config=write_own,
    table=table,
    outputs={},
    architectures=[("StaticVectors", frozenset())],
    frame="none",
    base=lambda: StaticConfig(n_pieces=400_001, n_words=400_000, width=300, lowercase=True),
    small={"n_pieces": 99, "n_words": 38, "width": 12, "min_ngram": 3, "max_ngram": 4, "n_buckets": 60},
    reference=None,
    folder=dataclasses.replace(HUGGING_FACE, tokenizer=_tokenizer),
)

"""Vectors of word types in the formats of word2vec, which gensim and many others read.

Both begin with a line that has the number of words and the width. In the text format a line per word follows, with its
numbers, each written so that it is read back as the same float32; in the binary one, the word, a blank, the bytes of
its numbers and the end of a line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import OutputError, nearest
from polyseme.files.atomic import AnyPath, explained

Matrix = NDArray[Any]


def write_word2vec(path: AnyPath, words: Sequence[str], vectors: Matrix, *, shown: AnyPath | None = None) -> None:
    """Write words, which have no blanks in them, with their vectors [n, D]; the ending of the name decides the format.

    Errors speak of `shown`, where the path is only a place on the way.
    """
    write = FORMATS[check_word2vec(path)]
    with explained(path if shown is None else shown), Path(path).open("wb") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
        for word, vector in zip(words, vectors.astype(np.float32), strict=True):
            write(file, word.encode(), vector)


def check_word2vec(path: AnyPath) -> str:
    """The ending of a file of word vectors; any other is refused."""
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise OutputError(
            f"The ending of {path} names no format of word2vec. {nearest(ending, FORMATS)} (.bin is the binary one.)"
        )
    return ending


def _write_text(file: BinaryIO, word: bytes, vector: Matrix) -> None:
    numbers = " ".join(map(str, vector))  # of a float32, the shortest text that is read back as the same
    file.write(word + b" " + numbers.encode() + b"\n")


def _write_binary(file: BinaryIO, word: bytes, vector: Matrix) -> None:
    file.write(word + b" " + vector.astype("<f4").tobytes() + b"\n")


FORMATS: Mapping[str, Callable[[BinaryIO, bytes, Matrix], None]] = {
    ".vec": _write_text,
    ".txt": _write_text,
    ".bin": _write_binary,
}

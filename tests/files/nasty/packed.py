"""Archives that are cut short, damaged, empty, doubled or none at all."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable, Mapping

import pyarrow as pa

from files.nasty.case import Group

group = Group("packed", "in.txt")
gives, refuses = group.gives, group.refuses


def zstd(raw: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(raw, asbytes=True)
    return packed


PACK: Mapping[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstd,
}


def flipped(raw: bytes, at: int) -> bytes:
    changed = bytearray(raw)
    changed[at] ^= 0x55
    return bytes(changed)


CASES = [
    *(
        refuses(
            f"{suffix} cut short",
            pack(b'{"text": "%s"}\n' % os.urandom(30_000).hex().encode())[:-20],
            "damaged or was cut short",
            file=f"in.jsonl{suffix}",
        )
        for suffix, pack in PACK.items()
    ),
    *(
        refuses(f"garbage as {suffix}", b"text\nplain\n", "cannot be decompr", file=f"in.csv{suffix}")
        for suffix in PACK
    ),
    *(refuses(f"nothing in {suffix}", pack(b""), "is empty", file=f"in.txt{suffix}") for suffix, pack in PACK.items()),
    refuses("an empty .zst", b"", "is empty", file="in.txt.zst"),
    refuses("gz with a wrong bit", flipped(gzip.compress(b"a\n" * 99), -6), "damaged", file="in.txt.gz"),
    refuses("xz with a wrong bit", flipped(lzma.compress(b"a\n" * 99), -20), "damaged", file="in.txt.xz"),
    refuses("zst with garbage behind it", zstd(b"a\n") + b"garbage", "cannot be decompressed", file="in.txt.zst"),
    gives("zst end to end", zstd(b"a\n") + zstd(b"b\n"), ["a", "b"], file="in.txt.zst"),
    refuses("gz of gz", gzip.compress(gzip.compress(b"a\n")), "packed in", file="in.txt.gz"),
    refuses("gz called .txt", gzip.compress(b"a\n"), "compressed with gzip"),
    refuses("bz2 called .txt", bz2.compress(b"a\n"), "compressed with bzip2"),
]

"""Published vocabularies: those in `tests/golden`, unpacked, or all of them where the larger data is."""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path

from tokenizers.pre_tokenizers import ByteLevel

GOLDEN = Path(__file__).parent / "golden" / "vocab"
CHECKSUMS = {
    "albert/spiece.model": "fefb02b667a6c5c2fe27602d28e5fb3428f66ab89c7d6f388e7c8d44a02d0336",
    "bert-base-cased/vocab.txt": "eeaa9875b23b04b4c54ef759d03db9d1ba1554838f8fb26c5d96fa551df93d02",
    "bert-base-uncased/vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    "gpt2/encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "gpt2/vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
KINDS = sorted({Path(name).parent.name for name in CHECKSUMS})


def unpack(folder: Path) -> None:
    """Write the files as they were published."""
    for packed in GOLDEN.glob("*/*.xz"):
        path = folder / packed.parent.name / packed.stem
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.decompress(packed.read_bytes()))
    merges = (folder / "gpt2" / "vocab.bpe").read_text(encoding="utf-8").splitlines()[1:]
    (folder / "gpt2" / "encoder.json").write_text(json.dumps(number_pieces(merges)), encoding="utf-8")
    for name, checksum in CHECKSUMS.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == checksum, name


def number_pieces(merges: list[str]) -> dict[str, int]:
    """GPT-2's: the bytes, those that can be printed first, then what the merges make, then the end of a text."""
    letters = sorted(ByteLevel.alphabet())
    pieces = [*letters, *(merge.replace(" ", "") for merge in merges), "<|endoftext|>"]
    return {piece: number for number, piece in enumerate(pieces)}

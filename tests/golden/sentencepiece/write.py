"""Trains small models of many kinds, and writes them and the pieces that the library gives with them.

Run in the root of the repository: `python tests/golden/sentencepiece/write.py`
"""

from __future__ import annotations

import io
import json
import lzma
import sys
import tarfile
from pathlib import Path
from typing import Any

import sentencepiece

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[1]))
from text.sentencepiece_texts import FIXED, USER_DEFINED, random_texts  # noqa: E402

KINDS: dict[str, dict[str, Any]] = {
    "unigram": {},
    "unigram-identity": {"normalization_rule_name": "identity"},
    "unigram-nfkc-bytes": {"normalization_rule_name": "nfkc", "byte_fallback": True},
    "unigram-nmt_nfkc_cf-bytes": {"normalization_rule_name": "nmt_nfkc_cf", "byte_fallback": True},
    "unigram-nfkc_cf": {"normalization_rule_name": "nfkc_cf"},
    "unigram-user": {"user_defined_symbols": USER_DEFINED},
    "unigram-identity-user-bytes": {
        "normalization_rule_name": "identity", "user_defined_symbols": USER_DEFINED, "byte_fallback": True,
    },
    "unigram-no-prefix": {"add_dummy_prefix": False, "user_defined_symbols": USER_DEFINED},
    "unigram-all-blanks": {"remove_extra_whitespaces": False},
    "unigram-blanks-as-they-are": {"remove_extra_whitespaces": False, "add_dummy_prefix": False},
    "unigram-phrases": {"split_by_whitespace": False, "vocab_size": 300, "max_sentencepiece_length": 6},
    "bpe": {"model_type": "bpe"},
    "bpe-identity-bytes": {"model_type": "bpe", "normalization_rule_name": "identity", "byte_fallback": True},
    "bpe-nfkc_cf-user": {
        "model_type": "bpe", "normalization_rule_name": "nfkc_cf", "user_defined_symbols": USER_DEFINED,
    },
    "bpe-no-prefix-user": {"model_type": "bpe", "add_dummy_prefix": False, "user_defined_symbols": USER_DEFINED},
    "bpe-all-blanks": {"model_type": "bpe", "remove_extra_whitespaces": False},
}  # fmt: skip


def train(lines: list[str], options: dict[str, Any]) -> bytes:
    """A `.model` file."""
    made = io.BytesIO()
    size = 700 if options.get("byte_fallback") else 400
    settings: dict[str, Any] = {"vocab_size": size, "num_threads": 1, "minloglevel": 2, "hard_vocab_limit": False}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=made, **{**settings, **options}
    )
    return made.getvalue()


def encode(model: bytes, texts: list[str]) -> list[list[list[int]]]:
    """Of each text the ids of its pieces, where they start and where they end."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    result = []
    for text in texts:
        pieces, raw = processor.encode(text, return_type="proto").pieces, text.encode()
        edges = [[len(raw[: getattr(piece, name)].decode()) for piece in pieces] for name in ("begin", "end")]
        result.append([[piece.id for piece in pieces], *edges])
    return result


def main() -> None:
    """Write `models.tar.xz` and `pieces.json.xz`."""
    pages = sorted((FOLDER.parents[2] / "docs").glob("*.md"))[:12]
    lines = "\n".join(page.read_text(encoding="utf-8") for page in pages).split("\n")
    texts = [*FIXED, *random_texts(120, seed=1)]
    pieces: dict[str, Any] = {}
    with tarfile.open(FOLDER / "models.tar.xz", "w:xz", preset=9) as archive:
        for name, options in KINDS.items():
            model = train(lines, options)
            entry = tarfile.TarInfo(f"{name}.model")
            entry.size = len(model)
            archive.addfile(entry, io.BytesIO(model))
            pieces[name] = encode(model, texts)
    content = {"sentencepiece": sentencepiece.__version__, "texts": texts, "pieces": pieces}
    (FOLDER / "pieces.json.xz").write_bytes(lzma.compress(json.dumps(content, separators=(",", ":")).encode()))


if __name__ == "__main__":
    main()

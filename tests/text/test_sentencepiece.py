from __future__ import annotations

import io
import lzma
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given

from polyseme.errors import ModelError
from polyseme.text.load import load_tokenizer
from polyseme.text.sentencepiece import Kind, backend, read_model
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.text.words import document
from text.samples import texts

TokenizerOf = Callable[[str], PieceTokenizer]
Train = Callable[..., Path]


@pytest.fixture(scope="session")
def albert(data: Path) -> tuple[Any, Any]:
    """The library itself, and its file as we read it, both without the cleaning that ALBERT does beforehand."""
    path = data / "vocab" / "albert" / "spiece.model"
    ours = backend(read_model(path))
    ours.encode_special_tokens = True
    return sentencepiece.SentencePieceProcessor(model_file=str(path)), ours


@pytest.fixture(scope="session")
def train(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Trains a small model on real text with the library itself."""
    with lzma.open(data / "corpus" / "news-00.txt.xz", "rt", encoding="utf-8") as file:
        lines = file.read(150_000).split("\n")

    def small_model(name: str, **options: Any) -> Path:
        path = tmp_path_factory.mktemp("sentencepiece") / name
        made = io.BytesIO()
        settings: dict[str, Any] = {"vocab_size": 500, "num_threads": 1, "minloglevel": 2, **options}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=made, **settings)
        path.write_bytes(made.getvalue())
        return path

    return small_model


def tamed(text: str) -> str:
    """Without what is spelled like a special piece or like SentencePiece's own blank, and with marks in order."""
    for special in ("[MASK]", "[CLS]", "[SEP]", "<unk>", "<pad>", "<s>", "</s>", "▁"):
        text = text.replace(special, "")
    return unicodedata.normalize("NFKC", text)


def test_real_text(albert: tuple[Any, Any], data: Path) -> None:
    theirs, ours = albert
    with lzma.open(data / "corpus" / "web-00.txt.xz", "rt", encoding="utf-8") as file:
        lines = [tamed(line) for line in file.read(300_000).split("\n")]
    assert [encoding.ids for encoding in ours.encode_batch(lines)] == theirs.encode(lines)


def test_every_character(albert: tuple[Any, Any]) -> None:
    theirs, ours = albert
    odd = {"\u2581", "\u0344"}  # its own blank; a mark that NFC takes apart and SentencePiece leaves alone
    characters = [chr(code) for code in range(1, 0x20000)]
    known = [c for c in characters if unicodedata.category(c) not in ("Cn", "Cs", "Co") and c not in odd]
    lines = [f"a{c}b {c}" for c in known]
    assert [encoding.ids for encoding in ours.encode_batch(lines)] == theirs.encode(lines)


@given(texts)
def test_any_text(albert: tuple[Any, Any], text: str) -> None:
    theirs, ours = albert
    text = tamed(text)
    assert ours.encode(text).ids == theirs.encode(text)


def test_specials_written_out_are_text(tokenizer_of: TokenizerOf, albert: tuple[Any, Any]) -> None:
    theirs, tokenizer = albert[0], tokenizer_of("albert")
    for text in ("a [cls] b", "a <unk> b<pad>", "[mask]", "x[sep]y [pad]"):
        assert tokenizer.encode(document(text)).ids.tolist() == theirs.encode(text)


def test_what_albert_does_beforehand(tokenizer_of: TokenizerOf, data: Path) -> None:
    tokenizer = tokenizer_of("albert")
    for text, same in (("Élan Über", "elan uber"), ("``a''", '"a"'), ("ŁÓDŹ", "łodz")):
        assert tokenizer.encode(document(text)).ids.tolist() == tokenizer.encode(document(same)).ids.tolist()
    cased = load_tokenizer(data / "vocab" / "albert", lowercase=False)
    assert cased.encode(document("Élan")).ids.tolist() != cased.encode(document("élan")).ids.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model_type": "bpe"},
        {"byte_fallback": True, "vocab_size": 800},
        {"model_type": "bpe", "byte_fallback": True, "vocab_size": 800},
        {"user_defined_symbols": ["<new>", "New"]},
        {"normalization_rule_name": "identity"},
        {"normalization_rule_name": "nmt_nfkc_cf"},
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"split_by_whitespace": False, "vocab_size": 300, "max_sentencepiece_length": 6},
    ],
    ids=str,
)
def test_other_models(train: Train, options: dict[str, Any]) -> None:
    path = train("small.model", **options)
    theirs, ours = sentencepiece.SentencePieceProcessor(model_file=str(path)), backend(read_model(path))
    texts = [
        "The New York Times said so.",
        "a  b ",
        " naïve Übung — 3,000 <new>\tx",
        "ﬁn … 日本",
        "",
        "  ",
        "x\ny",
        "🙂 ok",
    ]
    assert [ours.encode(text).ids for text in texts] == theirs.encode(texts)


def test_what_a_file_says(data: Path) -> None:
    model = read_model(data / "vocab" / "albert" / "spiece.model")
    assert len(model.pieces) == 30_000
    assert [piece.text for piece in model.pieces[:5]] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert [piece.kind for piece in model.pieces[:6]] == [
        Kind.CONTROL, Kind.UNKNOWN, Kind.CONTROL, Kind.CONTROL, Kind.CONTROL, Kind.USER_DEFINED,
    ]  # fmt: skip
    assert (model.algorithm, model.normalization, len(model.charsmap)) == ("unigram", "nmt_nfkc", 237_539)


@pytest.mark.parametrize("keep", [1, 7, 1_000, 500_000, 760_288])
def test_a_file_cut_short_is_refused(data: Path, tmp_path: Path, keep: int) -> None:
    whole = (data / "vocab" / "albert" / "spiece.model").read_bytes()
    (tmp_path / "spiece.model").write_bytes(whole[:keep])
    with pytest.raises(ModelError, match="damaged or was cut short"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a model at all", bytes(100), b"\xff" * 100])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "spiece.model").write_bytes(content)
    with pytest.raises(ModelError, match="is not a SentencePiece model"):
        load_tokenizer(tmp_path)

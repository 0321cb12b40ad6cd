from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given

from polyseme.errors import ModelError
from polyseme.text.documents import make_document
from polyseme.text.sentencepiece import Kind, read_model
from polyseme.text.sentencepiece_encoding import SentencePieceEncoder
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.text.tokenizer_files import load_tokenizer
from text.samples import texts

TokenizerOf = Callable[[str], PieceTokenizer]
FolderOf = Callable[[str], Path]
RealText = Callable[[str, int], str]
Train = Callable[..., Path]


class Both:
    """The library itself with a file, and the file as we read it."""

    def __init__(self, path: Path) -> None:
        self.theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.ours = SentencePieceEncoder(read_model(path))

    def agree(self, texts: list[str]) -> bool:
        return [list(self.ours.encode(text)[0]) for text in texts] == self.theirs.encode(texts)


@pytest.fixture(scope="session")
def albert(folder_of: FolderOf) -> Both:
    """Without the cleaning that ALBERT does beforehand."""
    return Both(folder_of("albert") / "spiece.model")


@pytest.fixture(scope="session")
def train(real_text: RealText, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Trains a small model on real text with the library itself."""
    lines = real_text("news-00", 40_000).split("\n")

    def small_model(name: str, **options: Any) -> Path:
        path = tmp_path_factory.mktemp("sentencepiece") / name
        made = io.BytesIO()
        settings: dict[str, Any] = {"vocab_size": 500, "num_threads": 1, "minloglevel": 2, **options}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=made, **settings)
        path.write_bytes(made.getvalue())
        return path

    return small_model


def test_real_text(albert: Both, real_text: RealText) -> None:
    assert albert.agree(real_text("web-00", 300_000).split("\n"))


def test_every_character(albert: Both) -> None:
    characters = [chr(code) for code in range(1, 0x20000)]
    known = [c for c in characters if unicodedata.category(c) not in ("Cn", "Cs", "Co")]
    assert albert.agree([f"a{c}b {c}" for c in known])


@given(texts)
def test_any_text(albert: Both, text: str) -> None:
    assert albert.agree([text])


def test_what_nfkc_changes_and_the_table_keeps(train: Train) -> None:
    assert Both(train("tilde.model", required_chars="～~")).agree(["10～12", "a ～ b", "～", "㋿"])


def test_specials_written_out_are_text(tokenizer_of: TokenizerOf, albert: Both) -> None:
    tokenizer = tokenizer_of("albert")
    for text in ("a [cls] b", "a <unk> b<pad>", "[mask]", "x[sep]y [pad]"):
        assert tokenizer.encode(make_document(text)).ids.tolist() == albert.theirs.encode(text)


def test_dropped_characters_do_not_shift_what_follows(tokenizer_of: TokenizerOf) -> None:
    pieces = tokenizer_of("albert").encode(make_document("\x1fa\x7f cat"))
    assert pieces.spans.tolist() == [[1, 2], [4, 7]]
    assert (pieces.words.tolist(), pieces.n_unknown) == ([[0, 0], [1, 1]], 0)


def test_what_albert_does_beforehand(tokenizer_of: TokenizerOf, folder_of: FolderOf) -> None:
    tokenizer = tokenizer_of("albert")
    for text, same in (("Élan Über", "elan uber"), ("``a''", '"a"'), ("ŁÓDŹ", "łodz")):
        assert tokenizer.encode(make_document(text)).ids.tolist() == tokenizer.encode(make_document(same)).ids.tolist()
    cased = load_tokenizer(folder_of("albert"), lowercase=False)
    assert cased.encode(make_document("Élan")).ids.tolist() != cased.encode(make_document("élan")).ids.tolist()


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
    both = Both(train("small.model", **options))
    assert both.agree(
        [
            "The New York Times said so.",
            "a  b ",
            " naïve Übung — 3,000 <new>\tx",
            "ﬁn … 日本",
            "",
            "  ",
            "x\ny",
            "🙂 ok",
        ]
    )


@pytest.mark.parametrize("kind", ["word", "char"])
def test_models_of_words_or_characters_are_refused(train: Train, kind: str) -> None:
    with pytest.raises(ModelError, match=f"is a SentencePiece model of kind '{kind}'"):
        read_model(train("small.model", model_type=kind, vocab_size=100, hard_vocab_limit=False))


def test_what_a_file_says(folder_of: FolderOf) -> None:
    model = read_model(folder_of("albert") / "spiece.model")
    assert len(model.pieces) == 30_000
    assert [piece.text for piece in model.pieces[:5]] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert [piece.kind for piece in model.pieces[:6]] == [
        Kind.CONTROL, Kind.UNKNOWN, Kind.CONTROL, Kind.CONTROL, Kind.CONTROL, Kind.USER_DEFINED,
    ]  # fmt: skip
    assert (model.algorithm, model.normalization, len(model.charsmap)) == ("unigram", "nmt_nfkc", 237_539)


@pytest.mark.parametrize("keep", [1, 7, 1_000, 500_000, 760_288])
def test_a_file_cut_short_is_refused(folder_of: FolderOf, tmp_path: Path, keep: int) -> None:
    whole = (folder_of("albert") / "spiece.model").read_bytes()
    (tmp_path / "spiece.model").write_bytes(whole[:keep])
    with pytest.raises(ModelError, match="damaged or was cut short"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a model at all", bytes(100), b"\xff" * 100])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "spiece.model").write_bytes(content)
    with pytest.raises(ModelError, match="is not a SentencePiece model"):
        load_tokenizer(tmp_path)

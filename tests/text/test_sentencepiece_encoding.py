"""Equality with the SentencePiece library: with what it wrote down, and in a slow test with the library itself."""

from __future__ import annotations

import io
import itertools
import json
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyseme.errors import ModelError
from polyseme.text.documents import make_document
from polyseme.text.sentencepiece import BLANK, Kind, read_model
from polyseme.text.sentencepiece_encoding import SentencePieceEncoder
from polyseme.text.tokenizer_files import load_tokenizer
from text.sentencepiece_texts import FIXED, USER_DEFINED, random_texts

GOLDEN = Path(__file__).parents[1] / "golden" / "sentencepiece"
PIECES = json.loads(lzma.decompress((GOLDEN / "pieces.json.xz").read_bytes()))
ModelOf = Callable[[str], Path]


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> ModelOf:
    folder = tmp_path_factory.mktemp("sentencepiece")
    with tarfile.open(GOLDEN / "models.tar.xz") as archive:
        for entry in archive.getmembers():
            content = archive.extractfile(entry)
            assert content is not None
            (folder / entry.name).mkdir()
            (folder / entry.name / "spiece.model").write_bytes(content.read())
    return lambda name: folder / f"{name}.model" / "spiece.model"


@pytest.mark.parametrize("name", PIECES["pieces"])
def test_golden_pieces(model_of: ModelOf, name: str) -> None:
    encoder = SentencePieceEncoder(read_model(model_of(name)))
    for text, (ids, starts, ends) in zip(PIECES["texts"], PIECES["pieces"][name], strict=True):
        ours, edges, _, _ = encoder.encode(text)
        assert list(ours) == ids, text
        same_places(encoder, text, list(zip(ours, edges[::2], edges[1::2], starts, ends, strict=True)))


def same_places(encoder: SentencePieceEncoder, text: str, pieces: list[tuple[int, int, int, int, int]]) -> None:
    """Ours are theirs without blanks and characters that the table drops; they are in order.

    Where a piece ends inside of what one character became (the f of ﬁ), theirs has nothing of it.
    """
    model = encoder.model
    for id, start, end, first, last in pieces:
        if model.pieces[id].kind == Kind.BYTE or not model.pieces[id].text.strip(BLANK):
            continue  # theirs has a character at its last byte; a blank alone is where what follows is
        if any(piece in text for piece in model.user_defined):
            continue  # theirs takes all of such a piece for where each of its characters is
        assert first <= start < end, (text, model.pieces[id].text)
        assert end <= last or encoder.encode(text[last:end])[0] not in ((), (id,)), (text, model.pieces[id].text)
        around = encoder.encode(text[first:start])[0] + encoder.encode(text[end:last])[0]
        assert all(not model.pieces[each].text.strip(BLANK) for each in around), (text, model.pieces[id].text)
    ours = [(start, end) for _, start, end, _, _ in pieces]
    assert ours == sorted(ours), text


@pytest.mark.parametrize("name", ["unigram", "unigram-identity-user-bytes", "unigram-phrases", "bpe-nfkc_cf-user"])
def test_what_is_saved_encodes_likewise(model_of: ModelOf, tmp_path: Path, name: str) -> None:
    tokenizer = load_tokenizer(model_of(name).parent)
    tokenizer.save(str(tmp_path))
    again = load_tokenizer(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    for text, (ids, _, _) in list(zip(PIECES["texts"], PIECES["pieces"][name], strict=True))[::2]:
        saved, read = again.encode(make_document(text)), tokenizer.encode(make_document(text))
        assert saved.ids.tolist() == read.ids.tolist()
        assert saved.spans.tolist() == read.spans.tolist()
        parts, _ = tokenizer._encoder.parts(make_document(text))
        assert tokenizer._encoder.encode(parts, np.array([len(parts)])).ids.tolist() == ids


@pytest.mark.parametrize(
    "damage",
    [
        {"bytes": [10**9]},
        {"user_defined": None},
        {"cleaning_steps": 1},
        {"byte_fallback": "yes"},
        {"unmatched": {"a": 1}},
    ],
    ids=str,
)
def test_settings_that_do_not_belong_are_refused(model_of: ModelOf, tmp_path: Path, damage: dict[str, Any]) -> None:
    load_tokenizer(model_of("unigram").parent).save(str(tmp_path))
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings["sentencepiece"] |= damage
    path.write_text(json.dumps(settings))
    with pytest.raises(ModelError, match="does not belong to") as refused:
        load_tokenizer(tmp_path)
    assert "\n" not in str(refused.value)


def test_blanks_after_words_are_refused(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    trained(sentencepiece, tmp_path / "spiece.model", ["a few words of text"] * 3, treat_whitespace_as_suffix=True)
    with pytest.raises(ModelError, match="writes blanks after words"):
        load_tokenizer(tmp_path)


def trained(sentencepiece: Any, path: Path, lines: list[str], **options: Any) -> Path:
    made = io.BytesIO()
    size = 700 if options.get("byte_fallback") else 400
    settings: dict[str, Any] = {"vocab_size": size, "num_threads": 1, "minloglevel": 2, "hard_vocab_limit": False}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=made, **{**settings, **options}
    )
    path.write_bytes(made.getvalue())
    return path


NORMALIZATIONS = ("identity", "nfkc", "nmt_nfkc", "nmt_nfkc_cf", "nfkc_cf")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unigram", "bpe", "word", "char"])
@pytest.mark.parametrize("user_defined", [[], USER_DEFINED], ids=["plain", "user-defined"])
def test_the_library_itself(
    kind: str, user_defined: list[str], tmp_path: Path, real_text: Callable[[str, int], str]
) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    lines = real_text("news-00", 60_000).split("\n")
    texts = [*FIXED, *random_texts(600, seed=2), *real_text("web-00", 100_000).split("\n")]
    variants: list[dict[str, Any]] = [
        {"normalization_rule_name": name, "byte_fallback": fallback}
        for name, fallback in itertools.product(NORMALIZATIONS, (False, True))
    ]
    variants += [
        {"add_dummy_prefix": prefix, "remove_extra_whitespaces": remove}
        for prefix, remove in itertools.product((False, True), (False, True))
    ]
    variants += [
        {"split_by_whitespace": False, "max_sentencepiece_length": 6},
        {"allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False},
        {"normalization_rule_name": "nfkc", "character_coverage": 0.98},
        {"split_digits": True, "split_by_unicode_script": False},
    ]
    for number, options in enumerate(variants):
        path = tmp_path / f"{number}.model"
        trained(sentencepiece, path, lines, model_type=kind, user_defined_symbols=user_defined, **options)
        if kind in ("word", "char"):
            with pytest.raises(ModelError, match="only unigram and BPE can be read"):
                read_model(path)
            continue
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(path)).encode(texts)
        encoder = SentencePieceEncoder(read_model(path))
        for text, ids in zip(texts, theirs, strict=True):
            assert list(encoder.encode(text).ids) == ids, (options, text)

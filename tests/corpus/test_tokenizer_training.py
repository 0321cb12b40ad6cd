from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from corpus.texts import made_up
from polyseme.corpus.tokenizer_training import KINDS, train_tokenizer
from polyseme.errors import OptionError
from polyseme.text.documents import make_document
from polyseme.text.framing import FRAMES
from polyseme.text.tokenizer_files import load_tokenizer

TEXTS = made_up(40, seed=1)
VOCAB = {"wordpiece": 150, "bpe": 150, "byte-bpe": 350, "unigram": 120}


@pytest.mark.parametrize(
    ("kind", "frame"),
    [("wordpiece", None), ("bpe", None), ("byte-bpe", None), ("byte-bpe", "gpt2"), ("unigram", None),
     ("unigram", "xlnet"), ("unigram", "t5"), ("unigram", "roberta"), ("byte-bpe", "bert")],
)  # fmt: skip
def test_what_is_trained_is_saved_and_loaded_as_it_is(kind: str, frame: str | None, tmp_path: Path):
    vocab_size = VOCAB[kind] + (100 if frame == "t5" else 0)  # for its sentinels
    tokenizer = train_tokenizer(kind, TEXTS, vocab_size=vocab_size, frame=frame)
    expected = FRAMES[frame or KINDS[kind].frame]
    assert tokenizer.framing == expected
    assert tokenizer.n_pieces <= vocab_size
    assert set(tokenizer.specials) == set(expected.specials)
    tokenizer.save(str(tmp_path))
    for loaded in (load_tokenizer(tmp_path), load_tokenizer(tmp_path, frame=expected)):
        assert loaded.fingerprint == tokenizer.fingerprint
        assert loaded.framing == tokenizer.framing
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in TEXTS[:5]:
        pieces = tokenizer.encode(make_document(text))
        assert theirs.encode(text).ids == tokenizer.frame(pieces.ids).ids.tolist()
        assert set(tokenizer.specials.values()).isdisjoint(pieces.ids.tolist())


def test_pieces_are_learnt_and_decoded():
    for kind, vocab_size in VOCAB.items():
        tokenizer = train_tokenizer(kind, TEXTS, vocab_size=vocab_size, lowercase=False)
        ids = tokenizer.encode(make_document("Ren lo tas")).ids.tolist()
        assert len(ids) < len("Ren lo tas")
        assert tokenizer.decode(ids).strip() == "Ren lo tas"


def test_specials_are_numbered_as_the_families_do():
    assert train_tokenizer("wordpiece", TEXTS, vocab_size=150).pieces(range(5)) == [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    ]  # fmt: skip
    assert train_tokenizer("byte-bpe", TEXTS, vocab_size=300).pieces(range(5)) == [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        "<mask>",
    ]
    assert train_tokenizer("byte-bpe", TEXTS, vocab_size=300, frame="gpt2").pieces([0]) == ["<|endoftext|>"]


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe", "byte-bpe"])
def test_lower_casing_is_a_choice(kind: str):
    for lowercase in (True, False):
        tokenizer = train_tokenizer(kind, TEXTS, vocab_size=VOCAB[kind], lowercase=lowercase)
        small, large = (tokenizer.encode(make_document(text)).ids.tolist() for text in ("ren lo", "REN LO"))
        assert (small == large) == lowercase


def test_rare_characters_are_left_to_the_unknown_piece():
    texts = [*TEXTS, "".join(chr(0x4E00 + n) + " " for n in range(500))]
    tokenizer = train_tokenizer("wordpiece", texts, vocab_size=200)
    pieces = tokenizer.pieces(range(tokenizer.n_pieces))
    assert sum(piece.removeprefix("##") >= "\u4e00" for piece in pieces) < 60
    assert {"a", "##a"} <= set(pieces)


PROGRAM = """
import sys, json
from polyseme.corpus.tokenizer_training import train_tokenizer
print(train_tokenizer(sys.argv[1], json.load(sys.stdin), vocab_size=int(sys.argv[2])).fingerprint)
"""


@pytest.mark.parametrize("kind", ["wordpiece", pytest.param("bpe", marks=pytest.mark.slow), "byte-bpe"])
def test_every_process_learns_the_same(kind: str):
    texts = json.dumps([*TEXTS, "".join(map(chr, range(0x390, 0x500)))])
    line = [sys.executable, "-c", PROGRAM, kind, str(VOCAB[kind] + 150)]
    found = {subprocess.run(line, input=texts.encode(), capture_output=True, check=True).stdout for _ in range(3)}
    assert len(found) == 1


def test_what_cannot_be_is_refused():
    with pytest.raises(OptionError, match="Did you mean 'wordpiece'"):
        train_tokenizer("wordpeice", TEXTS, vocab_size=100)
    with pytest.raises(OptionError, match=r"cannot be learned from this text .*all chars"):
        train_tokenizer("unigram", TEXTS, vocab_size=110, frame="t5")
    with pytest.raises(OptionError, match="at least 262 pieces"):
        train_tokenizer("byte-bpe", TEXTS, vocab_size=200)
    with pytest.raises(OptionError, match="no frame 'brt'"):
        train_tokenizer("wordpiece", TEXTS, vocab_size=200, frame="brt")
    with pytest.raises(OptionError, match="needs a piece for what is unknown"):
        train_tokenizer("wordpiece", TEXTS, vocab_size=200, frame="gpt2")

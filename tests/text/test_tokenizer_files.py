from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import transformers
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import WordLevel

from polyseme.errors import ModelError
from polyseme.text.documents import make_document
from polyseme.text.framing import FRAMES
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.text.tokenizer_files import load_tokenizer
from text.samples import KINDS

TokenizerOf = Callable[[str], PieceTokenizer]
FolderOf = Callable[[str], Path]

TEXTS = (
    "This isn't too surprising, is it? Über-naïve 3,000 …",
    "  two  blanks\tand\nlines ",
    "日本語 नमस्ते 👩‍👩‍👧 ﬁn e\u0301",
    "``quoted'' U.S. --- x_y",
    "",
)


@pytest.fixture(scope="session")
def lines(real_text: Callable[[str, int], str]) -> list[str]:
    return [*TEXTS, *real_text("web-00", 20_000).split("\n")]


def ids_with_specials(tokenizer: PieceTokenizer, text: str, pair: str | None = None) -> tuple[list[int], list[int]]:
    a, b = (None if part is None else tokenizer._encoder.encode([part]).ids for part in (text, pair))
    framed = tokenizer.frame(a, b)
    return framed.ids.tolist(), framed.segments.tolist()


def same_as_theirs(ours: PieceTokenizer, theirs: Any, lines: list[str]) -> None:
    for text in lines:
        assert ids_with_specials(ours, text)[0] == theirs(text)["input_ids"], text
        ids, segments = ids_with_specials(ours, text, "and a pair")
        row = theirs(text, "and a pair")
        assert ids == row["input_ids"]
        assert segments == row.get("token_type_ids", segments)


# --- equality with the reference library -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert-base-cased", "bert-base-uncased"])
def test_wordpiece(tokenizer_of: TokenizerOf, folder_of: FolderOf, kind: str, lines: list[str]) -> None:
    theirs = transformers.BertTokenizer.from_pretrained(folder_of(kind), do_lower_case=kind.endswith("uncased"))
    same_as_theirs(tokenizer_of(kind), theirs, lines)


@pytest.mark.parametrize(
    ("kind", "files", "theirs"),
    [
        ("gpt2", ("encoder.json", "vocab.bpe"), transformers.GPT2Tokenizer),
        ("openai-gpt", ("encoder_bpe_40000.json", "vocab_40000.bpe"), transformers.OpenAIGPTTokenizer),
    ],
)
def test_bpe_under_both_names(
    tokenizer_of: TokenizerOf, folder_of: FolderOf, tmp_path: Path, lines: list[str], kind: str, files: Any, theirs: Any
) -> None:
    for name, new in zip(files, ("vocab.json", "merges.txt"), strict=True):
        shutil.copy(folder_of(kind) / name, tmp_path / new)
    assert load_tokenizer(tmp_path).fingerprint == tokenizer_of(kind).fingerprint
    same_as_theirs(tokenizer_of(kind), theirs.from_pretrained(tmp_path), lines)


@pytest.mark.parametrize("name", ["RobertaTokenizer", "BartTokenizer"])
def test_fairseq_order(tokenizer_of: TokenizerOf, tmp_path: Path, lines: list[str], name: str) -> None:
    """Written down the way the reference library wants it, the pieces are those of dict.txt."""
    ours = tokenizer_of("roberta")
    model = json.loads(ours.backend.to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *map(" ".join, model["merges"])]) + "\n")
    assert load_tokenizer(tmp_path).fingerprint == ours.fingerprint
    same_as_theirs(ours, getattr(transformers, name).from_pretrained(tmp_path), lines)


def test_albert(tokenizer_of: TokenizerOf, folder_of: FolderOf, lines: list[str]) -> None:
    """Transformers 5 takes ALBERT's own symbols for words and puts a blank after them; SentencePiece does not."""
    without_symbols = [line.translate(dict.fromkeys(map(ord, "()\"-.–£€`'"), " ")) for line in lines]
    theirs = transformers.AlbertTokenizer.from_pretrained(folder_of("albert"))
    same_as_theirs(tokenizer_of("albert"), theirs, without_symbols)


def small_model(lines: list[str], path: Path, **options: Any) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(path.with_suffix("")), vocab_size=500, num_threads=1,
        minloglevel=2, hard_vocab_limit=False, **options,
    )  # fmt: skip


def test_xlm_roberta(tmp_path: Path, lines: list[str]) -> None:
    """Pieces come one later than in the file, after <s>, <pad>, </s> and <unk>; <mask> comes last."""
    small_model(lines, tmp_path / "sentencepiece.bpe.model")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "sentencepiece.bpe.model"))
    ours = load_tokenizer(tmp_path)
    size = theirs.vocab_size()
    assert dict(ours.specials) == {"start": 0, "pad": 1, "end": 2, "unknown": 3, "mask": size + 1}
    assert ours.n_pieces == size + 2
    assert ours.pieces(range(4, size + 1)) == [theirs.id_to_piece(id) for id in range(3, size)]
    assert ours.framing == FRAMES["roberta"]
    for line in lines:
        assert ours._encoder.encode([line]).ids.tolist() == [id + 1 if id else 3 for id in theirs.encode(line)]
    same_as_theirs(ours, transformers.XLMRobertaTokenizer.from_pretrained(tmp_path), lines)


def test_xlnet(tmp_path: Path, lines: list[str]) -> None:
    small_model(lines, tmp_path / "spiece.model", control_symbols=["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"])
    ours = load_tokenizer(tmp_path)
    assert ours.framing == FRAMES["xlnet"]
    same_as_theirs(ours, transformers.XLNetTokenizer.from_pretrained(tmp_path), lines)
    framed = ours.frame(np.array([9]))
    assert ours.pieces(framed.ids)[1:] == ["<sep>", "<cls>"]
    assert framed.segments.tolist() == [0, 0, 2]


def test_t5(tmp_path: Path, lines: list[str]) -> None:
    small_model(lines, tmp_path / "spiece.model", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    ours = load_tokenizer(tmp_path)
    assert ours.framing == FRAMES["t5"]
    theirs = transformers.T5Tokenizer.from_pretrained(tmp_path)
    assert ours.n_pieces == len(theirs)
    sentinels = ["<extra_id_0>", "<extra_id_99>"]
    assert [ours.backend.token_to_id(piece) for piece in sentinels] == theirs.convert_tokens_to_ids(sentinels)
    same_as_theirs(ours, theirs, lines)


@pytest.mark.parametrize("kind", ["bert-base-cased", "roberta", "albert"])
def test_masks(tokenizer_of: TokenizerOf, folder_of: FolderOf, tmp_path: Path, kind: str) -> None:
    ours = tokenizer_of(kind)
    ours.save(str(tmp_path))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("a {} b", "{}", "a{}b {}.", "The {}, {} ."):
        masked = text.replace("{}", theirs.mask_token)
        assert ours.encode_with_masks(masked).ids.tolist() == theirs(masked, add_special_tokens=False)["input_ids"]


# --- saving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_loads_here_and_elsewhere(
    tokenizer_of: TokenizerOf, tmp_path: Path, lines: list[str], kind: str
) -> None:
    ours = tokenizer_of(kind)
    ours.save(str(tmp_path))
    again = load_tokenizer(tmp_path)
    assert again.framing == ours.framing
    assert again.fingerprint == ours.fingerprint
    assert dict(again.specials) == dict(ours.specials)
    same_as_theirs(ours, transformers.AutoTokenizer.from_pretrained(tmp_path), lines)


def test_what_is_saved_beside_a_model_of_another_library_loads_there(tokenizer_of: TokenizerOf, tmp_path: Path) -> None:
    """Their loader looks at the model's kind first."""
    for kind, model in (("bert-base-cased", "bert"), ("roberta", "roberta"), ("albert", "albert"), ("gpt2", "gpt2")):
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": model}))
        tokenizer_of(kind).save(str(folder))
        same_as_theirs(tokenizer_of(kind), transformers.AutoTokenizer.from_pretrained(folder), list(TEXTS))


# --- which files, which settings -------------------------------------------------------------------------------------


def test_a_folder_without_a_tokenizer_is_refused_with_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer.*tokenizer\.json; vocab\.txt; vocab\.json with merges\.txt"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer.json": "{"}, "tokenizer.json is not a tokenizer"),
        ({"tokenizer.json": '{"model": {}}'}, "tokenizer.json is not a tokenizer"),
        ({"vocab.json": "{", "merges.txt": ""}, "vocab.json is not JSON"),
        ({"vocab.json": "[]", "merges.txt": ""}, "one JSON object from pieces to ids"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a b c"}, "Line 1 of .*merges.txt"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a b"}, "do not belong together"),
        ({"encoder.json": '{"a": 0}', "vocab.bpe": "#version", "dict.txt": "5 1"}, "lacks some of the pieces"),
        ({"vocab.txt": "just\nlines"}, r"no piece \[UNK\]"),
        ({"vocab.txt": "[UNK]\n[CLS]"}, "no special piece for end"),
        ({"vocab.txt": "[UNK]", "tokenizer_config.json": "{"}, "tokenizer_config.json is not JSON"),
        ({"vocab.txt": "[UNK]", "tokenizer_config.json": "[]"}, "must hold one JSON object"),
    ],
)
def test_files_that_are_not_in_order_are_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(ModelError, match=message):
        load_tokenizer(tmp_path)


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(b"[UNK]\n\xff")
    with pytest.raises(ModelError, match="not text in UTF-8"):
        load_tokenizer(tmp_path)


def test_lower_casing_is_said_by_the_caller_the_settings_or_the_pieces(folder_of: FolderOf, tmp_path: Path) -> None:
    def first_piece(folder: Path, **options: Any) -> str:
        tokenizer = load_tokenizer(folder, **options)
        return tokenizer.pieces(tokenizer.encode(make_document("Cat")).ids)[0]

    cased, uncased = folder_of("bert-base-cased"), folder_of("bert-base-uncased")
    assert (first_piece(cased), first_piece(uncased)) == ("Cat", "cat")
    assert (first_piece(cased, lowercase=True), first_piece(uncased, lowercase=False)) == ("cat", "[UNK]")
    shutil.copy(cased / "vocab.txt", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert (first_piece(tmp_path), first_piece(tmp_path, lowercase=False)) == ("cat", "Cat")
    load_tokenizer(tmp_path).save(str(tmp_path))
    assert (first_piece(tmp_path), first_piece(tmp_path, lowercase=False)) == ("cat", "Cat")


def test_lower_casing_that_cannot_be_changed_is_refused(tokenizer_of: TokenizerOf, tmp_path: Path) -> None:
    tokenizer_of("gpt2").save(str(tmp_path))
    load_tokenizer(tmp_path, lowercase=False)
    with pytest.raises(ModelError, match="cannot be changed"):
        load_tokenizer(tmp_path, lowercase=True)


def small_tokenizer(*pieces: str) -> Tokenizer:
    backend = Tokenizer(WordLevel({piece: id for id, piece in enumerate(pieces)}, unk_token=pieces[0]))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return backend


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        (None, "[CLS] x [SEP]"),
        (processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)), "[CLS] x [SEP]"),
        (
            processors.TemplateProcessing(single="$A [SEP]", pair="$A [SEP] $B [SEP]", special_tokens=[("[SEP]", 2)]),
            "x [SEP]",
        ),
        (
            processors.Sequence(
                [
                    processors.ByteLevel(),
                    processors.TemplateProcessing(single="[X] $A", pair="[X] $A $B:1", special_tokens=[("[X]", 3)]),
                ]
            ),
            "[X] x",
        ),
    ],
)
def test_the_frame_that_a_tokenizer_itself_describes(tmp_path: Path, processor: Any, expected: str) -> None:
    backend = small_tokenizer("[UNK]", "[CLS]", "[SEP]", "[X]", "x")
    if processor is not None:
        backend.post_processor = processor
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.pieces(tokenizer.frame(tokenizer.encode(make_document("x")).ids).ids) == expected.split()
    assert tokenizer.unit == "word"


def test_specials_are_named_in_settings(tmp_path: Path) -> None:
    small_tokenizer("[UNK]", "<a>", "<b>", "<c>", "x").save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match="no special piece for end and start"):
        load_tokenizer(tmp_path, frame="bert")
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"cls_token": "<c>", "sep_token": {"content": "<b>"}}))
    assert dict(load_tokenizer(tmp_path, frame="bert").specials) == {"start": 3, "end": 2, "unknown": 0}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"cls_token": "<a>"}))
    assert dict(load_tokenizer(tmp_path, frame="bert").specials) == {"start": 1, "end": 2, "unknown": 0}


def test_the_frame_is_the_callers_to_choose(folder_of: FolderOf) -> None:
    folder = folder_of("bert-base-cased")
    assert load_tokenizer(folder, frame="none").n_specials == 0
    assert load_tokenizer(folder, frame="roberta").frame(np.array([5]), np.array([6])).ids.tolist() == [
        101,
        5,
        102,
        102,
        6,
        102,
    ]
    assert load_tokenizer(folder, frame=FRAMES["bert"]).framing == FRAMES["bert"]
    with pytest.raises(ModelError, match="no frame 'berd'"):
        load_tokenizer(folder, frame="berd")

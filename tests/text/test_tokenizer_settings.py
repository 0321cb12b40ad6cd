"""tokenizer.json beside tokenizer_config.json: what each of them decides, as in the reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from polyseme.errors import ModelError
from polyseme.text.documents import make_document
from polyseme.text.framing import FRAMES
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.text.tokenizer_files import load_tokenizer

END_OF_TEXT = "<|endoftext|>"
ENDS = {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT, "unk_token": END_OF_TEXT}
TEXT = "A É e\u0301 中国 a"


def byte_level(processor: Any = None, *, prefix: bool = False) -> Tokenizer:
    pieces = [END_OF_TEXT, "<sep>", "<cls>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE({piece: id for id, piece in enumerate(pieces)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    backend.add_special_tokens([AddedToken(piece, special=True) for piece in pieces[:3]])
    if processor is not None:
        backend.post_processor = processor
    return backend


def word_piece(*, lowercase: bool) -> Tokenizer:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "A", "é", "e", "É", "E", "中", "国", "##国"]
    backend = Tokenizer(models.WordPiece({piece: id for id, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = template("[CLS] $A [SEP]", {"[CLS]": 2, "[SEP]": 3}, "[CLS] $A [SEP] $B:1 [SEP]:1")
    return backend


def template(single: str, specials: dict[str, int], pair: str = "$A $B") -> processors.TemplateProcessing:
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=list(specials.items()))


def saved(folder: Path, backend: Tokenizer, settings: dict[str, Any], model_type: str) -> Path:
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
    return folder


def rows_of(ours: PieceTokenizer, text: str = TEXT) -> list[int]:
    return ours.frame(ours.encode(make_document(text)).ids).ids.tolist()


def theirs(folder: Path, text: str = TEXT) -> list[int]:
    ids: list[int] = transformers.AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    return ids


# --- templates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["GPT2Tokenizer", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize(
    "processor",
    [
        None,
        processors.ByteLevel(),
        template(f"{END_OF_TEXT} $A", {END_OF_TEXT: 0}),
        template(f"{END_OF_TEXT} $A {END_OF_TEXT}", {END_OF_TEXT: 0}),
        processors.Sequence([processors.ByteLevel(), template("<cls> $A <sep>", {"<cls>": 2, "<sep>": 1})]),
    ],
    ids=["none", "byte level", "start", "both", "others"],
)
def test_a_template_is_honored(tmp_path: Path, processor: Any, named: str) -> None:
    folder = saved(tmp_path, byte_level(processor), {**ENDS, "tokenizer_class": named}, "gpt2")
    ours = load_tokenizer(folder, frame="gpt2")
    assert rows_of(ours) == theirs(folder)
    (tmp_path / "again").mkdir()
    ours.save(str(tmp_path / "again"))
    again = load_tokenizer(tmp_path / "again", frame="gpt2")
    assert again.fingerprint == ours.fingerprint


@pytest.mark.parametrize(
    ("processor", "said"),
    [
        (template(f"<cls> {END_OF_TEXT} $A", {"<cls>": 2, END_OF_TEXT: 0}), "several pieces in the place of the start"),
        (template("<cls> $A $A", {"<cls>": 2}), "must name a, once"),
        (
            processors.Sequence([template("<cls> $A", {"<cls>": 2}), template("<cls> $A", {"<cls>": 2})]),
            "adds special pieces twice",
        ),
    ],
)
def test_a_template_that_cannot_be_honored_is_refused(tmp_path: Path, processor: Any, said: str) -> None:
    folder = saved(tmp_path, byte_level(processor), {"bos_token": "<cls>"}, "gpt2")
    with pytest.raises(ModelError, match=said):
        load_tokenizer(folder, frame="gpt2")


def test_causal_models_begin_and_end_texts_with_bos_and_eos(tmp_path: Path) -> None:
    settings = {**ENDS, "sep_token": "<sep>", "cls_token": "<cls>"}
    folder = saved(tmp_path, byte_level(), settings, "gpt2")
    assert load_tokenizer(folder, frame="gpt2").specials == {"start": 0, "end": 0}
    framed = load_tokenizer(folder, frame="roberta").specials
    assert (framed["start"], framed["end"]) == (2, 1)


# --- settings that contradict tokenizer.json --------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["BertTokenizer", "PreTrainedTokenizerFast", None])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize(
    "said",
    [
        {"do_lower_case": True},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True},
        {"do_lower_case": True, "tokenize_chinese_chars": False},
    ],
    ids=str,
)
def test_settings_of_bert(tmp_path: Path, said: dict[str, Any], lowercase: bool, named: str | None) -> None:
    settings = said if named is None else {**said, "tokenizer_class": named}
    folder = saved(tmp_path, word_piece(lowercase=lowercase), settings, "bert")
    assert rows_of(load_tokenizer(folder, frame="bert")) == theirs(folder)


@pytest.mark.parametrize("named", ["GPT2Tokenizer", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize(("in_file", "said"), [(True, False), (False, True)])
def test_a_blank_before_the_text(tmp_path: Path, in_file: bool, said: bool, named: str) -> None:
    settings = {**ENDS, "tokenizer_class": named, "add_prefix_space": said}
    folder = saved(tmp_path, byte_level(prefix=in_file), settings, "gpt2")
    assert rows_of(load_tokenizer(folder, frame="gpt2")) == theirs(folder)


@pytest.mark.parametrize("lowers", [True, False])
@pytest.mark.parametrize("setting", ["do_lower_case", "strip_accents"])
def test_other_normalizers_that_contradict_the_settings_are_refused(tmp_path: Path, lowers: bool, setting: str) -> None:
    backend = word_piece(lowercase=False)
    steps = [normalizers.NFKD(), normalizers.StripAccents(), *([normalizers.Lowercase()] if lowers else [])]
    backend.normalizer = normalizers.Sequence(steps)
    said = {"do_lower_case": lowers, "strip_accents": True}
    saved(tmp_path, backend, {**said, "tokenizer_class": "AlbertTokenizer"}, "albert")
    load_tokenizer(tmp_path, frame="bert")
    saved(tmp_path, backend, {**said, setting: not said[setting], "tokenizer_class": "AlbertTokenizer"}, "albert")
    with pytest.raises(ModelError, match=f"sets '{setting}' .* Correct the file that is wrong"):
        load_tokenizer(tmp_path, frame="bert")


def test_a_family_without_segments_has_none_in_its_tokenizer(tmp_path: Path) -> None:
    """As it is read from the folder that it was saved to: the fingerprints are one."""
    PieceTokenizer(word_piece(lowercase=True), FRAMES["bert"]).save(str(tmp_path))
    of_bert = load_tokenizer(tmp_path, frame="bert")
    of_bert.in_family("gpt2").save(str(tmp_path))
    read = load_tokenizer(tmp_path, frame="gpt2")
    assert read.fingerprint == of_bert.in_family("gpt2").fingerprint != of_bert.fingerprint
    assert of_bert.in_family("bert") is of_bert

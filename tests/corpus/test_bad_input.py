from __future__ import annotations

import json
import lzma
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from damage import flip_bit
from polyseme.corpus import document_reader as documents
from polyseme.corpus.corpus import Corpus, fingerprint_of
from polyseme.errors import InputError, OptionError, OutputError, PolysemeError, PolysemeWarning
from polyseme.files import checksums
from polyseme.files.checksums import digest_of
from polyseme.verbs.corpus import build_corpus


@pytest.fixture
def refused(tmp_path: Path, corpus: Corpus):
    """Build what is to be refused; the paragraph that says why. Nothing is left behind."""

    def build(content: bytes | None = None, name: str = "in.txt", **settings: Any) -> str:
        source = tmp_path / name
        if content is not None:
            source.write_bytes(content)
        before = sorted(tmp_path.iterdir())
        settings = {"tokenizer": corpus.folder / "tokenizer", "sources": source, "output": tmp_path / "c"} | settings
        with pytest.raises(PolysemeError) as caught:
            build_corpus(settings.pop("sources"), **settings)
        assert sorted(tmp_path.iterdir()) == before
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return build


def test_text_that_is_none(refused):
    assert "line 3: byte 16 of the text (0xFF) is not UTF-8" in refused(b"Ren lo mi.\n\nTas \xff\xfe po.")
    assert "has a NUL at byte 10, line 2" in refused(b"Ren lo.\nLo\0mi." + b" lo" * 100)
    assert "line 2: byte 300002 of the text is a NUL" in refused(b"Ren" * 100_000 + b"\nL\0mi.")
    assert "is empty" in refused(b"")
    assert "There is no text" in refused(b" \n\n \t\n")
    assert "There is no file" in refused(name="missing.txt")
    assert "damaged or was cut short" in refused(lzma.compress(b"Ren lo. " * 999)[:-20], "in.txt.xz")
    assert "not UTF-8" in refused("Ren lo é".encode()[:-1])
    assert "is not JSON" in refused(b'{"a": ', "in.jsonl")


def test_bytes_that_are_cut_between_blocks(refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(documents, "_BLOCK", 5)
    assert "line 2: byte 9 of the text (0xC3) is not UTF-8" in refused("ren é\nlo".encode() + b"\xc3( mi")


def test_a_tokenizer_cannot_be_trained_on_nothing(refused):
    assert "no text to train a tokenizer on" in refused(b" \n", tokenizer="wordpiece")
    assert "only once" in refused(tokenizer="wordpiece", sources="-")


@pytest.mark.parametrize("weight", ["-1", "0", "nan", "inf", "x", ""])
def test_weights_that_cannot_be(refused, tmp_path: Path, weight: str):
    (tmp_path / "a.txt").write_text("Ren lo mi.", encoding="utf-8")
    said = refused(sources=f"a={weight}:{tmp_path}/a.txt")
    assert f"must be a number above 0. Got {weight!r} instead" in said


def test_options_that_cannot_be(refused):
    text = b"Ren lo mi."
    assert "There is no kind of tokenizer 'wordpeice', and no such folder. Did you mean 'wordpiece'?" in refused(
        text, tokenizer="wordpeice"
    )
    assert "Did you mean 'blank-lines'?" in refused(text, documents="blanklines")
    assert "has no records" in refused(text, documents="record")
    assert "for plain text" in refused(b'{"text": "Ren"}', "in.jsonl", documents="line")
    assert "'field' is for records" in refused(text, field="text")
    assert "no format 'jsnl'" in refused(text, format="jsnl")
    assert "from 0 to below 1" in refused(text, held_out=1.0)
    assert "'workers' must be at least 1" in refused(text, workers=0)
    assert "'workers' must be at most 1,024" in refused(text, workers=10**20)
    assert "'sample' must be at least 1" in refused(text, sample=0)
    assert "above 0" in refused(text, sources={"a": ("x.txt", 0)})
    assert "cannot be named '../a'" in refused(text, sources={"../a": ("x.txt", 1)})
    assert "two weights" in refused(text, sources=["a=1:x.txt", "a=2:y.txt"])
    assert "nothing to read" in refused(text, sources=[])
    assert "at least 262 pieces" in refused(text, tokenizer="byte-bpe", vocab_size=10)


def test_outputs_that_cannot_be(refused, tmp_path: Path):
    text = b"Ren lo mi."
    (tmp_path / "file").write_text("mine")
    assert "file is not a folder" in refused(text, output=tmp_path / "file" / "c")
    assert "is a file" in refused(text, output=tmp_path / "file")
    (tmp_path / "c.unfinished").mkdir()
    (tmp_path / "c.unfinished" / "mine.txt").write_text("mine")
    assert "is no unfinished corpus" in refused(text)


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow past 20,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_no_room_is_explained_and_gone_on_with_when_there_is(
    text: Path, tmp_path: Path, corpus: Corpus, small_files: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(documents, "STRETCH", 3000)
    settings: dict[str, Any] = {"output": tmp_path / "c", "tokenizer": corpus.folder / "tokenizer", "held_out": 0.1}
    with pytest.raises(OutputError, match="could not be finished: a file has grown past the largest") as caught:
        build_corpus(text, **settings)
    assert "the same command resumes it" in caught.value.__notes__[0]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert build_corpus(text, **settings).fingerprint == corpus.fingerprint


def test_lone_surrogates_are_read_as_replacement_characters(tmp_path: Path, corpus: Corpus):
    (tmp_path / "in.jsonl").write_text('{"t": "Ren \\ud800 lo."}\n{"t": "Mi."}\n{"t": ""}\n')
    with pytest.warns(PolysemeWarning) as caught:
        made = build_corpus(tmp_path / "in.jsonl", output=tmp_path / "c", tokenizer=corpus.folder / "tokenizer")
    assert sorted(str(one.message) for one in caught) == [
        "1 document has lone surrogates, which were read as U+FFFD.",
        "1 empty document was left out.",
    ]
    assert made.counts("train").documents + made.counts("held").documents == 2


def test_documents_that_come_out_as_nothing_are_left_out(tmp_path: Path, corpus: Corpus):
    (tmp_path / "in.txt").write_text("Ren lo.\n\n\u200b\u200b\n\nMi ka.", encoding="utf-8")
    with pytest.warns(PolysemeWarning, match="1 document came out as nothing"):
        made = build_corpus(tmp_path / "in.txt", output=tmp_path / "c", tokenizer=corpus.folder / "tokenizer")
    assert made.n_documents("train") + made.n_documents("held") == 2


# --- a corpus that is not in order -----------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path, corpus: Corpus) -> Path:
    folder = tmp_path / "copy"
    for path in corpus.folder.rglob("*"):
        if path.is_file():
            target = folder / path.relative_to(corpus.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    Corpus.open(folder).check()
    return folder


def test_what_is_no_corpus_or_damaged_is_refused(copy: Path, tmp_path: Path):
    with pytest.raises(InputError, match="is no corpus"):
        Corpus.open(tmp_path)
    pieces = copy / "shards" / "text" / "text.train.pieces"
    whole = pieces.read_bytes()
    pieces.write_bytes(whole[:-2])
    with pytest.raises(InputError, match="is damaged"):
        Corpus.open(copy)
    pieces.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1, whole[-1]]))
    with pytest.raises(InputError, match=r"text\.train\.pieces is not as it was built"):
        Corpus.open(copy).check()
    pieces.unlink()
    with pytest.raises(InputError, match="is not there"):
        Corpus.open(copy)


@pytest.mark.parametrize("file", ["pieces", "starts", "documents", "sentences"])
@pytest.mark.parametrize("split", ["train", "held"])
def test_noise_in_a_shard_is_noticed_on_first_use(copy: Path, file: str, split: str):
    flip_bit(copy / "shards" / "text" / f"text.{split}.{file}")
    [shard] = Corpus.open(copy).shards(split)  # opening reads nothing
    uses: dict[str, Callable[[], object]] = {
        "pieces": lambda: shard.pieces,
        "starts": shard.starts,
        "documents": lambda: shard.ends,
        "sentences": lambda: shard.sentences_at(np.zeros(1, np.int64)),
    }
    for name, use in uses.items():
        if name != file:
            use()
    with pytest.raises(InputError, match=rf"text\.{split}\.{file} is not as it was built.*Copy it again.*rebuild it"):
        uses[file]()


def test_a_file_is_read_for_its_checksum_once_in_a_process(copy: Path, monkeypatch: pytest.MonkeyPatch):
    read: list[str] = []
    monkeypatch.setattr(checksums, "digest_of", lambda path, real=digest_of: read.append(path.name) or real(path))
    for _ in range(2):
        assert len(Corpus.open(copy).shards("held")[0].pieces)
    assert read == []  # the fixture has read all
    path = copy / "shards" / "text" / "text.held.pieces"
    os.utime(path, ns=(1, 1))
    assert len(Corpus.open(copy).shards("held")[0].pieces)
    assert read == ["text.held.pieces"]


def test_a_corpus_without_checksums_is_used_and_that_is_stated_once(copy: Path):
    about = json.loads((copy / "corpus.json").read_bytes())
    for entry in about["sources"][0]["splits"].values():
        del entry["checksums"]
    (copy / "corpus.json").write_text(json.dumps({**about, "fingerprint": fingerprint_of(about)}))
    with pytest.warns(PolysemeWarning, match="without checksums") as said:
        opened = [Corpus.open(copy) for _ in range(2)]
    assert len(said) == 1
    assert len(opened[0].shards("train")[0].pieces)


@pytest.mark.parametrize(
    "damage",
    [
        lambda about: about.pop("tokenizer"),
        lambda about: about.update(sources=3),
        lambda about: about["sources"][0]["splits"]["train"]["counts"].update(words=7),
        lambda about: about["sources"][0].pop("name"),
        lambda about: about["sources"][0]["splits"]["train"]["checksums"].update(pieces="0" * 64),
    ],
)
def test_a_damaged_record_is_refused(copy: Path, damage: Callable[[Any], object]):
    about = json.loads((copy / "corpus.json").read_bytes())
    damage(about)
    (copy / "corpus.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"corpus\.json is damaged"):
        Corpus.open(copy)


def test_another_tokenizer_or_format_is_refused(copy: Path):
    path = copy / "tokenizer" / "tokenizer.json"
    settings = json.loads(path.read_bytes())
    path.write_text(json.dumps({**settings, "normalizer": None}))
    with pytest.raises(InputError, match="another tokenizer"):
        Corpus.open(copy)
    about = json.loads((copy / "corpus.json").read_bytes())
    (copy / "corpus.json").write_text(json.dumps({**about, "format": 99}))
    with pytest.raises(InputError, match="Rebuild the corpus"):
        Corpus.open(copy)
    (copy / "corpus.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        Corpus.open(copy)


def test_an_unfinished_corpus_is_called_one(tmp_path: Path):
    (tmp_path / "c.unfinished").mkdir()
    with pytest.raises(InputError, match="is an unfinished one"):
        Corpus.open(tmp_path / "c")


def test_unknown_splits(corpus: Corpus):
    with pytest.raises(OptionError, match="no split 'valid'"):
        corpus.n_pieces("valid")

"""What `corpus` prints and writes."""

from __future__ import annotations

from pathlib import Path

import polyseme
from cli.commands import Refuse, Run
from polyseme.corpus.corpus import Corpus

TEXT = "Dawn broke over the vale. The vase broke.\nIt was late.\n\nDay broke. The news broke.\n\n" * 30


def test_a_corpus_is_built_and_described(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(TEXT, encoding="utf-8")
    ended = run("corpus", tmp_path / "in.txt", "-o", tmp_path / "c", "--vocab-size", 60, "--held-out", 0.5)
    assert (ended.code, ended.out) == (0, "")
    corpus = Corpus.open(tmp_path / "c")
    lines = ended.err.splitlines()
    assert lines[0] == (
        f"{tmp_path / 'c'}: 30 documents, {corpus.n_pieces('train'):,} pieces to train on; 30 documents, "
        f"{corpus.n_pieces('held'):,} pieces held out; a vocabulary of 60"
    )
    assert lines[1].startswith("The tokenizer was trained on all of the text")
    other = polyseme.build_corpus(tmp_path / "in.txt", output=tmp_path / "d", vocab_size=60, held_out=0.5)
    assert other.fingerprint == corpus.fingerprint


def test_what_is_unusual_is_said_once(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(TEXT, encoding="utf-8")
    ended = run("corpus", f"mine=2:{tmp_path / 'in.txt'}", "-o", tmp_path / "c", "--documents", "line")
    assert ended.code == 0
    assert ended.err.count("fewer than the 30,522 requested") == 1
    assert ended.err.count("empty documents were left out") == 1
    assert [(source.name, source.weight) for source in Corpus.open(tmp_path / "c").sources] == [("mine", 2.0)]


def test_bad_input_is_one_paragraph(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"Dawn \xff broke.")
    said = refuse("corpus", tmp_path / "in.txt", "-o", tmp_path / "c", folder=tmp_path)
    assert "is not UTF-8" in said

"""The options of `polyseme embed` that say how files are read, what has a vector, and what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyseme
from cli.commands import Refuse, Run
from polyseme.files import chunks
from polyseme.files.vector_files import read_provenance

TREEBANK = """# sent_id = one
# text = I don't.
1\tI\tI\tPRON\t_\t_\t_\t_\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
2\tdo\tdo\tAUX\t_\t_\t_\t_\t_\t_
3\tn't\tnot\tPART\t_\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t_\t_\t_\t_\t_\t_

"""


def embedded(run: Run, model: Path, output: Path, *given: Any) -> list[polyseme.EmbeddedDocument]:
    ended = run("embed", *given, "-m", model, "-o", output, "--device", "cpu")
    assert ended.code == 0, ended.err
    return list(polyseme.read_vectors(output))


def test_a_table(run: Run, tiny: Path, tmp_path: Path) -> None:
    table = tmp_path / "in.csv"
    table.write_text("key;review;stars\na;Dawn broke.;5\nb;'Zyx;\n", encoding="utf-8")
    options = [
        "--field",
        "review",
        "--id-field",
        "key",
        "--fields",
        "stars, key",
        "--delimiter",
        ";",
        "--quotes",
        "none",
    ]
    found = embedded(run, tiny, tmp_path / "out.parquet", table, *options)
    assert [document.id for document in found] == ["a", "b"]
    assert [document.text for document in found] == ["Dawn broke.", "'Zyx"]
    assert [dict(document.fields) for document in found] == [{"stars": "5", "key": "a"}, {"stars": "", "key": "b"}]


def test_several_sources(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Dawn broke.\n\nthe vase")
    (tmp_path / "b.txt").write_text("Zoe")
    given = [tmp_path / "a.txt", tmp_path / "b.txt", "--split", "document"]
    found = embedded(run, tiny, tmp_path / "out.npz", *given)
    assert [len(document.words) for document in found] == [5, 1]
    assert [document.id for document in found] == ["a.txt", "b.txt"]
    in_python = polyseme.embed(
        [tmp_path / "a.txt", tmp_path / "b.txt"],
        output=tmp_path / "two.npz",
        model=tiny,
        split="document",
        device="cpu",
    )
    assert in_python.documents == 2
    assert (tmp_path / "two.npz").read_bytes() == (tmp_path / "out.npz").read_bytes()


@pytest.mark.filterwarnings("ignore:The model's tokenizer has no pieces:polyseme.errors.PolysemeWarning")
def test_a_sentence_may_be_a_text(run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as a file with a sentence a line, in one chunk and in several, and in Python."""
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 20)
    prose, lines = tmp_path / "prose.txt", tmp_path / "lines.txt"
    prose.write_text("  Dawn broke. Dr. Zyx broke the vase!\n\n“The vase?” So it was.\r\nno stop\n")
    sentences = ["Dawn broke.", "Dr. Zyx broke the vase!", "“The vase?”", "So it was.", "no stop"]
    lines.write_text("\n".join(sentences))
    found = embedded(run, tiny, tmp_path / "out.npz", prose, "--split", "sentence")
    ids = ["1.1", "1.2", "3.1", "3.2", "4.1"]
    assert [(document.id, document.text) for document in found] == list(zip(ids, sentences, strict=True))
    for document, same in zip(found, embedded(run, tiny, tmp_path / "lines.npz", lines), strict=True):
        assert [document.text[start:end] for start, end in document.offsets] == list(document.words)
        np.testing.assert_array_equal(document.vectors, same.vectors)
    polyseme.embed(prose, output=tmp_path / "two.npz", model=tiny, split="sentence", device="cpu")
    assert (tmp_path / "two.npz").read_bytes() == (tmp_path / "out.npz").read_bytes()


@pytest.mark.parametrize(
    ("more", "words"), [([], ["I", "do", "n't", "."]), (["--words", "surface"], ["I", "don't", "."])]
)
def test_a_treebank(run: Run, tiny: Path, tmp_path: Path, more: list[str], words: list[str]) -> None:
    source = tmp_path / "in.conllu"
    source.write_text(TREEBANK)
    [found] = embedded(run, tiny, tmp_path / "out.h5", source, "--fields", "upos", *more)
    assert list(found.words) == words
    assert len(found.vectors) == len(words)
    assert (found.id, found.text) == ("one", "I don't.")
    assert [found.text[word.start : word.end] for word in found.words] == words
    assert found.fields["upos"][0] == "PRON"


def test_a_treebank_that_does_not_add_up(run: Run, refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.conllu"
    source.write_text(TREEBANK.replace("I don't", "I do not"))
    given = [source, "-m", tiny, "-o", tmp_path / "out.npz"]
    assert "line" in refuse("embed", *given, folder=tmp_path)
    assert run("embed", *given, "--no-check-text").code == 0


@pytest.mark.parametrize("layer", ["-1", "all"])
def test_one_vector_a_text_is_the_mean_of_its_words(run: Run, tiny: Path, tmp_path: Path, layer: str) -> None:
    texts = ["Dawn broke.", "", "the vase, the vases! " * 9]
    ended = run(
        *["embed", "-", "-m", tiny, "-o", tmp_path / "out.parquet", "--per", "text", "--layer", layer],
        *["--device", "cpu"],
        stdin="\n".join(texts).encode(),
    )
    assert ended.code == 0
    assert "note: 1 text has no words; the vector of such a text is zeros." in ended.err
    found = list(polyseme.read_vectors(tmp_path / "out.parquet"))
    words = polyseme.load(tiny, device="cpu").embed(texts, layer=layer)
    for number in (0, 2):
        assert found[number].vectors.shape == (1, *words[number].vectors.shape[1:])
        np.testing.assert_allclose(found[number].vectors[0], words[number].vectors.mean(axis=0), rtol=1e-5, atol=1e-6)
    assert not found[1].vectors.any()
    assert read_provenance(tmp_path / "out.parquet")["per"] == "text"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--per", "sentence"], "There is no per 'sentence'. There are: word, text."),
        (["--store", "fp8"], "There is no store 'fp8'"),
        (["--store", "bf16"], ".npz has no bf16"),
        (["--shard-format", "npz"], "Give 'shard_rows' with it."),
        (["--shard-rows", "0"], "at least 1 row"),
        (["--shard-rows", "9", "--shard-format", "xml"], "'.xml' is no format of vectors"),
        (["--field", "x"], "The option 'field' is for"),
        (["--format", "cvs"], "Did you mean 'csv'?"),
    ],
)
def test_what_cannot_be(refuse: Refuse, tiny: Path, tmp_path: Path, options: list[str], said: str) -> None:
    (tmp_path / "in.txt").write_text("Dawn broke.")
    output = tmp_path / ("out" if "--shard-rows" in options else "out.npz")
    assert said in refuse("embed", tmp_path / "in.txt", "-m", tiny, "-o", output, *options, folder=tmp_path)


def test_a_treebank_with_all_its_fields_as_a_table_of_words(run: Run, tiny: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.conllu"
    source.write_text(TREEBANK + "\n# newpar\n" + TREEBANK.replace("one", "two"))
    ended = run("embed", source, "-m", tiny, "-o", tmp_path / "out.parquet", "--fields", "all", "--device", "cpu")
    assert ended.code == 0
    assert "note: The field 'id' is called 'fields.id' in the output" in " ".join(ended.err.split())
    first, second = polyseme.read_vectors(tmp_path / "out.parquet")
    assert first.fields["fields.id"] == ["1", "2", "3", "4"]
    assert (first.fields["newpar"], second.fields["newpar"]) == (None, "")
    ended = run(
        "embed", source, "-m", tiny, "-o", tmp_path / "out.csv", "--columns", "id,word,upos,v1", "--device", "cpu"
    )
    assert ended.code == 0
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "id,word,upos,v1"
    assert len(lines) == 9
    assert lines[2].split(",")[:3] == ['"one"', '"do"', '"AUX"']
    assert float(lines[2].split(",")[3]) == pytest.approx(float(first.vectors[1, 1]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "out.csv", "--columns", "id,v99"], "There is no column 'v99'. There are: v0, v31."),
        (["-o", "out.npz", "--long"], "the long form is written as .parquet, .csv, .tsv"),
        (["-o", "out.npz", "--columns", "id"], "'columns' is about a table with one row per word"),
        (["-o", "out", "--long", "--shard-rows", "3"], "A table with one row per word is one file"),
        (["-o", "out.parquet", "--long", "--store", "bf16"], "has no bf16"),
        (["-o", "out.csv", "--columns", "id,mood"], "The option 'fields' is for jsonl"),
    ],
)
def test_tables_of_words_that_cannot_be(
    refuse: Refuse, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("Dawn broke.\n")
    assert said in refuse("embed", "in.txt", "-m", tiny, "--device", "cpu", *options, folder=tmp_path)


def test_bad_rows_are_skipped_and_counted(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "Dawn broke."}\n{"text": \n{"text": "The vase"}\n')
    options = ["-m", tiny, "-o", tmp_path / "out.npz", "--device", "cpu", "--on-error", "skip"]
    ended = run("embed", tmp_path / "in.jsonl", *options)
    assert ended.code == 0
    said = " ".join(ended.err.split())
    assert "in.jsonl, line 2: this is not JSON" in said
    assert "note: 1 row was skipped, as reported above." in said
    assert [document.id for document in polyseme.read_vectors(tmp_path / "out.npz")] == ["1", "3"]


def test_a_model_in_fp64_gives_and_stores_fp64(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("Dawn broke.\n")
    model = polyseme.load(tiny, device="cpu", dtype="fp64")
    [expected] = model.embed(["Dawn broke."])
    assert expected.vectors.dtype == np.float64
    assert run("embed", tmp_path / "in.txt", "-m", tiny, "--dtype", "fp64", "-o", tmp_path / "out.npz").code == 0
    [stored] = polyseme.read_vectors(tmp_path / "out.npz")
    np.testing.assert_array_equal(stored.vectors, expected.vectors, strict=True)

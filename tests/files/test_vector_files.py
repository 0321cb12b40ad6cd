"""Vectors out and in again, by every format: exactly what was written, whole or not there."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from polyseme.errors import InputError, OptionError, OutputError, PolysemeWarning
from polyseme.files import vectors_parquet as parquet
from polyseme.files.vector_files import FORMATS, is_shard, open_writer, read_provenance, read_vectors
from polyseme.types import EmbeddedDocument, Word

ABOUT = {"model": "a model ✓", "layer": -1, "pool": "mean"}
every_format = pytest.mark.parametrize("suffix", sorted(FORMATS))


def embedded(
    words: Sequence[str], *, id: str = "1", shape: tuple[int, ...] = (4,), dtype: str = "float32", seed: int = 0
) -> EmbeddedDocument:
    """Words joined by blanks, with random vectors."""
    ends = np.cumsum([len(word) + 1 for word in words], dtype=np.int64) - 1
    starts = ends - np.array([len(word) for word in words], np.int64)
    return EmbeddedDocument(
        text=" ".join(words),
        words=[Word(word, int(a), int(b)) for word, a, b in zip(words, starts, ends, strict=True)],
        id=id,
        offsets=np.stack([starts, ends], axis=1),
        vectors=np.random.default_rng(seed).standard_normal((len(words), *shape)).astype(dtype),
    )


def assert_same(back: Sequence[EmbeddedDocument], documents: Sequence[EmbeddedDocument]) -> None:
    assert [document.id for document in back] == [document.id for document in documents]
    for ours, theirs in zip(back, documents, strict=True):
        assert ours.text == theirs.text
        assert list(ours.words) == list(theirs.words)
        assert [(w.start, w.end) for w in ours.words] == [(w.start, w.end) for w in theirs.words]
        assert ours.offsets.dtype == np.int64
        assert ours.vectors.dtype == theirs.vectors.dtype
        np.testing.assert_array_equal(ours.offsets, theirs.offsets, strict=True)
        np.testing.assert_array_equal(ours.vectors, theirs.vectors, strict=True)


def write(path: Path, chunks: Iterable[Sequence[EmbeddedDocument]], force: bool = False) -> Path:
    with open_writer(path, provenance=ABOUT, force=force) as writer:
        for chunk in chunks:
            writer.write(chunk)
    return path


SOME: tuple[list[EmbeddedDocument], ...] = (
    [embedded(["The", "bank", "broke", "."], id="1"), embedded([], id="2")],
    [embedded(["naïve", "日本", "👩‍👩‍👧", "x"], id="drei", seed=3)],
    [],
    [embedded(["last"], id="", seed=4)],
)
FLAT = [document for chunk in SOME for document in chunk]


# --- every format ----------------------------------------------------------------------------------------------------


@every_format
def test_documents_come_back_exactly(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"out{suffix}", SOME)
    assert_same(list(read_vectors(path)), FLAT)
    assert read_provenance(path) == ABOUT
    assert list(tmp_path.iterdir()) == [path]


@every_format
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(3,), (5, 3)], ids=["one layer", "all layers"])
def test_types_and_layers_are_kept(tmp_path: Path, suffix: str, dtype: str, shape: tuple[int, ...]) -> None:
    documents = [embedded(["a"] * n, id=str(n), shape=shape, dtype=dtype, seed=n) for n in (3, 0, 1)]
    assert_same(list(read_vectors(write(tmp_path / f"out{suffix}", [documents]))), documents)


@every_format
def test_a_file_may_have_no_words_at_all(tmp_path: Path, suffix: str) -> None:
    documents = [embedded([], id=str(number)) for number in range(3)]
    assert_same(list(read_vectors(write(tmp_path / f"out{suffix}", [documents]))), documents)


word = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.just("l" * 300)


@settings(max_examples=20)
@given(data=st.data())
def test_any_documents_come_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    lists = data.draw(st.lists(st.tuples(st.text(max_size=5), st.lists(word, max_size=6)), min_size=1, max_size=6))
    width = data.draw(st.integers(1, 3))
    documents = []
    for id, words in lists:
        id = id.encode("utf-8", "replace").decode()
        numbers = arrays.arrays(np.float32, (len(words), width), elements=st.floats(width=32))
        document = embedded(words, id=id, shape=(width,))
        documents.append(EmbeddedDocument(**{**vars(document), "vectors": data.draw(numbers)}))
    cut = data.draw(st.integers(0, len(documents)))
    for suffix in FORMATS:
        path = tmp_path_factory.getbasetemp() / f"any{suffix}"
        write(path, [documents[:cut], documents[cut:]], force=True)
        assert_same(list(read_vectors(path)), documents)


@every_format
def test_equal_documents_make_equal_files(tmp_path: Path, suffix: str) -> None:
    one, two = (write(tmp_path / f"{name}{suffix}", SOME).read_bytes() for name in ("one", "two"))
    assert one == two


@every_format
def test_vectors_need_not_lie_in_order_in_memory(tmp_path: Path, suffix: str) -> None:
    whole = embedded(["a", "b", "c"], shape=(6,))
    strided = EmbeddedDocument(**{**vars(whole), "vectors": np.asfortranarray(whole.vectors)[:, ::2]})
    assert_same(list(read_vectors(write(tmp_path / f"out{suffix}", [[strided]]))), [strided])


@every_format
def test_arrays_that_come_back_can_be_changed(tmp_path: Path, suffix: str) -> None:
    document = next(read_vectors(write(tmp_path / f"out{suffix}", SOME)))
    document.vectors[:] = 0
    document.offsets[:] = 0


@every_format
def test_nothing_is_left_when_the_work_fails(tmp_path: Path, suffix: str) -> None:
    def chunks() -> Iterator[list[EmbeddedDocument]]:
        yield SOME[0]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write(tmp_path / f"out{suffix}", chunks())
    assert not any(tmp_path.iterdir())


@every_format
def test_an_existing_output_is_refused_before_any_work(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"out{suffix}", SOME)
    before = path.read_bytes()
    with pytest.raises(OutputError, match="already there"):
        open_writer(path)
    with pytest.raises(OutputError, match="not a folder"):
        open_writer(path / f"out{suffix}")
    assert path.read_bytes() == before
    write(path, [[embedded(["new"])]], force=True)
    assert [list(document.words) for document in read_vectors(path)] == [["new"]]


@every_format
def test_no_documents_make_no_file(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(OutputError, match="no documents"):
        write(tmp_path / f"out{suffix}", [[]])
    assert not any(tmp_path.iterdir())


@every_format
def test_a_writer_counts(tmp_path: Path, suffix: str) -> None:
    with open_writer(tmp_path / f"out{suffix}") as writer:
        for chunk in SOME:
            writer.write(chunk)
        assert (writer.n_documents, writer.n_words) == (4, 9)


@every_format
def test_documents_of_different_kinds_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    good = embedded(["a", "b"])
    for other, match in [
        (embedded(["a"], id="odd", shape=(5,)), r"'odd' are float32 of shape \(1, 5\).*before it"),
        (embedded(["a"], id="odd", dtype="float16"), "'odd' are float16"),
        (EmbeddedDocument(**{**vars(good), "words": good.words[:1]}), "1 words, 2 vectors"),
        (EmbeddedDocument(**{**vars(good), "offsets": good.offsets[:1]}), "one start and end"),
    ]:
        with pytest.raises(InputError, match=match):
            write(path, [[good, other]])
    with pytest.raises(InputError, match="Got int64"):
        write(path, [[embedded(["a"], dtype="int64")]])
    assert not any(tmp_path.iterdir())


@every_format
def test_lone_surrogates_are_replaced_and_said_once(tmp_path: Path, suffix: str) -> None:
    documents = [embedded(["a\ud800", "b"], id=name) for name in ("x\udfff", "y")]
    with pytest.warns(PolysemeWarning, match="lone surrogates") as said:
        path = write(tmp_path / f"out{suffix}", [documents])
    assert len(said) == 1
    back = list(read_vectors(path))
    assert [(document.id, document.text) for document in back] == [("x\ufffd", "a\ufffd b"), ("y", "a\ufffd b")]
    assert [word.end for word in back[0].words] == [2, 4]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        (
            "out.parqet",
            r"'.parqet' is no format of vectors. Did you mean '.parquet'\? There are: .parquet, .npz, .safetensors",
        ),
        ("out", "its name has no ending.*There are: .parquet, .npz, .safetensors, .h5, .jsonl"),
    ],
)
def test_an_unknown_ending_names_those_there_are(tmp_path: Path, name: str, match: str) -> None:
    with pytest.raises(OptionError, match=match):
        open_writer(tmp_path / name)
    with pytest.raises(OptionError, match=match):
        read_vectors(tmp_path / name)


def write_other_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["a"] = [1]


SOMETHING_ELSE: dict[str, Callable[[Path], object]] = {
    ".parquet": lambda path: pq.write_table(pa.table({"a": [1]}), path),
    ".npz": lambda path: np.savez(path, a=np.zeros(3)),
    ".safetensors": lambda path: safetensors.numpy.save_file({"a": np.zeros(3)}, path),
    ".h5": write_other_hdf5,
    ".jsonl": lambda path: path.write_text('{"a": 1}\n'),
}
"""A file of each format that holds something else."""


@every_format
def test_files_that_are_no_vectors_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    with pytest.raises(InputError, match="no file"):
        read_vectors(path)
    path.write_bytes(b"something else")
    with pytest.raises(InputError, match=r"cannot be read as .* \(.*[^.]\)\. Check that it is complete"):
        read_vectors(path)
    SOMETHING_ELSE[suffix](path)
    with pytest.raises(InputError, match="not written by polyseme"):
        list(read_vectors(path))
    with pytest.raises(InputError, match="not written by polyseme"):
        read_provenance(path)


@every_format
def test_a_shard_is_known_by_its_name_and_by_what_is_in_it(tmp_path: Path, suffix: str) -> None:
    shard = write(tmp_path / f"part-00012{suffix}", SOME)
    assert is_shard(shard)
    for name in (f"part-1{suffix}", f"part-00012-c000{suffix}", f"vectors{suffix}", "part-00012.txt"):
        assert not is_shard(shard.rename(tmp_path / name))
        shard = (tmp_path / name).rename(shard)
    link = tmp_path / f"part-00013{suffix}"
    link.symlink_to(shard)
    assert not is_shard(link)
    SOMETHING_ELSE[suffix](shard)
    assert not is_shard(shard)
    shard.write_bytes(b"something else")
    assert not is_shard(shard)


@every_format
def test_a_damaged_file_is_refused(tmp_path: Path, suffix: str) -> None:
    document = embedded(["a"] * 100, shape=(50,))
    path = write(tmp_path / f"out{suffix}", [[document]])
    raw = bytearray(path.read_bytes())
    at = raw.index(b"a a a a") if suffix != ".parquet" else 4
    raw[at : at + 40] = b"\xff" * 40
    path.write_bytes(raw)
    with pytest.raises(InputError, match="damaged"):
        list(read_vectors(path))
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(InputError, match=r"damaged|cannot be read"):
        list(read_vectors(path))


# --- as users read them ----------------------------------------------------------------------------------------------


def test_parquet_as_arrow_reads_it(tmp_path: Path) -> None:
    table = pq.read_table(write(tmp_path / "out.parquet", SOME))
    assert table.schema.equals(
        pa.schema(
            [
                ("id", pa.string()),
                ("text", pa.large_string()),
                ("words", pa.list_(pa.string())),
                ("start", pa.list_(pa.int64())),
                ("end", pa.list_(pa.int64())),
                ("vectors", pa.list_(pa.list_(pa.float32(), 4))),
            ]
        )
    )
    assert json.loads(table.schema.metadata[b"polyseme"]) == ABOUT
    assert table["id"].to_pylist() == ["1", "2", "drei", ""]
    assert table["words"].to_pylist() == [list(document.words) for document in FLAT]
    assert table["vectors"].to_pylist() == [document.vectors.tolist() for document in FLAT]
    first = table.slice(0, 1).to_pylist()[0]
    assert [first["text"][a:b] for a, b in zip(first["start"], first["end"], strict=True)] == first["words"]


def test_a_chunk_is_a_row_group_and_vectors_are_plain(tmp_path: Path) -> None:
    file = pq.ParquetFile(write(tmp_path / "out.parquet", SOME))
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [2, 1, 1]
    columns = [file.metadata.row_group(0).column(number) for number in range(6)]
    assert [column.compression for column in columns] == ["ZSTD"] * 5 + ["UNCOMPRESSED"]


def test_a_large_chunk_is_several_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MOST_GROUP_NUMBERS", 20)
    documents = [embedded(["a", "b"], id=str(number), seed=number) for number in range(5)]
    path = write(tmp_path / "out.parquet", [documents])
    assert pq.ParquetFile(path).num_row_groups == 3
    assert_same(list(read_vectors(path)), documents)


def test_a_document_too_large_for_a_row_goes_on_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MOST_ROW_BYTES", 64)
    long = [embedded(list("abcdefghij"), id=name, seed=number) for number, name in enumerate("xx")]
    documents = [embedded(["short"], id="x"), *long, embedded([], id="x"), embedded(["short"], id="x")]
    with pytest.warns(PolysemeWarning, match="'x' has 10 words.*goes on in the rows that follow") as said:
        path = write(tmp_path / "out.parquet", [documents[:2], documents[2:]])
    assert len(said) == 1
    table = pq.read_table(path, columns=["id", "text", "words"])
    assert [len(words) for words in table["words"].to_pylist()] == [1, 4, 4, 2, 4, 4, 2, 0, 1]
    assert table["text"].to_pylist()[1:4] == [long[0].text] * 3
    assert_same(list(read_vectors(path)), documents)


def test_npz_as_numpy_reads_it(tmp_path: Path) -> None:
    with np.load(write(tmp_path / "out.npz", SOME), allow_pickle=False) as file:
        assert sorted(file) == ["about", "documents", "ids", "offsets", "text", "text_ends", "vectors", "words"]
        assert file["words"].tolist() == [word for document in FLAT for word in document.words]
        assert file["ids"].tolist() == ["1", "2", "drei", ""]
        assert file["documents"].tolist() == [0, 4, 4, 8, 9]
        np.testing.assert_array_equal(file["vectors"], np.concatenate([d.vectors for d in FLAT]), strict=True)
        np.testing.assert_array_equal(file["offsets"], np.concatenate([d.offsets for d in FLAT]), strict=True)
        assert json.loads(str(file["about"])) == ABOUT
        ends = file["text_ends"]
        assert file["text"][ends[1] : ends[2]].tobytes().decode() == FLAT[2].text


def test_one_very_long_word_does_not_swell_an_npz_file(tmp_path: Path) -> None:
    documents = [embedded(["a"] * 1000 + ["b" * 100_000])]
    path = write(tmp_path / "out.npz", [documents])
    assert path.stat().st_size < 300_000
    assert_same(list(read_vectors(path)), documents)
    with np.load(path) as file:
        ends = file["words_ends"]
        assert file["words"][ends[-2] : ends[-1]].tobytes() == b"b" * 100_000


def test_npz_vectors_are_stored_and_whole(tmp_path: Path) -> None:
    with zipfile.ZipFile(write(tmp_path / "out.npz", SOME)) as archive:
        assert archive.testzip() is None
        assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_STORED}

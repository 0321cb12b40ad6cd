"""Hostile files that are no model folders: vectors, single files of others, what polyseme keeps itself, data."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from hostile.cases import (
    DEEP,
    Hostile,
    Spoil,
    cut,
    edit_bytes,
    edit_json,
    flip,
    json_faults,
    set_json,
    write,
)
from hostile.models import Malicious
from hostile.sound import VECTORS


def cases() -> Iterator[Hostile]:
    """All of them."""
    yield from _vectors()
    yield from _single_files()
    yield from _own()
    yield from _data()


# --- vectors ----------------------------------------------------------------------------------------------------------


def _vectors() -> Iterator[Hostile]:
    read = ("read vectors",)
    for suffix in VECTORS:
        name = f"vectors/v{suffix}"
        for share in (0.0, 0.02, 0.5, 0.97):
            yield Hostile(f"{suffix}: cut at {share}", name, edit_bytes("", cut(share)), read)
        yield Hostile(f"{suffix}: noise", name, write("", bytes(range(256)) * 16), read)
        yield Hostile(f"{suffix}: a text", name, write("", "Dawn broke.\n"), read)
        yield Hostile(f"{suffix}: nothing but zeros", name, write("", bytes(5000)), read)
    for what in (
        "external storage",
        "virtual dataset",
        "external link",
        "soft link",
        "huge",
        "texts",
        "compressed",
        "of objects",
    ):
        yield Hostile(f".h5: {what}", "vectors/v.h5", _hdf5(what), read)
    for key in ("documents", "polyseme"):
        yield Hostile(f".h5: nested JSON in {key}", "vectors/v.h5", _hdf5_json(key), read)
    for member in ("vectors", "documents", "ids", "text_ends", "offsets", "about"):
        yield Hostile(f".npz: {member} claims 10^12 rows", "vectors/v.npz", _npz(member, _claim), read)
        yield Hostile(f".npz: {member} is an object", "vectors/v.npz", _npz(member, _object), read)
        yield Hostile(f".npz: {member} is empty", "vectors/v.npz", _npz(member, lambda content: b""), read)
        if member != "vectors":
            yield Hostile(
                f".npz: {member} is shuffled",
                "vectors/v.npz",
                _npz(member, lambda content: content[:128] + b"\xff" * (len(content) - 128)),
                read,
            )
    entries = {
        "a shape of 10^12": {"shape": [10**12, 32]},
        "a wrong type": {"dtype": "F64"},
        "offsets outside": {"data_offsets": [1 << 50, 1 << 51]},
        "no shape": {"shape": None},
    }
    for member in ("vectors", "documents", "text_ends"):
        for shown, entry in entries.items():
            yield Hostile(f".safetensors: {member}: {shown}", "vectors/v.safetensors", _tensor(member, entry), read)
        if member != "vectors":
            yield Hostile(f".safetensors: {member}: shuffled", "vectors/v.safetensors", _numbers_of(member), read)
    yield Hostile(
        ".safetensors: nested provenance",
        "vectors/v.safetensors",
        _tensor("__metadata__", {"polyseme": "[" * DEEP}),
        read,
    )
    lines = {
        "nested": "[" * DEEP,
        "nested vectors": '{"vectors": ' + "[" * DEEP,
        "a shape of 10^12": None,
        "a type that is none": None,
    }
    for shown in lines:
        yield Hostile(f".jsonl: {shown}", "vectors/v.jsonl", _line(shown), read)
    for shown in (
        "nested provenance",
        "nested continued",
        "continued that is none",
        "no texts",
        "texts in offsets",
        "lists of other lengths",
        "nulls",
        "a column twice",
        "20 million equal rows",
    ):
        yield Hostile(f".parquet: {shown}", "vectors/v.parquet", _parquet(shown), read)


def _hdf5(what: str) -> Spoil:
    def spoil(place: Path) -> None:
        secret = place.parent / "secret.h5"
        with h5py.File(place, "r+") as file:
            content = file["1"][()]
            del file["1"]
            if what == "external storage":
                secret.write_bytes(content.tobytes())
                file.create_dataset("1", content.shape, content.dtype, external=[(str(secret), 0, content.nbytes)])
            elif what in ("virtual dataset", "external link"):
                with h5py.File(secret, "w") as other:
                    other["w"] = content
                if what == "external link":
                    file["1"] = h5py.ExternalLink(str(secret), "w")
                else:
                    layout = h5py.VirtualLayout(content.shape, content.dtype)
                    layout[:] = h5py.VirtualSource(str(secret), "w", content.shape)
                    file.create_virtual_dataset("1", layout)
            elif what == "soft link":
                file["elsewhere"] = content
                file["1"] = h5py.SoftLink("/elsewhere")
            elif what == "huge":
                file.create_dataset("1", (10**6, 10**6), "<f4", chunks=(100, 100))
            elif what == "compressed":
                file.create_dataset("1", data=np.zeros((4, 10**6), np.float32), chunks=True, compression="gzip")
            elif what == "texts":
                file["1"] = np.array([b"a", b"b"])
            elif what == "of objects":
                file.create_dataset("1", (2,), h5py.vlen_dtype(np.float32))

    return spoil


def _hdf5_json(key: str) -> Spoil:
    def spoil(place: Path) -> None:
        with h5py.File(place, "r+") as file:
            if key == "documents":
                file["documents"][0] = "[" * DEEP
            else:
                file.attrs[key] = "[" * 60_000  # what an attribute holds, at most

    return spoil


def _npz(member: str, change: Callable[[bytes], bytes]) -> Spoil:
    def spoil(place: Path) -> None:
        with zipfile.ZipFile(place) as archive:
            contents = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(place, "w") as archive:
            for name, content in contents.items():
                archive.writestr(name, change(content) if name == f"{member}.npy" else content)

    return spoil


def _claim(content: bytes) -> bytes:
    """The same array with a header of more rows than there are."""
    version = np.lib.format.read_magic(file := io.BytesIO(content))
    assert version == (1, 0)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    rest, out = file.read(), io.BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (10**12, *shape[1:])}
    np.lib.format.write_array_header_1_0(out, header)
    return out.getvalue() + rest


def _object(content: bytes) -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([Malicious()], dtype=object), allow_pickle=True)
    return out.getvalue()


def _tensor(member: str, entry: dict[str, Any]) -> Spoil:
    def change(content: bytearray) -> bytes:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        header[member] |= entry
        encoded = json.dumps(header).encode()
        return len(encoded).to_bytes(8, "little") + encoded + content[8 + length :]

    return edit_bytes("", change)


def _numbers_of(member: str) -> Spoil:
    def change(content: bytearray) -> bytes:
        length = int.from_bytes(content[:8], "little")
        start, end = json.loads(content[8 : 8 + length])[member]["data_offsets"]
        content[8 + length + start : 8 + length + end] = b"\xfe" * (end - start)
        return content

    return edit_bytes("", change)


def _line(what: str) -> Spoil:
    def spoil(place: Path) -> None:
        first, *rest = place.read_text().splitlines(keepends=True)
        content = json.loads(rest[0])
        if what == "a shape of 10^12":
            content["polyseme"]["shape"] = [10**12]
        elif what == "a type that is none":
            content["polyseme"]["dtype"] = "object"
        changed = json.dumps(content)
        if what == "nested":
            changed = "[" * DEEP
        elif what == "nested vectors":
            changed = '{"vectors": ' + "[" * 900 + "]" * 900 + "}"
        place.write_text(first + changed + "\n" + "".join(rest[1:]))

    return spoil


def _parquet(what: str) -> Spoil:
    def spoil(place: Path) -> None:
        table = pq.read_table(place)
        metadata = dict(table.schema.metadata)
        n = table.num_rows
        if what == "nested provenance":
            metadata[b"polyseme"] = b"[" * DEEP
        elif what == "nested continued":
            metadata[b"polyseme.continued"] = b"[" * DEEP
        elif what == "continued that is none":
            metadata[b"polyseme.continued"] = b'{"a": [1]}'
        elif what == "no texts":
            table = table.set_column(1, "text", pa.array([None] * n, pa.large_string()))
        elif what == "texts in offsets":
            table = table.set_column(3, "start", pa.array([["x"]] * n))
        elif what == "lists of other lengths":
            table = table.set_column(2, "words", pa.array([["x"] * 9] * n))
        elif what == "nulls":
            table = table.set_column(5, "vectors", pa.array([None] * n, table.column("vectors").type))
        elif what == "a column twice":
            table = table.append_column("id", table.column("id"))
        elif what == "20 million equal rows":
            many = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10**6, np.int32)), pa.array(["x"]))
            table = pa.table({"id": many, "text": many, "vector": many})
        table = table.replace_schema_metadata(metadata)
        if what == "20 million equal rows":
            pq.write_table(pa.concat_tables([table] * 20), place, row_group_size=10**8)
        else:
            pq.write_table(table, place)

    return spoil


# --- single files of others -------------------------------------------------------------------------------------------


def _single_files() -> Iterator[Hostile]:
    static = ("show", "embed")
    numbers = {
        "10^12 words": b"1000000000000 4\n",
        "a width of 10^9": b"5 1000000000\n",
        "10^30 words": b"1" + b"0" * 30 + b" 4\n",
    }
    for name in ("static/glove.txt", "static/w2v.bin"):
        for shown, header in numbers.items():
            spoil = edit_bytes("", lambda content, header=header: header + content.removeprefix(b"5 4\n"))
            yield Hostile(f"{Path(name).name}: {shown}", name, spoil, static)
    yield Hostile(
        "word2vec: NaN",
        "static/w2v.bin",
        edit_bytes(
            "",
            lambda content: content.replace(
                b"vase " + content[content.index(b"vase ") + 5 :][:4], b"vase \x00\x00\xc0\x7f"
            ),
        ),
        static,
    )
    yield Hostile(
        "glove: NaN", "static/glove.txt", edit_bytes("", lambda content: content.replace(b"0.5", b"nan")), static
    )
    yield Hostile(
        "glove: a line of another width",
        "static/glove.txt",
        edit_bytes("", lambda content: content + b"more 1 2\n"),
        static,
    )
    yield Hostile("glove: compressed", "static/glove.txt", write("", b"\x1f\x8b" + bytes(100)), static)
    fasttext = "static/fasttext.bin"
    for share in (0.01, 0.3, 0.9):
        yield Hostile(f"fastText: cut at {share}", fasttext, edit_bytes("", cut(share)), static)
    for place, layout, shown in (
        (8, "<i", "width"),
        (8 + 4 * 8, "<i", "buckets"),
        (8 + 48 + 8, "<i", "entries"),
        (8 + 48 + 8 + 4, "<i", "words"),
    ):
        for value in (2**31 - 1, -1):

            def claim(content: bytearray, place: int = place, layout: str = layout, value: int = value) -> bytearray:
                struct.pack_into(layout, content, place, value)
                return content

            yield Hostile(f"fastText: {shown} = {value}", fasttext, edit_bytes("", claim), static)
    for seed in range(12):
        yield Hostile(
            f"fastText: noise {seed}",
            fasttext,
            edit_bytes("", lambda content, seed=seed: flip(seed, 6)(content[:400]) + content[400:-100]),
            static,
            may_work=True,
        )
    arpa = ("show", "score")
    replaced = {
        "10^12 words": ("ngram 1=5", "ngram 1=1000000000000"),
        "an order of 10^9": ("ngram 2=2", "ngram 1000000000=2"),
        "a number of 5,000 digits": ("ngram 2=2", "ngram 2=" + "9" * 5000),
        "NaN": ("-0.5 the", "nan the"),
        "a probability above 1": ("-0.5 the", "5 the"),
        "no end": ("\\end\\", ""),
        "a word twice": ("-0.7 vase", "-0.7 the"),
        "no unigrams": ("ngram 1=5", "ngram 1=0"),
    }
    for shown, (old, new) in replaced.items():
        spoil = edit_bytes("", lambda content, old=old, new=new: content.replace(old.encode(), new.encode()))
        yield Hostile(f"ARPA: {shown}", "arpa/model.arpa", spoil, arpa)
    for share in (0.3, 0.6, 0.9):
        yield Hostile(f"ARPA: cut at {share}", "arpa/model.arpa", edit_bytes("", cut(share)), arpa)
    fastai = ("show", "embed")
    pth = lambda place: place / "lstm_wt103.pth"  # noqa: E731
    contents: dict[str, bytes] = {
        "malicious": pickle.dumps(Malicious()),
        "a list of numbers": pickle.dumps([1, 2]),
        "nested": b"\x80\x02" + b"]" * 1 + b"(" * 5 + b".",
        "noise": bytes(range(256)),
        "empty": b"",
        "10^9 times the same": _repeating(),
    }
    for shown, content in contents.items():

        def words(place: Path, content: bytes = content) -> Path:
            (place / "itos_wt103.pkl").write_bytes(content)
            return pth(place)

        yield Hostile(f"fastai: words: {shown}", "fastai/f", words, fastai)
    for shown in ("nested lists", "cut short", "a text"):

        def words_json(place: Path, shown: str = shown) -> Path:
            (place / "itos_wt103.pkl").unlink()
            content = {"nested lists": "[" * DEEP, "cut short": '["a', "a text": '"a"'}[shown]
            (place / "itos_wt103.json").write_text(content)
            return pth(place)

        yield Hostile(f"fastai: words in JSON: {shown}", "fastai/f", words_json, fastai)
    weights: dict[str, Any] = {
        "malicious": Malicious(),
        "a list": [torch.ones(2)],
        "numbers": {"a": 1},
        "nested": {"model": {"model": {}}},
        "one tensor": {"0.encoder.weight": torch.ones(2, 2)},
    }
    for shown, value in weights.items():

        def change(place: Path, value: Any = value) -> Path:
            torch.save(value, pth(place))
            return pth(place)

        yield Hostile(f"fastai: weights: {shown}", "fastai/f", change, fastai)
    for share in (0.1, 0.9):

        def shorter(place: Path, share: float = share) -> Path:
            edit_bytes("lstm_wt103.pth", cut(share))(place)
            return pth(place)

        yield Hostile(f"fastai: weights cut at {share}", "fastai/f", shorter, fastai)
    for seed in range(6):
        yield Hostile(
            f"Flair: noise {seed}",
            "flair/f",
            edit_bytes("news-forward.pt", lambda content, seed=seed: flip(seed, 20)(content[:3000]) + content[3000:]),
            fastai,
            may_work=True,
        )
    for share in (0.0, 0.1, 0.9):
        yield Hostile(f"Flair: cut at {share}", "flair/f", edit_bytes("news-backward.pt", cut(share)), fastai)
    states: dict[str, Any] = {
        "malicious": Malicious(),
        "a hidden_size of 10^9": {"hidden_size": 10**9},
        "nlayers of 10^9": {"nlayers": 10**9},
        "an embedding_size of text": {"embedding_size": "x"},
        "no state": {"state_dict": None},
        "a dictionary of nothing": {"dictionary": None},
        "a dropout of text": {"dropout": "x"},
        "NaN": {"state_dict": {"a": torch.tensor(float("nan"))}},
    }
    for shown, changes in states.items():
        yield Hostile(f"Flair: {shown}", "flair/f", _flair(changes), fastai)


def _repeating() -> bytes:
    """A list in which one list is ten times, in which one list is ten times, and so on."""
    value: list[Any] = ["w"] * 10
    for _ in range(9):
        value = [value] * 10
    return pickle.dumps(value)


def _flair(changes: Any) -> Spoil:
    def spoil(place: Path) -> None:
        import flair_files

        if isinstance(changes, dict):
            flair_files.write_files(place, **changes)
        else:
            torch.save({"state_dict": changes}, place / "news-forward.pt")

    return spoil


# --- what polyseme keeps ----------------------------------------------------------------------------------------------


def _own() -> Iterator[Hostile]:
    query = ("query index",)
    yield from json_faults("index", "index/i", "index.json", query)
    for name in ("texts.arrow", "uses.arrow", "forms.arrow", "vectors-0.f32"):
        for shown, change in {
            "empty": cut(0.0),
            "cut": cut(0.6),
            "noise": lambda content: bytes(reversed(content))[:-3],
        }.items():
            yield Hostile(f"index: {name}: {shown}", "index/i", edit_bytes(name, change), query)
    for key, value in {"uses": 10**12, "views": [], "format": 99, "source": 7}.items():
        if key != "source":
            yield Hostile(f"index: {key} = {value!r}", "index/i", set_json("index.json", key, value=value), query)
    yield Hostile("index: uses that are not there", "index/i", _arrow(10**9), query)
    yield Hostile("index: uses of negative texts", "index/i", _arrow(-5), query)
    apply = ("apply senses",)
    yield from json_faults("senses", "senses/s.json", "", apply)
    for key, value in {"center": [[1]], "senses": 3, "view": {}, "context": "x", "word": 5}.items():
        yield Hostile(f"senses: {key} = {value!r}", "senses/s.json", set_json("", key, value=value), apply)
    resume = ("resume",)
    yield from json_faults("run", "run/bert-tiny", "run.json", resume)
    unfinished = edit_json("run.json", lambda content: content.update(finished=False))
    for key, value in {"settings": [], "finished": "no", "timing": 4, "corrections": {}, "model_step": "x"}.items():

        def damaged(place: Path, key: str = key, value: Any = value) -> None:
            unfinished(place)
            set_json("run.json", key, value=value)(place)

        yield Hostile(f"run: {key} = {value!r}", "run/bert-tiny", damaged, resume)
    for value in (-1, 0, "3", 1.5, 10**30, None):
        if value is not None:

            def steps(place: Path, value: Any = value) -> None:
                unfinished(place)
                set_json("run.json", "n_steps", value=value)(place)

            yield Hostile(f"run: n_steps = {value!r}", "run/bert-tiny", steps, resume)
    pretrain = ("pretrain",)
    yield from json_faults("corpus", "corpus/c", "corpus.json", pretrain)
    for key, value in {"sides": 3, "sources": [{}], "format": 99, "settings": []}.items():
        if key != "settings":
            yield Hostile(f"corpus: {key} = {value!r}", "corpus/c", set_json("corpus.json", key, value=value), pretrain)


def _arrow(document: int) -> Spoil:
    """Uses of texts that the index does not have."""

    def spoil(place: Path) -> None:
        path = place / "uses.arrow"
        with pa.ipc.open_file(str(path)) as reader:
            table = reader.read_all()
        at = table.schema.get_field_index("document")
        field = table.schema.field(at)
        table = table.set_column(at, field, pa.array([document] * table.num_rows, field.type))
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    return spoil


# --- data -------------------------------------------------------------------------------------------------------------


def _data() -> Iterator[Hostile]:
    def data(name: str, content: bytes) -> Spoil:
        def spoil(place: Path) -> Path:
            path = place.parent / name
            path.write_bytes(content)
            return path

        return spoil

    deep = b"[" * DEEP + b"]" * DEEP
    for shown, line in {
        "nested": deep,
        "nested text": b'{"text": ' + deep + b"}",
        "nested field": b'{"text": "a", "b": ' + b"[" * 900 + b"]" * 900 + b"}",
        "a number of 5,000 digits": b'{"text": "a", "b": ' + b"1" * 5000 + b"}",
    }.items():
        content = b'{"text": "The vase broke ."}\n' + line + b"\n"
        yield Hostile(f"data: .jsonl: {shown}", "static/glove.txt", data("in.jsonl", content), ("embed data",))
        cloze = b'{"sub_label": "a", "obj_label": "b", "masked_sentences": ' + line + b"}\n"
        yield Hostile(f"data: cloze: {shown}", "static/glove.txt", data("P1.jsonl", cloze), ("evaluate cloze",))
    for shown, content in {
        "nested": deep,
        "nested data": b'{"data": ' + deep + b"}",
        "a number of 5,000 digits": b'{"data": ' + b"1" * 5000 + b"}",
        "null": b"null",
        "data of text": b'{"data": ["a"]}',
    }.items():
        yield Hostile(f"data: squad: {shown}", "static/glove.txt", data("train.json", content), ("finetune span",))
    yield Hostile(
        "data: Parquet: noise", "static/glove.txt", data("in.parquet", bytes(range(256)) * 9), ("embed data",)
    )
    yield Hostile("data: .gz: noise", "static/glove.txt", data("in.txt.gz", b"\x1f\x8b" + bytes(99)), ("embed data",))

"""Hostile model folders: settings, weights, vocabularies, and what points out of the folder."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hostile.cases import (
    Hostile,
    Spoil,
    cut,
    edit_bytes,
    edit_json,
    folder_instead,
    json_faults,
    pipe_instead,
    set_json,
    write,
)
from hostile.sound import EVERY_FAMILY

READ = ("show", "embed")
PROOF = Path("/tmp/polyseme-hostile-proof")
MASKED = (
    "show",
    "pieces",
    "embed",
    "score",
    "fill",
    "next",
    "convert",
    "lens",
    "attention",
    "geometry",
    "patch",
    "similar",
    "senses",
)
LARGE = 10**9


def cases() -> Iterator[Hostile]:
    """All of them."""
    yield from _json()
    yield from _settings()
    yield from _weights()
    yield from _outside()
    yield from _tokenizers()
    yield from _tasks()


# --- JSON -------------------------------------------------------------------------------------------------------------


def _json() -> Iterator[Hostile]:
    bert = "family/bert"
    for name in ("config.json", "tokenizer.json", "polyseme.json"):
        yield from json_faults("model", bert, name, READ)
    for name in ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json"):
        yield from json_faults("model", bert, name, READ)
    yield from json_faults("model", "sharded/bert", "model.safetensors.index.json", READ)
    yield from json_faults("model", "vocabulary/gpt2", "vocab.json", READ)
    yield from json_faults("model", "family/elmo", "options.json", READ)
    yield from json_faults("n-grams", "ngrams/model", "config.json", ("show", "score"))
    for name in ("modules.json", "1_Pooling/config.json"):
        yield from json_faults("sentences", "sentences/model", name, ("embed texts",))
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        yield Hostile(f"model: a pipe as {name}", bert, pipe_instead(name), READ)
        yield Hostile(f"model: a folder as {name}", bert, folder_instead(name), READ)


# --- settings ---------------------------------------------------------------------------------------------------------


def _numbers(content: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        if isinstance(value, int) and not isinstance(value, bool):
            yield (*path, key)
        yield from _numbers(value, (*path, key))


def sized(family: str, settings: dict[str, Any]) -> list[tuple[str | int, ...]]:
    """The whole numbers of a family's settings that are sizes: not ids of pieces, which are checked elsewhere."""
    return [path for path in _numbers(settings) if "token_id" not in str(path[-1]) and str(path[-1]) != "token"]


def _settings() -> Iterator[Hostile]:
    for family, paths in SIZES.items():
        for path in paths:
            name = "options.json" if family == "elmo" else "config.json"
            shown = ".".join(map(str, path))
            for value in (LARGE, -1) if family in ("bert", "lstm") else (LARGE,):
                yield Hostile(
                    f"{family}: {shown} = {value}",
                    f"family/{family}",
                    set_json(name, *path, value=value),
                    READ,
                    may_work=family != "bert",
                )
    for value in (10**30, 1.5, "12", None, [12], True, {}, float("nan"), 0):
        for name in ("hidden_size", "num_hidden_layers", "vocab_size"):
            if not (value == 0 and value is not True and name == "num_hidden_layers"):
                spoil = set_json("config.json", name, value=value)
                yield Hostile(f"bert: {name} = {value!r}", "family/bert", spoil, READ)
    for name, value in {
        "model_type": ["bert"],
        "hidden_act": {"a": 1},
        "layer_norm_eps": "x",
        "pruned_heads": {"0": [LARGE]},
        "quantization_config": {"quant_method": "polyseme-int8"},
    }.items():
        yield Hostile(f"bert: {name} = {value!r}", "family/bert", set_json("config.json", name, value=value), READ)


SIZES: dict[str, list[tuple[str | int, ...]]] = {}
"""Family → where its settings have sizes; filled by `find_sizes`."""


def find_sizes(path_of: Callable[[str], Path], families: Sequence[str]) -> None:
    """Read the sizes off sound folders."""
    SIZES.clear()
    for family in families:
        folder = path_of(f"family/{family}")
        name = "options.json" if family == "elmo" else "config.json"
        SIZES[family] = sized(family, json.loads((folder / name).read_text()))


# --- weights ----------------------------------------------------------------------------------------------------------


def edit_weights(change: Callable[[dict[str, Tensor]], object], name: str = "model.safetensors") -> Spoil:
    """Other tensors in a file of safetensors."""

    def spoil(place: Path) -> None:
        tensors = load_file(place / name)
        change(tensors)
        save_file(tensors, place / name, metadata={"format": "pt"})

    return spoil


def every(change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], None]:
    """A change of every tensor."""

    def change_all(tensors: dict[str, Tensor]) -> None:
        tensors.update({name: change(tensor).contiguous() for name, tensor in tensors.items()})

    return change_all


def one(value: float, last: bool = False) -> Callable[[dict[str, Tensor]], None]:
    """A single number of a single matrix."""

    def change(tensors: dict[str, Tensor]) -> None:
        name = [name for name, tensor in tensors.items() if tensor.dim() > 1 and tensor.is_floating_point()][
            -1 if last else 0
        ]
        tensors[name] = tensors[name].clone()
        tensors[name].view(-1)[-1 if last else 0] = value

    return change


def as_pickle(content: Callable[[dict[str, Tensor]], Any], **options: Any) -> Spoil:
    """A pytorch_model.bin in place of the safetensors."""

    def spoil(place: Path) -> None:
        tensors = load_file(place / "model.safetensors")
        (place / "model.safetensors").unlink()
        torch.save(content(tensors), place / "pytorch_model.bin", **options)

    return spoil


class Malicious:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {PROOF}",)


def _weights() -> Iterator[Hostile]:
    values = {"NaN": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
    for shown, value in values.items():
        yield Hostile(f"bert: {shown} in the weights", "family/bert", edit_weights(one(value)), MASKED)
        yield Hostile(f"bert: {shown} in the last matrix", "family/bert", edit_weights(one(value, last=True)), MASKED)
        yield Hostile(
            f"gpt2: {shown} in the weights",
            "family/gpt2",
            edit_weights(one(value)),
            ("score", "generate", "embed", "show"),
        )
    for family in EVERY_FAMILY:
        if family not in ("bert", "gpt2", "elmo", "static"):
            yield Hostile(f"{family}: NaN in the weights", f"family/{family}", edit_weights(one(float("nan"))), READ)
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "complex": lambda tensor: tensor.to(torch.complex64),
        "whole numbers": lambda tensor: tensor.to(torch.int64),
        "truth values": lambda tensor: tensor > 0,
        "8 bits": lambda tensor: tensor.to(torch.float8_e4m3fn),
        "int8": lambda tensor: tensor.to(torch.int8),
        "without numbers": lambda tensor: tensor[:0],
        "scalars": lambda tensor: tensor.reshape(-1)[0],
    }
    for shown, change in changes.items():
        if shown != "8 bits":
            yield Hostile(f"bert: weights that are {shown}", "family/bert", edit_weights(every(change)), READ)
    quantized = lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)  # noqa: E731
    pickles: dict[str, Callable[[dict[str, Tensor]], Any]] = {
        "quantized": lambda tensors: {name: quantized(tensor) for name, tensor in tensors.items()},
        "sparse": lambda tensors: {name: tensor.to_sparse() for name, tensor in tensors.items()},
        "without memory": lambda tensors: {name: tensor.to("meta") for name, tensor in tensors.items()},
        "one number repeated": lambda tensors: {
            name: torch.zeros(1).expand(tensor.shape) for name, tensor in tensors.items()
        },
        "a table of 10^9 rows": lambda tensors: {name: torch.zeros(1).expand(10**9, 32) for name in tensors},
        "complex": lambda tensors: {name: tensor.to(torch.complex64) for name, tensor in tensors.items()},
        "malicious": lambda tensors: {name: Malicious() for name in tensors},
        "nested": lambda tensors: [[tensors]],
        "a module": lambda tensors: torch.nn.Linear(2, 2),
        "NaN": lambda tensors: {name: tensor * float("nan") for name, tensor in tensors.items()},
        "names that are numbers": lambda tensors: dict(enumerate(tensors.values())),
    }
    for shown, content in pickles.items():
        yield Hostile(f"bert: pytorch_model.bin: {shown}", "family/bert", as_pickle(content), READ)
        if shown not in ("without memory",):
            old = as_pickle(content, _use_new_zipfile_serialization=False)
            yield Hostile(f"bert: old pytorch_model.bin: {shown}", "family/bert", old, READ)
    for share in (0.0, 0.001, 0.5, 0.99):
        yield Hostile(f"bert: weights cut at {share}", "family/bert", edit_bytes("model.safetensors", cut(share)), READ)
    headers = {
        "a header of 2^62 bytes": (1 << 62).to_bytes(8, "little") + b"{}",
        "a header of 10^9 bytes": (10**9).to_bytes(8, "little") + b"{}",
        "a nested header": len(b"[" * 10**5).to_bytes(8, "little") + b"[" * 10**5,
        "a shape of 2^62": _header({"a": {"dtype": "F32", "shape": [1 << 31, 1 << 31], "data_offsets": [0, 4]}}),
        "offsets outside": _header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [1 << 40, (1 << 40) + 4]}}),
        "a negative shape": _header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}),
        "an unknown type": _header({"a": {"dtype": "Q9", "shape": [1], "data_offsets": [0, 4]}}),
    }
    for shown, header in headers.items():
        yield Hostile(f"bert: safetensors: {shown}", "family/bert", write("model.safetensors", header), READ)
    for value in ("nan", "inf"):
        yield Hostile(f"elmo: {value} in the weights", "family/elmo", _edit_hdf5(value), READ)


def _header(entries: dict[str, Any]) -> bytes:
    content = json.dumps(entries).encode()
    return len(content).to_bytes(8, "little") + content + bytes(4)


def _edit_hdf5(what: str) -> Spoil:
    """ELMo's weights with something else in place of one of them."""

    def spoil(place: Path) -> None:
        import h5py
        import numpy as np

        path, name = place / "weights.hdf5", "CNN_proj/W_proj"
        secret = place.parent / "secret.raw"
        with h5py.File(path, "r+") as file:
            content = file[name][()]
            if what in ("nan", "inf"):
                file[name][0, 0] = float(what)
                return
            del file[name]
            if what == "external storage":
                secret.write_bytes(content.astype("<f4").tobytes())
                file.create_dataset(name, content.shape, "<f4", external=[(str(secret), 0, content.nbytes)])
            elif what in ("virtual dataset", "external link"):
                with h5py.File(secret, "w") as other:
                    other["w"] = content
                if what == "external link":
                    file[name] = h5py.ExternalLink(str(secret), "w")
                else:
                    layout = h5py.VirtualLayout(content.shape, "<f4")
                    layout[:] = h5py.VirtualSource(str(secret), "w", content.shape)
                    file.create_virtual_dataset(name, layout)
            elif what == "soft link":
                file["elsewhere"] = content
                file[name] = h5py.SoftLink("/elsewhere")
            elif what == "huge":
                file.create_dataset(name, (10**6, 10**6), "<f4", chunks=(100, 100))
            elif what == "compressed":
                file.create_dataset(
                    name, data=np.zeros((5000, 5000), np.float32), chunks=(1000, 1000), compression="gzip"
                )
            elif what == "texts":
                file[name] = np.array([b"a", b"b"])
            elif what == "complex":
                file[name] = content.astype(np.complex64)

    return spoil


# --- what points out of the folder ------------------------------------------------------------------------------------


def _shard_at(where: Callable[[Path], tuple[str, Path]]) -> Spoil:
    """A shard that is whole, at a place outside that the index names."""

    def spoil(place: Path) -> None:
        index = place / "model.safetensors.index.json"
        content = json.loads(index.read_text())
        shard = sorted(set(content["weight_map"].values()))[0]
        named, there = where(place)
        there.parent.mkdir(parents=True, exist_ok=True)
        (place / shard).rename(there)
        content["weight_map"] = {
            key: named if value == shard else value for key, value in content["weight_map"].items()
        }
        index.write_text(json.dumps(content))

    return spoil


def _outside() -> Iterator[Hostile]:
    shards: dict[str, Callable[[Path], tuple[str, Path]]] = {
        "above": lambda place: ("../x.safetensors", place.parent / "x.safetensors"),
        "absolute": lambda place: (str(place.parent / "x.safetensors"), place.parent / "x.safetensors"),
        "around": lambda place: (f"../{place.name}/../x.safetensors", place.parent / "x.safetensors"),
        "in a folder": lambda place: ("a/../../x.safetensors", place.parent / "x.safetensors"),
    }
    for shown, where in shards.items():
        yield Hostile(f"shards: {shown}", "sharded/bert", _shard_at(where), READ)
    for shown, name in {"empty": "", "a dot": ".", "two dots": "..", "NUL": "a\0b", "a device": "/dev/zero"}.items():
        spoil = edit_json(
            "model.safetensors.index.json",
            lambda content, name=name: {"weight_map": dict.fromkeys(content["weight_map"], name)},
        )
        yield Hostile(f"shards: the name is {shown}", "sharded/bert", spoil, READ)
    for what in (
        "external storage",
        "virtual dataset",
        "external link",
        "soft link",
        "huge",
        "compressed",
        "texts",
        "complex",
    ):
        yield Hostile(f"elmo: {what}", "family/elmo", _edit_hdf5(what), READ)
    yield Hostile(
        "sentences: a module above", "sentences/model", set_json("modules.json", 1, "path", value="../x"), READ
    )
    yield Hostile(
        "sentences: an absolute module", "sentences/model", set_json("modules.json", 1, "path", value="/etc"), READ
    )
    yield Hostile("sentences: a card that is a link", "sentences/model", _link("README.md"), READ)
    yield Hostile("sentences: a module that is a link", "sentences/model", _link("1_Pooling/config.json"), READ)
    yield Hostile("ensemble: members above", "family/bert", set_json("polyseme.json", "ensemble", value=["../x"]), READ)
    for name in ("../other", "/tmp"):
        yield Hostile(f"mixture: a part at {name}", "family/bert", _mixture(name), ("show", "score", "generate"))


def _link(name: str) -> Spoil:
    def spoil(place: Path) -> None:
        secret = place.parent / "secret.txt"
        secret.write_text('{"pooling_mode_mean_tokens": true, "word_embedding_dimension": 32}')
        (place / name).unlink(missing_ok=True)
        (place / name).symlink_to(secret)

    return spoil


def _mixture(part: str) -> Spoil:
    def spoil(place: Path) -> Path:
        mixture = place.parent / "mixture"
        mixture.mkdir()
        place.rename(mixture / "0")
        content = {"model_type": "mixture", "parts": ["0", part], "weights": [0.5, 0.5]}
        (mixture / "config.json").write_text(json.dumps(content))
        return mixture

    return spoil


# --- tokenizers -------------------------------------------------------------------------------------------------------


BACKTRACKING = {
    "nested quantifiers": "(a+)+$",
    "nested stars": "(\\w*)*!",
    "alternatives that overlap": "(a|a|aa)+$",
    "a reference": "(a+)\\1+$",
    "many stars": "a*a*a*a*a*a*b",
    "counted": "(a{1,20}){1,20}$",
    "recursion": "(?<x>a\\g<x>*)+$",
}
LETTERS = "a" * 64 + "!"


def _regex(place_in: str, pattern: str) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        if place_in == "split":
            step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
            content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [step, content["pre_tokenizer"]]}
        else:
            step = {"type": "Replace", "pattern": {"Regex": pattern}, "content": "x"}
            content["normalizer"] = {"type": "Sequence", "normalizers": [step, content["normalizer"]]}

    return change


def _without_fingerprint(spoil: Spoil) -> Spoil:
    def both(place: Path) -> None:
        (place / "polyseme.json").unlink(missing_ok=True)
        spoil(place)

    return both


def _tokenizers() -> Iterator[Hostile]:
    commands = ("show", "pieces", "embed")
    for shown, pattern in BACKTRACKING.items():
        for where in ("split", "replace"):
            spoil = _without_fingerprint(edit_json("tokenizer.json", _regex(where, pattern)))
            yield Hostile(
                f"tokenizer: a pattern with {shown} ({where})", "family/bert", spoil, (*commands, "long word")
            )

    def edited(name: str, family: str, change: Callable[[Any], Any]) -> Hostile:
        return Hostile(
            f"tokenizer: {name}",
            f"family/{family}",
            _without_fingerprint(edit_json("tokenizer.json", change)),
            commands,
        )

    def drop(content: Any, piece: str) -> None:
        vocabulary = content["model"]["vocab"]
        vocabulary[f"x{piece}x"] = vocabulary.pop(piece)
        content["added_tokens"] = [each for each in content["added_tokens"] if each["content"] != piece]

    def give(*keys: str | int, value: Any) -> Callable[[Any], None]:
        def change(content: Any) -> None:
            for key in keys[:-1]:
                content = content[key]
            content[keys[-1]] = value

        return change

    yield edited("WordPiece without its unknown piece", "bert", lambda content: drop(content, "[UNK]"))
    yield edited("words without the unknown one", "lstm", lambda content: drop(content, "<unk>"))
    yield edited("unigrams without the unknown piece", "xlm-roberta", give("model", "unk_id", value=None))
    yield edited("an unknown piece that is not there", "xlm-roberta", give("model", "unk_id", value=10**9))
    yield edited("an id of 10^9", "bert", give("model", "vocab", "zzz", value=10**9))
    yield edited("an id of -1", "bert", give("model", "vocab", "zzz", value=-1))
    yield edited("an id of 2^40", "bert", give("model", "vocab", "zzz", value=1 << 40))
    yield edited("merges of nothing", "gpt2", give("model", "merges", value=[["zz", "yy"]]))
    yield edited("a model of no kind", "bert", give("model", "type", value="Evil"))
    yield edited(
        "a character map that is noise",
        "xlm-roberta",
        give("normalizer", value={"type": "Precompiled", "precompiled_charsmap": "AAAAAAAAAAA="}),
    )
    yield edited(
        "a character map that claims 2^32",
        "xlm-roberta",
        give("normalizer", value={"type": "Precompiled", "precompiled_charsmap": "/////wAAAAA="}),
    )
    doubling = {"type": "Replace", "pattern": {"String": "e"}, "content": "ee"}
    yield edited(
        "a normalizer that doubles 40 times",
        "bert",
        give("normalizer", value={"type": "Sequence", "normalizers": [doubling] * 40}),
    )
    longer = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 10_000_000}
    yield edited("a normalizer that writes 10 MB for a letter", "bert", give("normalizer", value=longer))
    yield edited("a null vocabulary", "bert", give("model", "vocab", value=None))
    yield edited("an empty vocabulary", "bert", give("model", "vocab", value={}))
    yield edited("no model", "bert", give("model", value=None))
    for name in ("vocab.txt", "merges.txt"):
        sound = "vocabulary/bert" if name == "vocab.txt" else "vocabulary/gpt2"
        for shown, content in {
            "empty": b"",
            "noise": bytes(range(256)) * 4,
            "lines": b"\n" * 100,
            "a line": b"x",
        }.items():
            if not (name == "merges.txt" and shown == "empty"):
                yield Hostile(f"tokenizer: {name}: {shown}", sound, write(name, content), READ)
    for shown, content in {
        "empty": b"",
        "noise": bytes(range(256)) * 4,
        "text": b"Dawn broke.",
        "a length of 2^60": b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x0f",
    }.items():
        yield Hostile(f"tokenizer: spiece.model: {shown}", "family/t5", _sentencepiece(content), READ)
    settings = {
        "bos_token": {"content": ["a"]},
        "unk_token": 7,
        "do_lower_case": "yes",
        "added_tokens_decoder": 3,
        "model_max_length": "x",
        "extra_ids": 10**9,
    }
    for name, value in list(settings.items())[:2]:
        spoil = write("tokenizer_config.json", json.dumps({name: value}))
        yield Hostile(f"tokenizer_config.json: {name} = {value!r}", "vocabulary/gpt2", spoil, READ)
    yield Hostile("tokenizer_config.json: 10^9 sentinels", "family/t5", _sentinels, READ)


def _sentencepiece(content: bytes) -> Spoil:
    def spoil(place: Path) -> None:
        (place / "tokenizer.json").unlink()
        (place / "polyseme.json").unlink()
        (place / "spiece.model").write_bytes(content)

    return spoil


def _sentinels(place: Path) -> None:
    golden = Path(__file__).parents[1] / "golden"
    models = sorted(golden.rglob("spiece.model")) + sorted(golden.rglob("*.model"))
    content = models[0].read_bytes() if models else b""
    _sentencepiece(content)(place)
    (place / "tokenizer_config.json").write_text('{"extra_ids": 1000000000}')


# --- task models ------------------------------------------------------------------------------------------------------


def _tasks() -> Iterator[Hostile]:
    predict = ("predict",)
    task = "task/classify"
    yield from json_faults("task model", task, "polyseme.json", predict)
    for shown, content in {
        "empty": b"",
        "noise": bytes(range(256)) * 8,
        "a pickle": pickle.dumps({"a": 1}),
        "huge": _header({"a": {"dtype": "F32", "shape": [1 << 31, 1 << 31], "data_offsets": [0, 4]}}),
    }.items():
        yield Hostile(f"task model: a head that is {shown}", task, write("head.safetensors", content), predict)
    for value in (float("nan"), float("inf")):
        yield Hostile(f"task model: a head with {value}", task, edit_weights(one(value), "head.safetensors"), predict)
    for shown, change in {
        "complex": lambda tensor: tensor.to(torch.complex64),
        "of other shapes": lambda tensor: torch.zeros(3),
        "whole numbers": lambda tensor: tensor.to(torch.int64),
    }.items():
        yield Hostile(
            f"task model: a head that is {shown}", task, edit_weights(every(change), "head.safetensors"), predict
        )
    yield Hostile("task model: a pipe as the head", task, pipe_instead("head.safetensors"), predict)
    yield Hostile("task model: a folder as the head", task, folder_instead("head.safetensors"), predict)
    values = {"reading": 3, "head": [], "inputs": "x", "stacked": [1] * 3, "labels": None}
    for key, value in list(values.items())[:4]:
        yield Hostile(
            f"task model: {key} = {value!r}", task, set_json("polyseme.json", "task", key, value=value), predict
        )
    yield Hostile("task model: no task", task, set_json("polyseme.json", "task", value=[1]), predict)

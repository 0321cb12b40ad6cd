"""The files that sentence-transformers keeps beside a Transformer: which modules follow it, and their settings.

| file | |
|---|---|
| modules.json | the modules in order, each with the folder of its files; the first is the Transformer |
| sentence_bert_config.json | how long a text it reads |
| 1_Pooling/config.json, … | the settings, and perhaps the weights, of each further module |
| config_sentence_transformers.json | versions, and prompts by name |

Here they are found, carried along as they are, and written for a model that has none; `embedding.text_pooling` computes
what they say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from polyseme.errors import ModelError
from polyseme.json_reading import parse_json

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
LENGTHS = "sentence_*_config.json"
"""Named after the kind of Transformer in old folders; today's is sentence_bert_config.json."""
MODEL_CARD = "README.md"
_TYPES = "sentence_transformers.models"
"""Under which name all versions of the library know their modules."""


def modules_of(content: bytes | str, where: str) -> list[dict[str, Any]]:
    """The entries of a modules.json, in order."""
    try:
        entries = parse_json(content, kind=list)
        ordered = sorted(entries, key=lambda entry: int(entry["idx"]))
        return [{**entry, "type": str(entry["type"]), "path": _inside(str(entry["path"]))} for entry in ordered]
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(f"{where} does not list modules as sentence-transformers does ({error!r}).") from None


def transformer_folder(path: Path) -> Path | None:
    """The folder of the Transformer where it is not the model's own, as in the library's first years."""
    file = path / MODULES
    if not file.is_file():
        return None
    first = modules_of(file.read_bytes(), str(file))[:1]
    inside = path / first[0]["path"] if first else path
    return inside if inside != path and (inside / "config.json").is_file() else None


def read_extra_files(folder: Path) -> dict[str, bytes]:
    """The model card and the files of sentence-transformers that go with the model in a folder, by their paths.

    Where the Transformer has a folder of its own, it takes the place of the one above.
    """
    above = transformer_folder(folder.parent)
    root = folder.parent if above is not None and above == folder else folder
    files = {MODEL_CARD: root / MODEL_CARD, SETTINGS: root / SETTINGS}
    files |= {path.name: path for place in (root, folder) for path in place.glob(LENGTHS)}
    files |= {MODULES: root / MODULES}
    contents = {name: _read_kept_file(path, root) for name, path in files.items() if path.is_file()}
    if MODULES in contents:
        entries = modules_of(contents[MODULES], str(root / MODULES))
        for entry in entries[1:]:
            paths = sorted(path for path in (root / entry["path"]).glob("*") if entry["path"] and path.is_file())
            contents |= {f"{entry['path']}/{path.name}": _read_kept_file(path, root) for path in paths}
        if root != folder:
            contents[MODULES] = _json([{**entries[0], "path": ""}, *entries[1:]])
    return contents


def _read_kept_file(path: Path, root: Path) -> bytes:
    """A file that is saved with the model as it is. Links may lead into the folder, or a Hugging Face cache's blobs."""
    target, folder = path.resolve(), root.resolve()
    if folder not in target.parents and target.parent != folder.parent.parent / "blobs":
        raise ModelError(
            f"{path} is a link that leads out of the model's folder, to {target}. What it leads to would be copied "
            "with the model; put the file itself there, or remove the link."
        )
    return path.read_bytes()


def files_for(pooling: Mapping[str, Any], width: int, window: int | None) -> dict[str, bytes]:
    """The files of a model whose texts are pooled so, without any further module."""
    entries = [
        {"idx": 0, "name": "0", "path": "", "type": f"{_TYPES}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{_TYPES}.Pooling"},
    ]
    return {
        MODULES: _json(entries),
        "sentence_bert_config.json": _json({"max_seq_length": window, "do_lower_case": False}),
        "1_Pooling/config.json": _json({"word_embedding_dimension": width, **pooling}),
    }


def write_extra_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Put files into a model folder, in folders of their own where their paths say so."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _inside(path: str) -> str:
    """A module's path, which must stay in the model's folder."""
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError(f"{path!r} is outside of the model's folder")
    return path.rstrip("/")


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()

"""Models by name: those that packages bring, and those of a hub, which are fetched only on request."""

from __future__ import annotations

from pathlib import Path

from polyseme.convert.named_files import named_files
from polyseme.errors import ModelError, nearest
from polyseme.extras import require
from polyseme.packaged_models import PACKAGED, default_model

HUB = "hub:"
WANTED_FILES = ("*.json", "*.txt", "*.model", "*.bpe", "*.safetensors", "pytorch_model*.bin", "README.md")


def find_model(name: str | Path | None) -> Path:
    """The folder of a model: a path is a path, `hub:owner/name` is fetched, no name is the default for word vectors.

    A model in several files is named by all of them (`named_files`).
    """
    if name is None:
        name = default_model("embed")
    if str(name).startswith(HUB):
        return _fetch(str(name)[len(HUB) :])
    if str(name) in PACKAGED and not Path(name).exists():
        return PACKAGED[str(name)].path()
    path = Path(name)
    if not path.exists() and not named_files(path):
        raise ModelError(
            f"There is no model at {str(name)!r}: no such folder, and no packaged model of that name. "
            f"{nearest(str(name), PACKAGED)} A model of a hub is named as hub:owner/name."
        )
    return path


def _fetch(name: str) -> Path:
    hub = require("huggingface_hub", extra="hub")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=list(WANTED_FILES)))
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"The model {name!r} could not be fetched from the hub ({reason}). Without a network, copy its folder "
            "(config.json, the weights and the tokenizer's files) from a machine that has it, and name the folder "
            "with -m."
        ) from None

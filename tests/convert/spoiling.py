"""How model folders are spoilt, and what must come of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

import polyseme
from polyseme.errors import ModelError


def refusal(path: str | Path) -> str:
    """What loading says; it must refuse, and in one paragraph."""
    with pytest.raises(ModelError) as refused:
        polyseme.load(path)
    message = str(refused.value)
    assert "\n" not in message
    assert message.endswith((".", "?"))
    return message


def change_config(folder: Path, *leave_out: str, **changes: Any) -> None:
    """Change entries of config.json, or leave some out."""
    path = folder / "config.json"
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in content.items() if name not in leave_out}))


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    """Change the tensors of model.safetensors, in place."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

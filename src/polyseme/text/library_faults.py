"""What the `tokenizers` library does with damaged files: errors of many classes, panics, and ends of the process."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyseme.errors import ModelError
from polyseme.json_reading import load_json


@contextlib.contextmanager
def library_faults(failure: str, advice: str = "Get the file again.") -> Iterator[None]:
    """Within this block, whatever the `tokenizers` library raises is one error; its own class for a panic included."""
    try:
        yield
    except ModelError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"{failure} ({reason}). {advice}") from None


def refuse_damaged_tables(path: Path) -> None:
    """Refuse a tokenizer.json whose table of characters claims a size that it has not: the library would end there."""
    content = path.read_bytes()
    if b"recompiled" not in content and b"\\u00" not in content:  # which may spell it, too
        return
    with library_faults(f"{path} is not a tokenizer that this version can read"):
        for step in _normalizers(load_json(path, kind=dict).get("normalizer")):
            table = step.get("precompiled_charsmap")
            if table:
                decoded = base64.b64decode(table)
                size = int.from_bytes(decoded[:4], "little")
                if not 0 < size <= len(decoded) - 4 or size % 4:
                    raise ValueError(
                        f"its table of characters should have {size:,} bytes, and has {len(decoded) - 4:,}"
                    )


def _normalizers(step: Any) -> Iterator[dict[str, Any]]:
    if isinstance(step, dict):
        yield step
        for inner in step.get("normalizers") or ():
            yield from _normalizers(inner)

"""`convert`: a model from any layout that polyseme reads, saved in its own."""

from __future__ import annotations

from polyseme.api import AnyPath, load
from polyseme.files.atomic import check_output


def convert_model(
    *, output: AnyPath, model: AnyPath | None = None, force: bool = False, shard_size: int | None = None
) -> None:
    """Load a model and save it as a folder of today's layout (config.json, model.safetensors, tokenizer.json)."""
    check_output(output, force=force, kind="folder", inputs=[model], marks=["*config.json", "*options.json"])
    load(model, device="cpu").save(output, force=force, shard_size=shard_size)

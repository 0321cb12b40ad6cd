"""`convert`: a model from any layout that polyseme reads, saved in its own."""

from __future__ import annotations

from polyseme.api import Model, folder_of, load
from polyseme.files.atomic import check_output
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options import ConvertOptions


@flat(ConvertOptions)
def convert_model(options: ConvertOptions) -> None:
    """Load a model and save it as a folder of today's layout (config.json, model.safetensors, tokenizer.json)."""
    marks = ["config.json", "options.json"]
    check_output(options.output, force=options.force, kind="folder", inputs=[folder_of(options.model)], marks=marks)
    model = options.model
    if not isinstance(model, Model):
        model = load(model_or_default("convert", model), device="cpu")
    model.save(options.output, force=options.force, shard_size=options.shard_size, store=options.store)

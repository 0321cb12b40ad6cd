"""`show`: what a model is and what it can do."""

from __future__ import annotations

from polyseme.api import Model, load
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.shown_model import Card
from polyseme.verb_options.model_options import ShowOptions


@flat(ShowOptions)
def show(options: ShowOptions) -> Card:
    """Describe a model: family, sizes, parameters, tokenizer, outputs, and which verbs work with it."""
    if isinstance(options.model, Model):
        return options.model.show()
    return load(model_or_default("show", options.model), device="cpu").show()

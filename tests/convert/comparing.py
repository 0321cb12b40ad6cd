"""A model of ours beside one of `transformers`, over the same row of pieces."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from polyseme.api import Model
from polyseme.types import Batch
from references import assert_close

TEXT = "The burglar broke into the well-known house."
PAIR = ("The vase broke.", "Sandy broke the law.")

THEIR_NAMES = {
    "pooled": ("pooler_output",),
    "masked": ("prediction_logits", "logits"),
    "next": ("seq_relationship_logits", "sop_logits", "logits"),
    "replaced": ("logits",),
    "causal": ("logits",),
}


def row(model: Model) -> Batch:
    """One row with a pair of sentences."""
    tokenizer = model.bundle.tokenizer
    assert tokenizer is not None
    first, second = (model.pieces(text) for text in PAIR)
    framed = tokenizer.frame(first.ids[1:-1], second.ids[1:-1])
    return Batch(torch.from_numpy(framed.ids)[None], segments=torch.from_numpy(framed.segments)[None])


def their_inputs(reference: Any, batch: Batch) -> dict[str, Any]:
    inputs = {"input_ids": batch.pieces}
    if reference.config.model_type not in ("distilbert", "openai-gpt", "gpt2"):
        inputs["token_type_ids"] = batch.segments
    return inputs


def assert_same_states(model: Model, reference: Any) -> None:
    """Every layer of a text, to 1e-5 of its largest value."""
    found = model.pieces(TEXT)
    with torch.no_grad():
        theirs = reference(torch.from_numpy(found.ids)[None], output_hidden_states=True).hidden_states
    assert len(found.states) == len(theirs)
    for ours, their_layer in zip(found.states, theirs, strict=True):
        assert_close(torch.from_numpy(ours), their_layer[0], 1e-5)


@torch.no_grad()
def our_outputs(model: Model) -> dict[str, Tensor]:
    """What each output says of a pair; logits up to a constant that a softmax does not see."""
    states = model.bundle.encoder(row(model), layers=[-1])[-1]
    said: dict[str, Tensor] = {}
    for name, output in model.bundle.outputs.items():
        if name == "pooled":
            said[name] = output(states[:, 0])
        elif name == "next":
            said[name] = output.log_probs(model.bundle.outputs["pooled"](states[:, 0]))
        elif name == "replaced":
            said[name] = output.logits(states)
        else:
            said[name] = output.log_probs(states)
    return said


@torch.no_grad()
def their_outputs(reference: Any, model: Model) -> dict[str, Tensor]:
    """The same from the reference, for those outputs of ours that its class returns."""
    result = reference(**their_inputs(reference, row(model)))
    said: dict[str, Tensor] = {}
    for name in model.bundle.outputs:
        found = next((result[each] for each in THEIR_NAMES[name] if each in result), None)
        if found is not None:
            said[name] = found.log_softmax(-1) if name in ("masked", "next", "causal") else found
    return said

"""A model of ours beside one of `transformers`, over the same row of pieces."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from polyseme.api import Model
from polyseme.text.documents import make_document
from polyseme.types import Batch
from references import by_stack, our_stacks
from tolerance import Expected, expect

TEXT = "The burglar broke into the well-known house."
PAIR = ("The vase broke.", "Sandy broke the law.")

THEIR_NAMES = {
    "pooled": ("pooler_output",),
    "masked": ("prediction_logits", "logits"),
    "next": ("seq_relationship_logits", "sop_logits", "logits"),
    "replaced": ("logits",),
    "causal": ("logits",),
    "permuted": ("logits",),
}


def row(model: Model, *texts: str) -> Batch:
    """One row with a text or a pair of them; a pair of sentences if there is none."""
    texts = texts or PAIR
    tokenizer = model.bundle.tokenizer
    assert tokenizer is not None
    framed = tokenizer.frame(*(tokenizer.encode(make_document(text)).ids for text in texts))
    return Batch(torch.from_numpy(framed.ids)[None], segments=torch.from_numpy(framed.segments)[None])


def their_inputs(reference: Any, batch: Batch) -> dict[str, Any]:
    """A decoder reads what its encoder reads."""
    inputs = {"input_ids": batch.pieces}
    if reference.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = batch.pieces
    elif reference.config.model_type not in ("distilbert", "modernbert", "openai-gpt", "gpt2"):
        inputs["token_type_ids"] = batch.segments
    return inputs


def assert_same_states(model: Model, reference: Any, text: str = TEXT) -> None:
    """Every layer of a text, in fp32."""
    inputs = their_inputs(reference, row(model, text))

    def layers(reference: Any) -> dict[int, Tensor]:
        stacks = by_stack(reference(**inputs, output_hidden_states=True), "hidden_states")
        return {number: layer[0] for number, layer in enumerate(stacks[0])}

    with torch.no_grad():
        expected = expect(reference, layers, torch.float32)
    states = model.pieces(text).states
    assert len(states) == len(expected)
    for number, ours in enumerate(states):
        expected[number].check(torch.from_numpy(ours))


@torch.no_grad()
def our_outputs(model: Model, *texts: str) -> dict[str, Tensor]:
    """What each output says of a pair; logits up to a constant that a softmax does not see."""
    states = our_stacks(model.bundle, row(model, *texts), layers=[-1])[-1][-1]
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
def their_outputs(reference: Any, model: Model, *texts: str) -> dict[str, Expected]:
    """The same from the reference, for those outputs of ours that its class returns."""
    inputs = their_inputs(reference, row(model, *texts))

    def outputs(reference: Any) -> dict[str, Tensor]:
        result = reference(**inputs)
        returned: dict[str, Tensor] = {}
        for name in model.bundle.outputs:
            logits = next((result[each] for each in THEIR_NAMES[name] if each in result), None)
            if logits is not None:
                returned[name] = logits.log_softmax(-1) if name in ("masked", "next", "causal", "permuted") else logits
        return returned

    return expect(reference, outputs, torch.float32)

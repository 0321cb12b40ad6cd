"""generation_config.json: ends, forbidden pieces and defaults, as the reference takes them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import polyseme
from generating import two_sides, writing
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.language_model import language_model
from polyseme.generating.model_defaults import decoding_defaults, ids_named
from polyseme.verb_options.text_options import DecodingOptions
from tiny_models import tiny_model

N_ENDS = 6


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("family", ["gpt2", "bart"])
def test_several_pieces_end_a_text(family: str, beam: int) -> None:
    """So many that a beam must look farther: pieces that are written otherwise."""
    decoding = Decoding(max_new=12, beam=beam, min_new=2)
    if family == "gpt2":
        pair, rows = writing.gpt2(), writing.prompts((5, 5, 5, 5), seed=4)
        model, prompts, sources = writing.language(writing.step_by_step(pair.ours), end=0), rows, None
        inputs, n_read, more = {"input_ids": torch.tensor(rows)}, 5, {}
    else:
        pair, rows = two_sides.pair(family), two_sides.sources((9, 3, 14))
        model, prompts, sources = two_sides.writer(family, end=0), [[] for _ in rows], rows
        inputs, n_read = two_sides.for_the_reference(rows), 1
        more = {"decoder_start_token_id": two_sides.FIRST[family]}
    endless = write_on(model, prompts, decoding, sources=sources)
    ends = sorted({piece for [text, *_] in endless for piece in text.pieces[4:]})[:N_ENDS]
    model = dataclasses.replace(model, end=ends[0], other_ends=tuple(ends[1:]))
    ours = write_on(model, prompts, decoding, sources=sources)
    theirs = pair.reference.generate(
        **inputs,
        eos_token_id=ends,
        pad_token_id=1,
        do_sample=False,
        num_beams=beam,
        max_new_tokens=12,
        min_new_tokens=2,
        **more,
    )[:, n_read:].tolist()
    found = [texts[0].pieces for texts in ours]
    assert found == [row[: min((row.index(end) for end in ends if end in row), default=len(row))] for row in theirs]
    assert {texts[0].ending for texts in ours} >= {"end"}


SAID = {
    "eos_token_id": [2, 9],
    "suppress_tokens": [11],
    "num_beams": 3,
    "length_penalty": 0.6,
    "early_stopping": True,
    "max_length": 8,
    "min_length": 4,
    "no_repeat_ngram_size": 2,
    "repetition_penalty": 1.5,
}


def test_a_folder_brings_defaults(tmp_path: Path) -> None:
    """After a round trip, too; options precede them, and a chosen way of choosing pieces replaces the model's."""
    tiny_model("bart").save(tmp_path / "bart")
    (tmp_path / "bart" / "generation_config.json").write_text(json.dumps(SAID), encoding="utf-8")
    polyseme.load(tmp_path / "bart", device="cpu").save(tmp_path / "again")
    model = polyseme.load(tmp_path / "again", device="cpu")
    language = language_model(model.bundle)
    assert (language.ends, 11 in language.forbidden) == ((2, 9), True)
    usual = {"max_new": 7, "min_new": 3, "no_repeat_ngram": 2, "repetition_penalty": 1.5}
    beam = {"beam": 3, "length_penalty": 0.6, "early_stopping": True}
    assert model.decoding(DecodingOptions()) == Decoding(**usual, **beam)
    assert model.decoding(DecodingOptions(beam=4)) == Decoding(**usual, **beam | {"beam": 4})
    assert model.decoding(DecodingOptions(greedy=True, repetition_penalty=1.0)) == Decoding(
        **usual | {"repetition_penalty": 1.0}, greedy=True
    )
    assert model.decoding(DecodingOptions(max_new=2)) == Decoding(**usual | {"max_new": 2, "min_new": 2}, **beam)
    assert model.generate(["The vase broke."]) == model.generate(["The vase broke."], **usual, **beam)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, {"temperature": 0.8, "top_p": 0.95}),
        ({"do_sample": False}, {"greedy": True}),
        ({"do_sample": True}, {"temperature": 1.0, "top_k": 50, "top_p": 1.0}),
        ({"do_sample": True, "top_k": 0, "temperature": 0.5, "top_p": 0.5}, {"temperature": 0.5, "top_p": 0.5}),
        ({"max_new_tokens": 7, "min_new_tokens": 3}, {"max_new": 7, "min_new": 3, "temperature": 0.8, "top_p": 0.95}),
        ({"max_length": 20, "length_penalty": 2.0}, {"temperature": 0.8, "top_p": 0.95}),
    ],
    ids=str,
)
def test_how_a_causal_model_writes_unless_options_say_it(said: dict[str, Any], expected: dict[str, Any]) -> None:
    defaults = decoding_defaults(said, has_source=False)
    assert Decoding.of(DecodingOptions(), defaults=defaults) == Decoding(**expected)
    assert Decoding.of(DecodingOptions(n=2, top_k=3), defaults=defaults).top_p is None


@pytest.mark.parametrize(
    "said",
    [
        {"typical_p": 0.9},
        {"bad_words_ids": [[3]]},
        {"max_length": 50},
        {"do_sample": True, "num_beams": 2},
        {"forced_eos_token_id": 2},
    ],
    ids=str,
)
def test_what_is_not_followed_is_reported(said: dict[str, Any]) -> None:
    with pytest.warns(PolysemeWarning, match=f"sets '{next(iter(said))}', which generate does not follow"):
        decoding_defaults(said, has_source=False)


@pytest.mark.parametrize(
    "said", [{"temperature": "hot"}, {"num_beams": 0}, {"top_p": 2}, {"early_stopping": "soon"}], ids=str
)
def test_settings_that_cannot_be_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=f"generation_config.json: '{next(iter(said))}' must be"):
        decoding_defaults(said, has_source=False)


@pytest.mark.parametrize("ends", [[3, "x"], 99, -1, True])
def test_ends_that_are_no_pieces_are_refused(ends: Any) -> None:
    with pytest.raises(ModelError, match="'eos_token_id' must hold ids of pieces"):
        ids_named({"eos_token_id": ends}, "eos_token_id", 99)

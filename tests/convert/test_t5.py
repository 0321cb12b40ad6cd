"""T5, version 1.0 and 1.1: two stacks against the reference, and the traps of its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from transformers import T5Config, T5EncoderModel, T5ForConditionalGeneration, T5Tokenizer

from convert.spoiling import change_config
from convert.two_stacks import PRECISIONS, assert_both_sides_equal
from polyseme.api import load
from polyseme.bundle import count_parameters, new_bundle
from polyseme.convert.conversion_table import read
from polyseme.convert.t5 import FAMILY, read_config, write_config
from polyseme.errors import ModelError
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.recipes.published_sizes import SIZES
from polyseme.text.documents import make_document
from polyseme.text.tokenizer_files import load_tokenizer
from references import Pair, in_its_own_precision, make_pair, make_reference
from tiny_models import TEXT, tiny_config, tiny_model, tiny_tokenizer, write_tokenizer
from tolerance import expect

TINY: Any = FAMILY.tiny()
FULL = "T5ForConditionalGeneration"
VERSIONS = {
    "v1.0": TINY.replace(gated=False, activation="relu"),
    "v1.1": TINY.replace(output_scale=1.0),
    "gated, scaled": TINY,
}
versions = pytest.mark.parametrize("config", VERSIONS.values(), ids=VERSIONS)


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@versions
def test_both_stacks_equal_the_reference(config: Any, dtype: torch.dtype) -> None:
    """Their output is tied when it is made, whatever the version."""
    assert_both_sides_equal(make_pair(FAMILY, FULL, config), dtype)


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_an_output_of_its_own_equals_the_reference(dtype: torch.dtype, tmp_path: Path) -> None:
    """From a saved folder that holds one: nothing else keeps the reference from tying it."""
    config = tiny_config("t5", output_scale=1.0)
    torch.manual_seed(3)
    bundle = new_bundle(FAMILY, config, ["causal"], tiny_tokenizer("t5"), tied=False).double().eval()
    save_bundle(bundle, tmp_path / "model")
    reference = T5ForConditionalGeneration.from_pretrained(
        tmp_path / "model", dtype=torch.float64, attn_implementation="eager"
    ).eval()
    in_its_own_precision(reference)
    assert not torch.equal(reference.lm_head.weight, reference.shared.weight)
    assert_both_sides_equal(Pair(reference, bundle, None), dtype, tied=False)  # type: ignore[arg-type]


def test_what_the_reference_saves_of_version_1_1_keeps_its_output(tmp_path: Path) -> None:
    """It writes that the output is tied, which it is not; the version stands in `scale_decoder_outputs`."""
    config = tiny_config("t5", output_scale=1.0)
    torch.manual_seed(4)
    bundle = new_bundle(FAMILY, config, ["causal"], tiny_tokenizer("t5"), tied=False)
    save_bundle(bundle, tmp_path / "ours")
    T5ForConditionalGeneration.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    write_tokenizer("t5", tmp_path / "theirs")
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert said["tie_word_embeddings"] is True
    assert said["scale_decoder_outputs"] is False
    found = load_bundle(tmp_path / "theirs")
    assert not found.tied
    assert found.config == config
    assert torch.equal(found.outputs["causal"].table, bundle.outputs["causal"].table)
    assert found.outputs["causal"].scale == 1.0


@pytest.mark.parametrize("tie", [True, False])
def test_older_files_say_the_version_by_the_tie(tie: bool) -> None:
    theirs = {name: value for name, value in write_config(TINY).items() if name != "scale_decoder_outputs"}
    scale = read_config({**theirs, "tie_word_embeddings": tie}, "config.json").output_scale
    assert scale == (TINY.width**-0.5 if tie else 1.0)


def test_a_tied_output_may_be_written_out_in_full(tmp_path: Path) -> None:
    """Files of version 1.0 hold the table under four names, or one."""
    reference = make_reference(FAMILY, FULL, tiny_config("t5")).float()
    torch.save(reference.state_dict(), tmp_path / "pytorch_model.bin")
    reference.config.save_pretrained(tmp_path)
    write_tokenizer("t5", tmp_path)
    bundle = load_bundle(tmp_path)
    assert bundle.tied
    assert bundle.outputs["causal"].table is bundle.encoder.piece_table()


def test_version_1_1_without_its_output_has_none(tmp_path: Path) -> None:
    tiny_model("t5").save(tmp_path / "model")
    change_config(tmp_path / "model", tie_word_embeddings=False)
    assert not load_bundle(tmp_path / "model").outputs


def test_a_bias_of_cross_attention_that_old_files_have_is_passed_over() -> None:
    weights = make_reference(FAMILY, FULL).state_dict()
    old = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    assert not read(FAMILY.table(TINY, True), {**weights, old: torch.zeros(8, 4)}, "it").left_out


# --- configs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "activation", "gated"),
    [
        ("relu", "relu", False),
        ("gelu", "gelu", False),
        ("gelu_new", "gelu_new", False),
        ("gated-gelu", "gelu_new", True),
        ("gated-gelu_new", "gelu_new", True),
        ("gated-silu", "silu", True),
        ("gated-relu", "relu", True),
    ],
)
def test_the_inner_part_by_its_name(said: str, activation: str, gated: bool) -> None:
    config = read_config({**write_config(TINY), "feed_forward_proj": said}, "config.json")
    assert (config.activation, config.gated) == (activation, gated)
    again = write_config(config)
    assert read_config(again, "config.json") == config
    assert again["feed_forward_proj"] == said or said == "gated-gelu_new"


@pytest.mark.parametrize("proj", ["relu", "gelu", "silu", "gated-gelu", "gated-silu", "gated-relu", "gated-gelu_new"])
def test_an_inner_part_that_is_said_twice(proj: str) -> None:
    """The reference writes what follows from `feed_forward_proj`, and follows that; contradictions are refused."""
    written = {**write_config(TINY), **T5Config(feed_forward_proj=proj).to_dict()}
    assert read_config(written, "config.json").gated is proj.startswith("gated-")
    for wrong in ({"dense_act_fn": "tanh"}, {"is_gated_act": not proj.startswith("gated-")}):
        with pytest.raises(ModelError, match=f"contradicts itself: 'feed_forward_proj' is '{proj}'"):
            read_config({**written, **wrong}, "config.json")


def test_an_unknown_inner_part_is_refused() -> None:
    with pytest.raises(ModelError, match=r"'gated-gleu'.*Did you mean 'gated-gelu'"):
        read_config({**write_config(TINY), "feed_forward_proj": "gated-gleu"}, "config.json")


@pytest.mark.parametrize("factor", [0.05, 3])
def test_first_weights_may_have_any_spread(factor: float) -> None:
    config = read_config({**write_config(TINY), "initializer_factor": factor}, "config.json")
    assert config.init_std == factor
    for refused in (-1, float("inf"), float("nan"), 10**400, "1", True):
        with pytest.raises(ModelError, match=r"'initializer_factor' must be a number from 0 on\. Got "):
            read_config({**write_config(TINY), "initializer_factor": refused}, "config.json")


def test_a_decoder_is_as_deep_as_its_encoder_where_nothing_is_said() -> None:
    for theirs in ({**write_config(TINY), "num_decoder_layers": None}, write_config(TINY)):
        theirs.pop("num_decoder_layers", None)
        config = read_config(theirs, "config.json")
        assert config.decoder_layers == config.n_layers == 3


@pytest.mark.parametrize(
    ("name", "count"),
    [("t5-small", 60_506_624), ("t5-base", 222_903_552), ("t5-large", 737_668_096), ("t5-v1.1-small", 60_511_616)],
)
def test_parameter_counts_are_the_published_ones(name: str, count: int) -> None:
    """Those of version 1.1 without their output, which is a table more."""
    assert count_parameters("t5", SIZES[name].config, []) == count


# --- the tokenizer ---------------------------------------------------------------------------------------------------


def test_a_small_unigram_model_gives_the_ids_of_the_reference(tmp_path: Path) -> None:
    """<pad>, </s>, <unk>, then the pieces in the file's order, then the sentinels, the last one first."""
    lines = [line for line in TEXT.replace(". ", ".\n").split("\n") if line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(tmp_path / "spiece"), vocab_size=90, num_threads=1,
        minloglevel=2, hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
    )  # fmt: skip
    theirs = T5Tokenizer.from_pretrained(tmp_path)
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spiece.model"))
    ours = load_tokenizer(tmp_path, frame="t5")
    size = model.vocab_size()
    assert dict(ours.specials) == {"pad": 0, "end": 1, "unknown": 2}
    assert ours.pieces(range(3, size)) == [model.id_to_piece(id) for id in range(3, size)]
    assert ours.pieces([size, size + 99]) == ["<extra_id_99>", "<extra_id_0>"]
    assert ours.n_pieces == len(theirs) == size + 100
    encoded = [ours.encode(make_document(line)).ids for line in lines]
    for line, ids in zip(lines, encoded, strict=True):
        assert ours.frame(ids).ids.tolist() == theirs(line)["input_ids"]
    assert ours.frame(encoded[0], encoded[1]).ids.tolist() == theirs(lines[0], lines[1])["input_ids"]
    assert ours.frame(np.zeros(0, dtype=np.int64)).ids.tolist() == [1]


# --- what users call -------------------------------------------------------------------------------------------------


def test_embed_and_pieces_read_the_encoder() -> None:
    model = tiny_model("t5")
    [found] = model.embed("Sandy broke the law.", layer="all")
    assert found.vectors.shape == (5, TINY.n_layers + 1, TINY.width)
    pieces = model.pieces("Sandy broke the law.")
    assert pieces.pieces[-1] == "</s>"
    assert pieces.states.shape[0] == TINY.n_layers + 1


def test_an_encoder_by_itself(tmp_path: Path) -> None:
    """`T5EncoderModel` leaves a folder without a decoder."""
    n_pieces = tiny_tokenizer("t5").n_pieces
    settings = T5Config(vocab_size=n_pieces, d_model=32, d_kv=6, d_ff=48, num_layers=2, num_heads=4)
    torch.manual_seed(3)
    reference = T5EncoderModel(settings).eval()
    for parameter in reference.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    reference.save_pretrained(tmp_path / "theirs")
    write_tokenizer("t5", tmp_path / "theirs")
    model = load(tmp_path / "theirs", device="cpu")
    assert model.bundle.decoder is None
    assert not {"score", "generate"} & set(model.show().can)
    found = model.pieces("Dawn broke.")
    ids = torch.from_numpy(found.ids)[None]

    def layers(reference: Any) -> dict[int, torch.Tensor]:
        return dict(enumerate(reference(ids, output_hidden_states=True).hidden_states))

    with torch.no_grad():
        expected = expect(reference, layers, torch.float32)
    assert len(found.states) == len(expected)
    for number, ours in enumerate(found.states):
        expected[number].check(torch.from_numpy(ours)[None])
    model.save(tmp_path / "ours")
    again = T5EncoderModel.from_pretrained(tmp_path / "ours")
    assert torch.equal(again.shared.weight, reference.shared.weight)
    assert (load(tmp_path / "ours", device="cpu").pieces("Dawn broke.").states == found.states).all()

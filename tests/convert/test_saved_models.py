"""What polyseme saves, polyseme and `transformers` load with equal outputs and ids."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

import polyseme
from conformance.cases import REFERENCED
from convert.comparing import PAIR, TEXT, assert_same_states, our_outputs, their_outputs
from convert.spoiling import change_config
from polyseme.api import Model
from polyseme.convert.families import FAMILIES
from polyseme.errors import OptionError, OutputError
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.language_model import language_model
from polyseme.text.documents import make_document
from references import make_reference
from text.nasty import NASTY
from tiny_models import tiny_config, tiny_model, write_tokenizer

SHARDS = [None, 20_000]
every_family_and_one_in_shards = pytest.mark.parametrize(
    ("family", "shard_size"), [*((family, None) for family in REFERENCED), ("bert", SHARDS[1])]
)


@cache
def model_of(family: str) -> Model:
    """A small model with every output of its family."""
    return tiny_model(family)


def load_theirs(kind: str, folder: Path) -> Any:
    """A model of the reference library, from whose class nothing may be missing."""
    loaded, info = getattr(transformers, kind).from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager"
    )
    assert not info["missing_keys"]
    assert not info["mismatched_keys"]
    return loaded.eval()


@every_family_and_one_in_shards
def test_transformers_loads_the_encoder(family: str, shard_size: int | None, tmp_path: Path) -> None:
    model_of(family).save(tmp_path / "saved", shard_size=shard_size)
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) == 1 or shard_size is not None
    loaded = transformers.AutoModel.from_pretrained(tmp_path / "saved", attn_implementation="eager").eval()
    assert_same_states(model_of(family), loaded)
    assert_same_states(polyseme.load(tmp_path / "saved"), loaded)
    if "pooled" in FAMILIES[family].outputs:
        their_outputs(loaded, model_of(family))["pooled"].check(our_outputs(model_of(family))["pooled"])


@pytest.mark.parametrize("kind", ["AutoModelForMaskedLM or CausalLM", "AutoModelForPreTraining"])
@every_family_and_one_in_shards
def test_transformers_loads_the_outputs(family: str, kind: str, shard_size: int | None, tmp_path: Path) -> None:
    model = model_of(family)
    model.save(tmp_path / "saved", shard_size=shard_size)
    wanted = set(FAMILIES[family].outputs) - {"pooled"}
    if kind != "AutoModelForPreTraining" or family == "modernbert":  # which has no class for pretraining alone
        wanted &= {"masked", "causal", "permuted"}
        kind = "AutoModelForMaskedLM" if "masked" in wanted else "AutoModelForCausalLM"
        kind = kind if model.bundle.decoder is None else "AutoModelForSeq2SeqLM"
    theirs = their_outputs(load_theirs(kind, tmp_path / "saved"), model)
    if family == "electra":  # its classes have one output each, and both call it logits
        wanted = {"masked"} if kind == "AutoModelForMaskedLM" else {"replaced"}
    ours = our_outputs(model)
    for name in wanted:
        theirs[name].check(ours[name])


@pytest.mark.parametrize("family", REFERENCED)
def test_transformers_gives_the_same_ids(family: str, tmp_path: Path) -> None:
    model = model_of(family)
    model.save(tmp_path / "saved")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    texts = [TEXT, *PAIR, "", "naïve 日本, didn't $3.50!"]
    texts += [text for text in NASTY if text not in theirs.get_added_vocab()]  # ours are text, theirs are not
    ours = model.bundle.tokenizer
    assert ours is not None
    for text in texts:
        pieces = ours.encode(make_document(text))
        if not pieces.n_unknown:
            assert theirs(text)["input_ids"] == ours.frame(pieces.ids).ids.tolist(), text
    framed = ours.frame(*(ours.encode(make_document(text)).ids for text in PAIR))
    found = theirs(*PAIR)
    assert found["input_ids"] == framed.ids.tolist()
    if "token_type_ids" in found:
        assert found["token_type_ids"] == framed.segments.tolist()
    assert theirs.mask_token_id == ours.specials.get("mask")
    assert theirs.pad_token_id == ours.specials.get("pad")
    assert theirs.eos_token_id in (ours.specials.get("end"), None)


@pytest.mark.parametrize("shard_size", SHARDS, ids=["whole", "sharded"])
@pytest.mark.parametrize("family", REFERENCED)
def test_saving_what_was_loaded_writes_the_same_bytes(family: str, shard_size: int | None, tmp_path: Path) -> None:
    model_of(family).save(tmp_path / "once", shard_size=shard_size)
    polyseme.load(tmp_path / "once").save(tmp_path / "twice", shard_size=shard_size)
    once, twice = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("once", "twice"))
    assert once == twice


@pytest.mark.parametrize("store", ["bf16", "fp16"])
@pytest.mark.parametrize("family", ["modernbert", "gpt2", "bert", "t5"])
def test_half_precision_is_for_the_disk(family: str, store: Any, tmp_path: Path) -> None:
    """What is stored is the rounded weight, which both libraries read; polyseme computes with it in fp32."""
    model = model_of(family)
    model.save(tmp_path / "saved", store=store, shard_size=20_000)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[store]
    shards = sorted((tmp_path / "saved").glob("*.safetensors"))
    assert len(shards) > 1
    assert {tensor.dtype for shard in shards for tensor in load_file(shard).values()} == {dtype}
    loaded = polyseme.load(tmp_path / "saved", device="cpu")
    ours = dict(model.bundle.named_parameters())
    for name, parameter in loaded.bundle.named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, ours[name].to(dtype).float()), name
    assert (
        next(polyseme.load(tmp_path / "saved", device="cpu", dtype="fp64").bundle.parameters()).dtype == torch.float64
    )
    theirs = transformers.AutoModel.from_pretrained(
        tmp_path / "saved", attn_implementation="eager", dtype=torch.float32
    ).eval()
    assert_same_states(loaded, theirs)
    loaded.save(tmp_path / "wide")
    assert json.loads((tmp_path / "wide" / "config.json").read_text())["dtype"] == "float32"
    loaded.save(tmp_path / "again", store=store, shard_size=20_000)
    once, again = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("saved", "again")
    )
    assert once == again


def test_a_precision_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"There is no store 'bf1'. Did you mean 'bf16'"):
        model_of("bert").save(tmp_path / "saved", store="bf1")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="elmo hold weights in fp32 only"):
        tiny_model("elmo").save(tmp_path / "saved", store="bf16")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("family", REFERENCED)
def test_converting_a_folder_of_transformers_changes_no_weight(family: str, tmp_path: Path) -> None:
    """Tensor by tensor, bit by bit, by their names."""
    chosen = FAMILIES[family]
    reference = make_reference(chosen, chosen.architectures[0][0], tiny_config(family)).float()
    reference.save_pretrained(tmp_path / "theirs")
    write_tokenizer(family, tmp_path / "theirs")
    polyseme.convert_model(model=tmp_path / "theirs", output=tmp_path / "ours")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    assert set(after) <= set(before)
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name])
    left_out = {name for name in set(before) - set(after) if not name.endswith(("decoder.bias", "decoder.weight"))}
    assert not left_out


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_transformers_writes_what_we_write(family: str, tmp_path: Path) -> None:
    """Greedily, with nothing said but how long: what it begins and ends with is in the folder."""
    model = model_of(family)
    model.save(tmp_path / "saved")
    theirs = load_theirs("AutoModelForSeq2SeqLM", tmp_path / "saved")
    for loaded in (model, polyseme.load(tmp_path / "saved", device="cpu")):
        tokenizer = loaded.bundle.tokenizer
        assert tokenizer is not None
        for text in (TEXT, *PAIR):
            source = tokenizer.frame(tokenizer.encode(make_document(text)).ids).ids.tolist()
            language = language_model(loaded.bundle)
            [[ours]] = write_on(language, [[]], Decoding(max_new=6), sources=[source])
            [written] = theirs.generate(torch.tensor([source]), max_new_tokens=6).tolist()
            assert written[0] == loaded.bundle.first_written
            end = tokenizer.specials["end"]
            assert list(ours.pieces) == (written[1:-1] if written[-1] == end else written[1:])
            assert ours.pieces


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_what_a_decoder_begins_with_is_kept(file: str, tmp_path: Path) -> None:
    model_of("t5").save(tmp_path / "saved")
    path = tmp_path / "saved" / file
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps({**content, "decoder_start_token_id": 7}), encoding="utf-8")
    loaded = polyseme.load(tmp_path / "saved", device="cpu")
    assert loaded.bundle.first_written == 7
    loaded.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text(encoding="utf-8"))["decoder_start_token_id"] == 7


@pytest.mark.parametrize("shard_size", SHARDS, ids=["whole", "sharded"])
def test_all_files_are_for_the_same_readers(shard_size: int | None, tmp_path: Path) -> None:
    model_of("bert").save(tmp_path / "saved", shard_size=shard_size)
    assert len({path.stat().st_mode for path in (tmp_path / "saved").iterdir()}) == 1


def test_what_a_config_says_besides_is_kept(tmp_path: Path) -> None:
    model_of("bert").save(tmp_path / "saved")
    note = {"by": "Zoë", "languages": ["de", "日本"]}
    change_config(tmp_path / "saved", a_note=note, classifier_dropout=0.25, pad_token_id=3)
    polyseme.load(tmp_path / "saved").save(tmp_path / "again")
    kept = json.loads((tmp_path / "again" / "config.json").read_text(encoding="utf-8"))
    assert kept["a_note"] == note
    assert kept["classifier_dropout"] == 0.25
    assert kept["pad_token_id"] == 3


@pytest.mark.parametrize("old_name", ["torch_dtype", "dtype"])
def test_the_precision_written_down_is_that_of_the_weights(old_name: str, tmp_path: Path) -> None:
    """Weights stored in half are held in fp32, and saved so."""
    reference = make_reference(FAMILIES["bert"], "BertModel", tiny_config("bert")).half()
    reference.save_pretrained(tmp_path / "half")
    write_tokenizer("bert", tmp_path / "half")
    change_config(tmp_path / "half", "dtype")
    change_config(tmp_path / "half", **{old_name: "float16"})
    polyseme.load(tmp_path / "half").save(tmp_path / "full")
    assert transformers.AutoModel.from_pretrained(tmp_path / "full").dtype == torch.float32
    written = json.loads((tmp_path / "full" / "config.json").read_text())
    assert {name: written[name] for name in written if name.endswith("dtype")} == {"dtype": "float32"}
    polyseme.load(tmp_path / "half", dtype="fp16").save(tmp_path / "again")
    assert transformers.AutoModel.from_pretrained(tmp_path / "again").dtype == torch.float16


def test_a_table_of_its_own_is_saved_and_loaded_as_such(tmp_path: Path) -> None:
    reference = make_reference(
        FAMILIES["bert"], "BertForMaskedLM", tiny_config("bert"), tie_word_embeddings=False
    ).float()
    reference.save_pretrained(tmp_path / "theirs")
    write_tokenizer("bert", tmp_path / "theirs")
    model = polyseme.load(tmp_path / "theirs")
    model.save(tmp_path / "ours")
    loaded = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours", attn_implementation="eager").eval()
    theirs = their_outputs(loaded, model)
    theirs["masked"].check(our_outputs(polyseme.load(tmp_path / "ours"))["masked"])


def test_nothing_is_replaced_unless_asked_for(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "config.json").write_text("precious")
    with pytest.raises(OutputError, match="already there"):
        model_of("bert").save(tmp_path / "saved")
    assert (tmp_path / "saved" / "config.json").read_text() == "precious"
    model_of("bert").save(tmp_path / "saved", force=True)
    assert polyseme.load(tmp_path / "saved").show().family == "bert"


def test_a_model_can_be_saved_over_the_folder_it_came_from(tmp_path: Path) -> None:
    """Its weights are still being read from the files that go."""
    model_of("bert").save(tmp_path / "saved")
    model = polyseme.load(tmp_path / "saved")
    model.save(tmp_path / "saved", force=True)
    before, after = model.pieces(TEXT).states, polyseme.load(tmp_path / "saved").pieces(TEXT).states
    assert (before == after).all()

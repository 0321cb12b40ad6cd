"""fastai's files of an AWD-LSTM: read as they are, written as they were, and refused where they would run something."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import polyseme
from every_moment import every_moment
from golden_awd_lstm import GOLDEN, WITHIN, arrays, expected
from polyseme.convert.awd_lstm import FAMILY
from polyseme.errors import ModelError, OptionError, OutputError
from polyseme.files.atomic import check_output
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.text.documents import make_document
from polyseme.types import Batch
from tiny_models import tiny_model

WORDS = ["xxunk", "xxpad", "xxbos", "xxmaj", *(f"w{number}" for number in range(4, 48)), "xxfake", "xxfake"]


def write_file(folder: Path, weights: Any, name: str = "lstm_wt103.pth") -> Path:
    torch.save(weights, folder / name)
    return folder / name


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file as fastai writes it, with its words beside it."""
    (tmp_path / "itos_wt103.pkl").write_bytes(pickle.dumps(WORDS))
    return write_file(tmp_path, arrays("forward"))


def logits(bundle: Any, pieces: Tensor) -> Tensor:
    with torch.no_grad():
        return bundle.outputs["causal"].logits(bundle.encoder(Batch(pieces), layers=[-1])[-1])  # type: ignore[no-any-return]


def test_a_file_of_fastai_s_is_a_model(file: Path) -> None:
    bundle = load_bundle(file)
    golden = expected("forward")
    torch.testing.assert_close(
        logits(bundle, golden["batch0.input_ids"]), golden["batch0.logits"], atol=WITHIN, rtol=0.0
    )
    assert bundle.tied
    assert bundle.text_tokenizer.specials == {"start": 2, "pad": 1, "unknown": 0}
    model = polyseme.load(file, device="cpu")
    assert model.bundle.text_tokenizer.encode(make_document("W5 w7, xxmaj")).ids.tolist() == [5, 7, 0, 3]
    [scored] = model.score(["W5 w7"])
    assert scored.totals.log_prob < 0


def test_an_optimizer_beside_the_weights_is_left_out(file: Path) -> None:
    weights = {"model": arrays("forward"), "opt": {"state": [{"mom": torch.ones(3)}]}}
    whole = write_file(file.parent, weights, "whole_wt103.pth")
    for one, other in zip(load_bundle(file).parameters(), load_bundle(whole).parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_encoder_of_a_classifier_is_read_and_its_layers_are_left_out(file: Path) -> None:
    write_file(file.parent, arrays("classifier"))
    with pytest.warns(match=r"1\.layers\.0\.0\.bias.*left out"):
        bundle = load_bundle(file)
    assert not bundle.outputs
    assert torch.equal(bundle.encoder.piece_table(), arrays("classifier")["0.module.encoder.weight"])  # type: ignore[arg-type]


def test_words_may_be_json(file: Path) -> None:
    (file.parent / "itos_wt103.pkl").unlink()
    (file.parent / "vocab.json").write_text(json.dumps(WORDS), encoding="utf-8")
    assert load_bundle(file).text_tokenizer.pieces([0, 7]) == ["xxunk", "w7"]


def test_what_is_written_for_fastai_is_what_was_read(file: Path, tmp_path: Path) -> None:
    """All names and numbers, but that the two biases are one: their sum, and zeros. The words come back, too."""
    output = tmp_path / "again" / "mine.pth"
    output.parent.mkdir()
    polyseme.convert_model(model=file, to="fastai", output=output)
    written = torch.load(output, weights_only=True)
    theirs = arrays("forward")
    assert written.keys() == theirs.keys()
    for name, each in theirs.items():
        if "bias_ih" in name:
            torch.testing.assert_close(written[name], each + theirs[name.replace("_ih_", "_hh_")])
        elif "bias_hh" in name:
            assert not written[name].any()
        else:
            assert torch.equal(written[name], each)
    assert pickle.loads((output.parent / "mine_itos.pkl").read_bytes())[:48] == WORDS[:48]
    golden = expected("forward")["batch0.input_ids"]
    assert torch.equal(logits(load_bundle(output), golden), logits(load_bundle(file), golden))
    with pytest.raises(OutputError, match="already there"):
        polyseme.convert_model(model=file, to="fastai", output=output)


def test_a_kill_between_the_weights_and_their_words_is_made_good(file: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    output = place / "mine.pth"

    def convert() -> None:
        polyseme.convert_model(model=file, to="fastai", output=output)

    names = set()
    for _ in every_moment(place, convert):
        names.add(tuple(sorted(each.name for each in place.iterdir() if each.is_file())))
        if not output.exists():
            convert()
        check_output(output, force=True)  # as the next command does
        assert sorted(each.name for each in place.iterdir()) == ["mine.pth", "mine_itos.pkl"]
    assert names == {(), ("mine_itos.pkl",), ("mine.pth", "mine_itos.pkl")}


def test_words_that_are_not_of_this_model_are_not_replaced(file: Path, tmp_path: Path) -> None:
    output, words = tmp_path / "out" / "mine.pth", tmp_path / "out" / "mine_itos.pkl"
    output.parent.mkdir()
    words.write_bytes(b"of another model")
    with pytest.raises(OutputError, match=r"mine_itos\.pkl is already there"):
        polyseme.convert_model(model=file, to="fastai", output=output)
    assert list(output.parent.iterdir()) == [words]
    polyseme.convert_model(model=file, to="fastai", output=output, force=True)
    assert pickle.loads(words.read_bytes())[:48] == WORDS[:48]


def test_a_backward_model_keeps_its_direction_in_a_folder(tmp_path: Path) -> None:
    model = tiny_model("awd-lstm", reads="backwards")
    model.save(tmp_path / "back")
    assert json.loads((tmp_path / "back" / "config.json").read_text(encoding="utf-8"))["reads"] == "backwards"
    again = load_bundle(tmp_path / "back")
    assert again.config == model.bundle.config
    pieces = torch.randint(20, (2, 5))
    assert torch.equal(logits(again, pieces), logits(model.bundle, pieces))


def test_an_output_of_its_own_is_kept(file: Path, tmp_path: Path) -> None:
    weights = dict(arrays("forward"))
    weights["1.decoder.weight"] = weights["1.decoder.weight"] + 1
    bundle = load_bundle(write_file(file.parent, weights))
    assert not bundle.tied
    save_bundle(bundle, tmp_path / "folder")
    assert torch.equal(load_bundle(tmp_path / "folder").outputs["causal"].table, weights["1.decoder.weight"])


# --- refused ----------------------------------------------------------------------------------------------------------


class Running:
    """What a pickle of an attacker's would hold."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


def test_a_pickle_that_would_run_something_is_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "itos_wt103.pkl").write_bytes(pickle.dumps([*WORDS[:-1], Running()]))
    with pytest.raises(ModelError, match=r"itos_wt103\.pkl is not opened: it would run posix\.mkdir.*as JSON"):
        load_bundle(file)
    (tmp_path / "itos_wt103.pkl").write_bytes(pickle.dumps(WORDS))
    write_file(tmp_path, {**arrays("forward"), "more": Running()})
    with pytest.raises(ModelError, match=r"asks for posix\.mkdir, and such a file can run anything when it is read"):
        load_bundle(file)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (None, "one file beside them, and there is none.*lstm_wt103_itos.json"),
        (WORDS[:-3], "47 pieces and the weights 50"),
        ({"a": 1}, "must hold a list of words"),
        (["w"] * 50, "no unknown word"),
    ],
)
def test_words_that_do_not_fit_are_refused(file: Path, words: Any, message: str) -> None:
    (file.parent / "itos_wt103.pkl").unlink()
    if words is not None:
        (file.parent / "itos.json").write_text(json.dumps(words), encoding="utf-8")
    with pytest.raises(ModelError, match=message):
        load_bundle(file)


def test_a_qrnn_and_other_models_are_refused(file: Path, tmp_path: Path) -> None:
    write_file(tmp_path, {"0.encoder.weight": torch.zeros(50, 8), "0.rnns.0.layers.0.linear.weight": torch.zeros(3, 3)})
    with pytest.raises(ModelError, match=r"no AWD-LSTM of fastai's.*QRNNs"):
        load_bundle(file)
    tiny_model("lstm").save(tmp_path / "lstm")
    with pytest.raises(ModelError, match="fastai has no class for models of the family lstm"):
        polyseme.convert_model(model=tmp_path / "lstm", to="fastai", output=tmp_path / "x.pth")
    with pytest.raises(OptionError, match=r"NAME\.pth"):
        polyseme.convert_model(model=tmp_path / "lstm", to="fastai", output=tmp_path / "x.bin")


def test_settings_that_fastai_has_no_weights_for_are_refused() -> None:
    with pytest.raises(ModelError, match="Leave out 'cells'"):
        FAMILY.table(FAMILY.tiny().replace(cells="gru"), True)


def test_the_golden_settings_are_read_as_fastai_means_them() -> None:
    config = FAMILY.read_config(json.loads((GOLDEN / "config.json").read_text(encoding="utf-8")), "config.json")
    assert (config.widths, config.locked_dropout) == ((8, 12, 12, 8), True)
    assert (config.word_dropout_rate, config.embedding_dropout_rate, config.weight_dropout_rate) == (0.02, 0.25, 0.2)
    assert (config.dropout_rate, config.output_dropout_rate) == (0.15, 0.1)

"""Several models side by side as one input: their vectors, what is learned, saved and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import polyseme
from polyseme.errors import ModelError, OptionError
from polyseme.tasks.encoder_rows import document_of
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import FinetuneResult, finetune_task
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.stacked_inputs import CHARACTERS, input_names, load_inputs
from polyseme.transfer.task_folder import load_task_model, save_task_model
from tiny_models import tiny_model
from transfer.small_tasks import BAD, GOOD, OTHERS, small_task


@pytest.fixture
def models(tmp_path: Path) -> dict[str, str]:
    """A file of static vectors in GloVe's format, and two folders."""
    words = (*GOOD, *BAD, *OTHERS)
    vectors = torch.randn(len(words), 5, generator=torch.Generator().manual_seed(2))
    lines = [f"{word} {' '.join(f'{x:.4f}' for x in row)}" for word, row in zip(words, vectors.tolist(), strict=True)]
    (tmp_path / "glove.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for family in ("elmo", "nnlm"):
        tiny_model(family).save(tmp_path / family)
    return {"glove": str(tmp_path / "glove.txt"), "elmo": str(tmp_path / "elmo"), "nnlm": str(tmp_path / "nnlm")}


def fitted(kind: str, inputs: str, family: str | None = None, **settings: Any) -> FinetuneResult:
    given = {"epochs": 1, "learning_rate": 1e-2, "batch_size": 16, "inner_width": 8, "inputs": inputs, **settings}
    bundle = None if family is None else tiny_model(family).bundle
    return finetune_task(small_task(kind, n_train=32, n_dev=12), bundle, FinetuneSettings(**given))


CASES = {
    "static alone": ("tag", "{glove}", None, {"head": "bilstm-crf"}),
    "all kinds": ("tag", "{glove},{elmo}@mix,char-cnn,{nnlm}@0", None, {}),
    "beside a frozen model": ("classify", "{glove},{nnlm}", "bert", {"frozen": True}),
    "beside a tuned model": ("tag", "{elmo}@1,char-cnn", "bert", {}),
    "two texts": ("pair", "{glove}", "bert", {"frozen": True}),
    "question and passage": ("span", "{nnlm}@-1", None, {}),
}


@pytest.mark.filterwarnings("ignore:The model's tokenizer has no pieces")
@pytest.mark.parametrize("case", CASES)
def test_a_word_s_vector_is_the_concatenation_of_its_inputs(case: str, models: dict[str, str], tmp_path: Path) -> None:
    """Of the model's own, then of each input as `embed` gives them; saved and loaded it says the same."""
    kind, written, family, settings = CASES[case]
    names = written.format(**models)
    done = fitted(kind, names, family, **settings)
    model = done.model.eval()
    items = small_task(kind).splits["dev"][:6]
    prepared = prepare(model, items, learning=False)
    with torch.no_grad():
        features = model.features(prepared.source.batch(range(len(prepared.source.units))))
    own = 0 if model.bundle is None else model.choice.width(model.bundle.config)
    for row, unit in enumerate(prepared.source.units):
        words = list(map(str, document_of(unit.item).words))
        at = own
        for member in model.frozen_inputs:
            layer = "all" if member.layer == "mix" else member.layer
            document = words if unit.item.words else unit.item.text
            vectors = torch.from_numpy(polyseme.Model(member.bundle).embed([document], layer=layer)[0].vectors)  # type: ignore[list-item]
            if member.mix is not None:
                vectors = member.mix.of_stacked(vectors).detach()
            found = features.words[row, : len(words), at : at + member.width]
            torch.testing.assert_close(found, vectors, rtol=0, atol=1e-6 if member.bundle.config.depth else 0)
            assert not features.words[row, len(words) :, at : at + member.width].any()
            at += member.width
        assert at + (0 if model.inputs is None else model.inputs.width) == features.words.shape[-1]
    assert any("mix" in name for name in model.learned() if name.startswith("stacked")) == (
        "@mix" in names or case == "beside a frozen model"
    )

    save_task_model(model, tmp_path / "model")
    before, after = (
        judge(each, prepare(each, items, learning=False)) for each in (model, load_task_model(tmp_path / "model"))
    )
    for one, other in zip(before, after, strict=True):
        assert one.answer == other.answer
        np.testing.assert_array_equal(np.array(one.probabilities), np.array(other.probabilities))


def test_a_loaded_model_goes_by_its_folder(models: dict[str, str]) -> None:
    loaded = polyseme.load(models["elmo"], device="cpu")
    assert input_names([loaded, "char-cnn"]) == (loaded.path, "char-cnn")
    with pytest.raises(OptionError, match="comes from no folder"):
        input_names([tiny_model("bert")])
    with pytest.raises(OptionError, match="Got int instead"):
        input_names([3])


def test_only_the_mixes_of_the_inputs_learn(models: dict[str, str]) -> None:
    names = "{glove},{elmo}@mix".format(**models)
    loaded = load_inputs(input_names(names))
    before = [{name: each.clone() for name, each in model.bundle.state_dict().items()} for model in loaded]
    done = fitted("tag", names)
    assert done.report.settings["inputs"] == tuple(names.split(","))
    for member, earlier in zip(done.model.frozen_inputs, before, strict=True):
        for name, tensor in member.bundle.state_dict().items():
            assert torch.equal(tensor, earlier[name])
    mix = done.model.frozen_inputs[1].mix
    assert mix is not None
    assert mix.weights.detach().any()


def test_the_command_writes_a_folder_that_predicts_by_itself(models: dict[str, str], tmp_path: Path) -> None:
    """Without the files that it was trained from."""
    names = "{glove},char-cnn".format(**models)
    report = polyseme.finetune(
        small_task("tag", n_train=32, n_dev=12), model="none", inputs=names, output=tmp_path / "tagger",
        head="bilstm-crf", epochs=1, inner_width=8, device="cpu",
    )  # fmt: skip
    assert report.mode == "frozen"
    Path(models["glove"]).unlink()
    predicted = polyseme.predict(["the crane", "beer"], model=tmp_path / "tagger", device="cpu").predictions
    assert [list(each.words) for each in predicted] == [["the", "crane"], ["beer"]]
    assert sorted(each.name for each in (tmp_path / "tagger" / "inputs").iterdir()) == ["0"]


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ("glove", ModelError, r"The input 'glove' is neither char-cnn nor a model\. There is no model at 'glove'"),
        ("char-cnn,", OptionError, r"glove\.txt,models/elmo@mix,char-cnn\. Got '' among them"),
        ("{elmo}@", OptionError, r"Got '.*elmo@' among them"),
        ("char-cnn,char-cnn", OptionError, r"'char-cnn' is listed twice"),
        ("{elmo}@all", OptionError, r"The input .*elmo: a head reads one vector per word.*elmo@mix"),
        ("{elmo}@7", OptionError, r"The input .*elmo: Layer '7' is not there"),
        ("{glove}@mean:0:1", OptionError, r"The input .*glove\.txt: Layer 'mean:0:1' is not there"),
    ],
)
def test_what_is_no_input_is_refused(names: str, error: type[Exception], message: str, models: dict[str, str]) -> None:
    with pytest.raises(error, match=message):
        load_inputs(FinetuneSettings(inputs=names.format(**models)).inputs)


def test_layers_of_two_widths_are_not_mixed(tmp_path: Path) -> None:
    """By default the top layer is read; a mix or a mean is refused."""
    path = str(tmp_path / "direct")
    tiny_model("nnlm", direct=True).save(path)
    [model] = load_inputs([path])
    assert model.layer == "-1"
    for layer in ("mix", "mean:0:1"):
        with pytest.raises(OptionError, match=r"The input .*direct: Layer '.*' needs layers of one width.*concat:a:b"):
            load_inputs([f"{path}@{layer}"])
    assert load_inputs([f"{path}@concat:0:1", CHARACTERS])[0].choice.width(model.bundle.config) == 16 + 80

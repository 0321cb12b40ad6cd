"""ONNX files: onnxruntime computes from them what polyseme computes, on ragged rows of real words."""

from __future__ import annotations

import ast
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import polyseme
from forked import run_forked
from polyseme.errors import MissingPackageError, ModelError, OptionError, OutputError
from polyseme.exporting import onnx_file
from polyseme.exporting.onnx_graphs import WordVectors
from polyseme.exporting.onnx_task_model import OnnxTaskModel
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import finetune_task
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.task_folder import load_task_model, save_task_model
from tiny_models import tiny_model
from transfer.small_tasks import small_task

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
TEXTS = [["Dawn", "broke", "."], ["unbelievable", ",", "naïve"], ["the", "crane", "broke", "a", "beam"]]
EXPORTED = (
    *("bert", "roberta", "xlm-roberta", "electra", "albert", "distilbert", "modernbert", "gpt2", "openai-gpt"),
    *("transformer", "xlnet", "bart", "t5", "awd-lstm"),
)
SCRIPT_IMPORTS = {"json", "numpy", "onnxruntime", "tokenizers"}


def script() -> str:
    """The code of the page, which opens files without polyseme."""
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```$", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    [code] = [block for block in blocks if "onnxruntime.InferenceSession" in block]
    return code


def by_script(file: Path, texts: list[list[str]]) -> Any:
    """What the page's own script computes of texts, all in one batch."""
    code = (
        script()
        .replace('"model.onnx"', repr(str(file)))
        .replace('"model.tokenizer.json"', repr(str(file.with_suffix(".tokenizer.json"))))
    )
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(code))
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in getattr(node, "names", ())]
        )
    }
    assert imported <= SCRIPT_IMPORTS | {"Tokenizer"}
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names["run"](texts)


def exported(family: str, folder: Path, **options: Any) -> Path:
    tiny_model(family).save(folder / family)
    polyseme.convert_model(model=folder / family, to="onnx", output=folder / f"{family}.onnx", **options)
    return folder / f"{family}.onnx"


def assert_equal(found: Any, expected: Any, bound: float = 1e-5) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= bound * np.abs(expected).max()


def test_onnxruntime_is_loaded_without_its_telemetry(tmp_path: Path) -> None:
    """It would send to a network, and leave a file with a session's number in the folder for temporary files."""
    script = "from polyseme.exporting.onnx_file import need_packages; need_packages()"
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    done = run_forked(script, env={**environment, "TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("bert", {"layer": "mean:0:-1"}),
        pytest.param("gpt2", {"pool": "last"}, marks=pytest.mark.slow),
        *(pytest.param(family, {}, marks=pytest.mark.slow) for family in EXPORTED),
        pytest.param("bert", {"layer": "all", "pool": "first"}, marks=pytest.mark.slow),
        pytest.param("roberta", {"layer": 1, "pool": "max"}, marks=pytest.mark.slow),
        pytest.param("modernbert", {"layer": "concat:1:2"}, marks=pytest.mark.slow),
    ],
)
def test_it_computes_what_embed_does(family: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Through the page's script: another tokenizer library, another runtime, padded rows."""
    file = exported(family, tmp_path, **options)
    texts = [["Dawn", "broke", "."], ["A", "crane"]] if family == "awd-lstm" else TEXTS
    expected = tiny_model(family).embed(texts, **options)
    if not file.with_suffix(".tokenizer.json").is_file():
        assert family == "awd-lstm"
        return
    vectors = by_script(file, texts)
    for text, row, ours in zip(texts, vectors, expected, strict=True):
        assert_equal(row[: len(text)], ours.vectors)
        assert not row[len(text) :].any()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["minilm", "english-encoder", "english-decoder"])
def test_real_models_on_real_text(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Path(__file__).parents[2].joinpath("README.md").read_text("utf-8").splitlines()
    texts = [words for line in lines if 3 <= len(words := re.findall(r"[A-Za-z]+|[.,:;]", line)) <= 60][:100]
    polyseme.convert_model(model=model, to="onnx", output=tmp_path / "m.onnx")
    vectors = by_script(tmp_path / "m.onnx", texts)
    for text, row, ours in zip(texts, vectors, polyseme.load(model, device="cpu").embed(texts), strict=True):
        assert_equal(row[: len(text)], ours.vectors)


@pytest.mark.parametrize(
    ("kind", "family", "settings"),
    [
        pytest.param("tag", "bert", {}, marks=pytest.mark.slow),
        pytest.param("classify", "bert", {"readout": "pooled"}, marks=pytest.mark.slow),
        pytest.param("classify", "xlnet", {}, marks=pytest.mark.slow),
        pytest.param("classify", "gpt2", {"readout": "mean", "head": "mlp"}, marks=pytest.mark.slow),
        pytest.param("pair", "bert", {"layer": "mix"}, marks=pytest.mark.slow),
        pytest.param("tag", "roberta", {"frozen": True, "head": "linear"}, marks=pytest.mark.slow),
        pytest.param("classify", "modernbert", {"frozen": True}, marks=pytest.mark.slow),
    ],
)
def test_task_models(kind: str, family: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """The same answers and probabilities, and the labels in the file."""
    task = small_task(kind, n_train=48, n_dev=16)
    done = finetune_task(task, tiny_model(family).bundle, FinetuneSettings(epochs=1, **settings))
    save_task_model(done.model, tmp_path / "model")
    polyseme.convert_model(model=tmp_path / "model", to="onnx", output=tmp_path / "m.onnx")
    model = load_task_model(tmp_path / "model")
    there = OnnxTaskModel(tmp_path / "m.onnx", load_task_model(tmp_path / "model"))
    items = task.splits["dev"]
    ours, theirs = (judge(each, prepare(each, items, learning=False)) for each in (model, there))
    for one, other in zip(ours, theirs, strict=True):
        assert one.answer == other.answer
        np.testing.assert_allclose(np.array(one.probabilities), np.array(other.probabilities), atol=1e-5)
    about = there.session.session.get_modelmeta().custom_metadata_map
    assert json.loads(about["labels"]) == list(task.labels)


def test_a_wrong_graph_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes padding for pieces is seen by the check; nothing is written."""
    forward = WordVectors.forward

    def without_mask(self: WordVectors, *inputs: torch.Tensor) -> torch.Tensor:
        named = dict(zip(self.inputs, inputs, strict=True))
        named["attention_mask"] = torch.ones_like(named["attention_mask"])
        return forward(self, *named.values())

    monkeypatch.setattr(WordVectors, "forward", without_mask)
    with pytest.raises(ModelError, match="computes something else"):
        exported("bert", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["bert"]


def test_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bert = tmp_path / "bert"
    tiny_model("bert").save(bert)
    (tmp_path / "there.onnx").touch()
    (tmp_path / "other.tokenizer.json").touch()
    for output, options, error, message in (
        ("a.onnx", {"layer": 9}, OptionError, "Layer '9' is not there"),
        ("a.onnx", {"layer": "tpo"}, OptionError, "There is no layer 'tpo'"),
        ("a.onnx", {"pool": "ends"}, OptionError, "has no form in ONNX"),
        ("a.onnx", {"dtype": "int8"}, OptionError, "'dtype' is for"),
        ("a.pb", {}, OptionError, "is called NAME.onnx"),
        ("there.onnx", {}, OutputError, "there.onnx"),
        ("other.onnx", {}, OutputError, "other.tokenizer.json"),
    ):
        with pytest.raises(error, match=message):
            polyseme.convert_model(model=bert, to="onnx", output=tmp_path / output, **options)
    for family in ("elmo", "flair", "static", "nnlm"):
        tiny_model(family).save(tmp_path / family)
        with pytest.raises(ModelError, match=f"family {family} have no form in ONNX"):
            polyseme.convert_model(model=tmp_path / family, to="onnx", output=tmp_path / "a.onnx")
    done = finetune_task(small_task("span", n_train=16, n_dev=8), tiny_model("bert").bundle, FinetuneSettings(epochs=1))
    save_task_model(done.model, tmp_path / "span")
    with pytest.raises(ModelError, match="its task is 'span'"):
        polyseme.convert_model(model=tmp_path / "span", to="onnx", output=tmp_path / "a.onnx")

    def missing(package: str, *, extra: str) -> Any:
        raise MissingPackageError(f"{package} is missing: pip install 'polyseme[{extra}]'")

    monkeypatch.setattr(onnx_file, "require", missing)
    with pytest.raises(MissingPackageError, match=r"polyseme\[onnx\]"):
        polyseme.convert_model(model=bert, to="onnx", output=tmp_path / "a.onnx")
    assert not (tmp_path / "a.onnx").exists()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["lstm", "transfo-xl"])
def test_graphs_of_one_length_are_refused(family: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="rows of one length only"):
        exported(family, tmp_path)

"""The package of English models: made by `models/english/pack.py` from two runs; and the one that is installed."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

import polyseme
from polyseme.errors import InputError
from polyseme.packaged_models import PACKAGED

PROJECT = Path(__file__).parents[2] / "models" / "english"
SHAPE = {"n_layers": 2, "width": 32, "n_heads": 2, "inner_width": 64}
SIZES = {
    "batch_size": 2,
    "length": 32,
    "budget": "3steps",
    "device": "cpu",
    "seed": 3,
    "vocab_size": 300,
    "shape": SHAPE,
}
COMMANDS = {
    "encoder": "polyseme pretrain texts/*.txt --recipe modern-tiny --budget 3steps --seed 3 -o runs/encoder",
    "decoder": "polyseme pretrain texts/*.txt --recipe gpt-tiny --budget 3steps --seed 3 -o runs/decoder",
}


@pytest.fixture(scope="module")
def packing() -> Iterator[Any]:
    """`models/english/pack.py`, as a module."""
    sys.path.insert(0, str(PROJECT))
    yield importlib.import_module("pack")
    sys.path.remove(str(PROJECT))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, real_text: Callable[[str, int], str]) -> dict[str, Path]:
    """Two finished runs of a few steps, the encoder evaluated by a verb, the decoder as the experiments do it."""
    folder = tmp_path_factory.mktemp("runs")
    texts = folder / "texts"
    texts.mkdir()
    half = real_text("wiki-00", 40_000)
    (texts / "wiki-00.txt").write_text(half[:20_000])
    (texts / "books-00.txt").write_text(half[20_000:])
    for name, recipe in (("encoder", "modern-tiny"), ("decoder", "gpt-tiny")):
        polyseme.pretrain(texts, recipe=recipe, output=folder / name, **SIZES)
    (folder / "encoder" / "scores").mkdir()
    (folder / "pairs.tsv").write_text("good\tbad\nDawn broke.\tBroke dawn.\nWe broke even.\tWe even broke.\n")
    polyseme.evaluate(folder / "pairs.tsv", model=folder / "encoder", output=folder / "encoder" / "scores" / "own.json")
    (folder / "results").mkdir()
    blimp = {"model": "model", "causal": {"accuracy": 0.75, "method": "left to right", "phenomena": {"npi": 0.5}}}
    with experiments_on_path():
        figures = importlib.import_module("pretraining_runs").figures_of(folder / "decoder")
    (folder / "results" / "decoder.json").write_text(json.dumps({**figures, "blimp": blimp}))
    return {name: folder / name for name in ("encoder", "decoder")}


@contextmanager
def experiments_on_path() -> Iterator[None]:
    folder = str(PROJECT.parents[1] / "experiments")
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def options_of(runs: dict[str, Path]) -> dict[str, Any]:
    """What `pack` takes for these runs."""
    return {"commands": COMMANDS, "results": runs["encoder"].parent / "results"}


@pytest.fixture(scope="module")
def packed(packing: Any, runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The module's folder."""
    module = tmp_path_factory.mktemp("site") / "polyseme_english"
    module.mkdir()
    shutil.copy(PROJECT / "src" / "polyseme_english" / "__init__.py", module)
    packing.pack(runs, module, **options_of(runs))
    return module


def test_the_weights_are_the_runs_in_bf16(packed: Path, runs: dict[str, Path]) -> None:
    assert sorted(path.name for path in packed.iterdir()) == ["__init__.py", "decoder", "encoder"]
    for name, run in runs.items():
        stored = load_file(packed / name / "model.safetensors")
        trained = load_file(run / "model" / "model.safetensors")
        assert stored.keys() == trained.keys()
        for key, tensor in stored.items():
            assert torch.equal(tensor, trained[key].to(torch.bfloat16)), key


def test_transformers_loads_both(packed: Path) -> None:
    for name, auto_class in (("encoder", "AutoModelForMaskedLM"), ("decoder", "AutoModelForCausalLM")):
        loaded, info = getattr(transformers, auto_class).from_pretrained(packed / name, output_loading_info=True)
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        ours = polyseme.load(packed / name, device="cpu")
        assert loaded.num_parameters() == ours.show().parameters
        text = "The vase broke."
        ids = transformers.AutoTokenizer.from_pretrained(packed / name)(text)["input_ids"]
        assert ids == ours.pieces(text).ids.tolist()


def test_verbs_find_them_once_they_are_installed(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(packed.parent))
    assert polyseme.fill("The vase [MASK].", device="cpu")[0].pieces
    assert polyseme.generate("The vase", max_new=3, device="cpu").continuations[0][0].text


def test_cards_have_data_cost_scores_seed_and_command(packed: Path, runs: dict[str, Path]) -> None:
    for name, run in runs.items():
        card = (packed / name / "README.md").read_text()
        assert card.startswith("---\nlanguage: en\n")
        assert f"# english-{name}" in card
        assert "| wiki-00.txt | English Wikipedia" in card
        assert "| books-00.txt | Standard Ebooks" in card
        assert "edu" not in card.partition("## Data")[2].partition("## Training")[0]
        assert f"seed 3:\n\n```sh\n{COMMANDS[name]}\n```" in card
        ledger = json.loads((run / "ledger.json").read_text())
        assert f"3 steps, {ledger['pieces']:,} pieces in" in card
        held_out = json.loads((run / "log.jsonl").read_text().splitlines()[-1])["held_out"]["loss"]
        assert f"{held_out:.3f} nats" in card
        assert f"{polyseme.show(model=run).parameters:,} parameters" in card
    report = json.loads((runs["encoder"] / "scores" / "own.json").read_text())
    accuracy = report["lines"][0]["figures"]["accuracy"]
    assert f"| all | 2 | {100 * accuracy:.1f} |" in (packed / "encoder" / "README.md").read_text()
    decoder = (packed / "decoder" / "README.md").read_text()
    assert "| BLiMP, accuracy | left to right |\n| --- | --- |\n| all | 75.0 |\n| npi | 50.0 |" in decoder
    entropy = json.loads((runs["decoder"].parent / "results" / "decoder.json").read_text())["unigram_entropy"]
    assert f"unigram entropy {entropy:.3f}" in decoder


def test_scores_of_another_run_are_refused(packing: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "decoder.json").write_text(json.dumps({"settings": {"recipe": "another"}}))
    with pytest.raises(InputError, match="is about a run with other settings"):
        packing.pack(runs, tmp_path / "module", commands=COMMANDS, results=tmp_path)


def changed(run: Path, folder: Path, name: str, change: Callable[[Any], None]) -> Path:
    """A copy of a run with a file of JSON changed."""
    shutil.copytree(run, folder / "changed", ignore=shutil.ignore_patterns("checkpoints", "shards"))
    path = folder / "changed" / name
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return folder / "changed"


def closed_text(corpus: Any) -> None:
    corpus["sources"][0]["files"].append("texts/news-01.txt.xz")


def unfinished(run: Any) -> None:
    run["finished"] = False


def other_seed(run: Any) -> None:
    run["settings"]["training"]["seed"] = 4
    del run["checksum"]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("corpus/corpus.json", closed_text, r"trained on news-01\.txt\.xz, whose source and license"),
        ("run.json", unfinished, "is not finished"),
        ("run.json", other_seed, "has the seed 4"),
    ],
)
def test_a_run_that_must_not_be_packed_changes_nothing(
    packing: Any, runs: dict[str, Path], tmp_path: Path, file: str, change: Callable[[Any], None], message: str
) -> None:
    output = tmp_path / "module"
    (output / "encoder").mkdir(parents=True)
    other = changed(runs["decoder"], tmp_path, file, change)
    with pytest.raises(InputError, match=message):
        packing.pack({"encoder": runs["encoder"], "decoder": other}, output, commands=COMMANDS)
    assert [path.name for path in output.rglob("*")] == ["encoder"]


def test_models_of_another_kind_and_too_large_ones_are_refused(
    packing: Any, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="is no model for the encoder: it is of the family gpt2"):
        packing.pack({"encoder": runs["decoder"]}, tmp_path / "module", commands=COMMANDS)
    with pytest.raises(InputError, match="the package has at most 100,000"):
        packing.pack(runs, tmp_path / "module", commands=COMMANDS, largest_package=100_000)
    monkeypatch.setattr(packing, "LARGEST_FILE", 10_000)
    with pytest.raises(InputError, match="a file has at most 10,000"):
        packing.pack(runs, tmp_path / "module", commands=COMMANDS)
    assert not list((tmp_path / "module").iterdir())


# --- the package that is installed ------------------------------------------------------------------------------------


@pytest.fixture(params=["encoder", "decoder"])
def installed(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """A model of the installed package; skipped where it is not installed."""
    folder = PACKAGED[f"english-{request.param}"].find()
    if folder is None:
        pytest.skip("polyseme-english is not installed (pip install ./models/english)")
    return request.param, folder


def test_the_installed_models_are_as_described(installed: tuple[str, Path]) -> None:
    name, folder = installed
    card = polyseme.show(model=folder)
    assert f"{card.layers} layers of width {card.width}" in PACKAGED[f"english-{name}"].description
    assert max(path.stat().st_size for path in folder.iterdir()) <= 15_000_000
    assert sum(path.stat().st_size for path in folder.parent.rglob("*.*") if path.is_file()) <= 100_000_000
    for shard in folder.glob("*.safetensors"):
        assert {tensor.dtype for tensor in load_file(shard).values()} == {torch.bfloat16}
    readme = (folder / "README.md").read_text(encoding="utf-8")
    for section in ("Data", "Training", "Cost", "Scores", "Limits", "License"):
        assert f"## {section}\n" in readme
    assert "None were measured" not in readme
    assert "news-01" not in readme


def test_transformers_computes_the_same_with_the_installed_models(installed: tuple[str, Path]) -> None:
    name, folder = installed
    auto_class = {"encoder": "AutoModelForMaskedLM", "decoder": "AutoModelForCausalLM"}[name]
    theirs, info = getattr(transformers, auto_class).from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32
    )
    assert not info["missing_keys"]
    ours = polyseme.load(folder, device="cpu")
    pieces = ours.pieces("The vase broke into pieces.")
    with torch.inference_mode():
        states = theirs.eval()(torch.from_numpy(pieces.ids)[None], output_hidden_states=True).hidden_states[-1][0]
    scale = states.abs().max().item()
    assert abs(states.numpy() - pieces.states[-1]).max() < 1e-4 * scale


AGREEMENT = [
    ("The cats are sleeping on the bed.", "The cats is sleeping on the bed."),
    ("The man was in the house.", "The man were in the house."),
    ("She has gone to the city.", "She have gone to the city."),
    ("These books were written by him.", "This books were written by him."),
    ("They saw themselves in the mirror.", "They saw himself in the mirror."),
]


def test_the_installed_models_have_learned_english(installed: tuple[str, Path]) -> None:
    name, _ = installed
    if name == "encoder":
        encoder = polyseme.load("english-encoder", device="cpu")
        [filled] = encoder.fill("She put the book on the [MASK].", top=50)
        assert {"table", "shelf", "desk", "floor"} & set(filled.pieces)
        [words] = encoder.fill("She put the book on the [MASK].", top=20, whole_words=True)
        assert {"table", "shelf", "desk", "floor"} & set(words.words)
        [given] = encoder.fill("Paris is in [MASK].", targets=["Liechtenstein", "Italy", "France"])
        assert given.words[0] == "France"
        return
    model = polyseme.load("english-decoder", device="cpu")
    scores = [scored.totals.log_prob for scored in model.score([text for pair in AGREEMENT for text in pair])]
    assert sum(good > bad for good, bad in zip(scores[::2], scores[1::2], strict=True)) >= len(AGREEMENT) - 1
